"""Assistant mode: the session stays open and its lead is always available to the person."""

from __future__ import annotations

from importlib.resources import files

from shoal.app.basis.coordinating import need_background
from shoal.app.options import Options
from shoal.app.settings.settings import Settings


def assists(options: Options, settings: Settings) -> bool:
    """Return True in assistant mode. Raises `SettingsError` if background agents are disabled."""
    wanted = settings.own.assistant if options.assistant is None else options.assistant
    if wanted:
        need_background(settings, "In assistant mode all agents run in the background")
    return wanted


def added_prompt(options: Options, *, assistant: bool) -> str | None:
    """Build the text appended to the default prompt; None if there is none."""
    own = (files("shoal.agent") / "prompts" / "assistant.md").read_text("utf-8") if assistant else ""
    return "\n\n".join(filter(None, (own.strip(), options.append_system_prompt))) or None
