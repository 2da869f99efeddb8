"""Assistant mode: a session that stays open, with its lead free for the person at any time."""

from __future__ import annotations

from importlib.resources import files

from shoal.app.basis.coordinating import need_background
from shoal.app.options import Options
from shoal.app.settings.settings import Settings


def assists(options: Options, settings: Settings) -> bool:
    """Whether the session stays open. Raises `SettingsError` where its lead would not be free."""
    wanted = settings.own.assistant if options.assistant is None else options.assistant
    if wanted:
        need_background(settings, "In assistant mode all agents run in the background")
    return wanted


def added_prompt(options: Options, *, assistant: bool) -> str | None:
    """What stands behind the usual prompt, if anything does."""
    own = (files("shoal.agent") / "prompts" / "assistant.md").read_text("utf-8") if assistant else ""
    return "\n\n".join(filter(None, (own.strip(), options.append_system_prompt))) or None
