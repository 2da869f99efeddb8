"""Assistant mode: the session stays open and its lead is always available to the user."""

from __future__ import annotations

from shoal.agent.agent_texts import load_prompt
from shoal.app.config.coordinator_mode import require_background_agents
from shoal.app.config.system_prompt import format_settings_instructions
from shoal.app.options import Options
from shoal.app.settings.settings import Settings


def is_assistant_mode(options: Options, settings: Settings) -> bool:
    """Return True in assistant mode. Raises `SettingsError` if background agents are disabled."""
    enabled = settings.own.assistant if options.assistant is None else options.assistant
    if enabled:
        require_background_agents(settings, "In assistant mode, all agents run in the background")
    return enabled


def build_appended_system_prompt(options: Options, settings: Settings, *, assistant: bool) -> str | None:
    """Build the text appended to the default prompt; None if there is none."""
    mode_prompt = load_prompt("assistant") if assistant else ""
    configured = format_settings_instructions(settings, talks_to_person=True)
    parts = (mode_prompt.strip(), configured, options.append_system_prompt)
    return "\n\n".join(filter(None, parts)) or None
