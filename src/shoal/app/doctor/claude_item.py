"""One item of a file that Claude Code would read, and why it is not used."""

from __future__ import annotations

from msgspec import Struct

from shoal.app.settings.claude_keys import KeyUse

TRUST_ADVICE = "the project is not trusted: shoal trust --show, then shoal trust"
PLUGIN_ONLY_ADVICE = "a managed file sets strictPluginOnlyCustomization"


class ClaudeItem(Struct, frozen=True, kw_only=True):
    """One item of a file that Claude Code would read."""

    file: str
    item: str
    use: KeyUse
    advice: str = ""
