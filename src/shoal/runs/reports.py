"""An agent's report as it enters another's conversation: small enough, with the whole of it kept."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from shoal.core.ids import AgentId
from shoal.core.ports import Results

CHARACTERS_PER_TOKEN = 4
_AROUND = 1_600
"""Characters left for what stands around a report in a notification: paths, what it did, what it took."""


class Kept(Struct, frozen=True, kw_only=True):
    """A report that was stored whole, and what of it is shown."""

    shown: str
    size: int
    digest: str
    whole: Path | None
    """None where nothing was cut, so that what is shown is the whole."""


def kept(text: str, agent: AgentId, completion: str, results: Results, *, tokens: int) -> Kept:
    """Store a report that is too long to be shown whole."""
    limit = max(200, tokens * CHARACTERS_PER_TOKEN - _AROUND)
    content = text.encode("utf-8", "surrogateescape")
    digest = sha256(content).hexdigest()
    if len(text) <= limit:
        return Kept(shown=text, size=len(text), digest=digest, whole=None)
    whole = results.keep(f"{agent}-{completion}.md", content)
    head, tail = text[: limit * 3 // 4], text[-limit // 4 :]
    left_out = len(text) - len(head) - len(tail)
    shown = f"{head}\n[… {left_out:,} of {len(text):,} characters are left out here …]\n{tail}"
    return Kept(shown=shown, size=len(text), digest=digest, whole=whole)
