"""Sources of hooks: settings files, the program that opens a session, and agent definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from shoal.app.settings.foreign_settings import allows_only_managed_hooks
from shoal.app.settings.settings import Settings
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.errors import SettingsError
from shoal.core.extensions.hooks import Hook
from shoal.wire.hook_codec import ParsedHooks, merge_parsed_hooks, parse_hooks_from_code, parse_hooks_setting
from shoal.wire.settings_codec import SettingsDocument

_DISABLE_KEY = "disableAllHooks"


def load_configured_hooks(
    settings: Settings, given: Mapping[str, Any] | None = None, plugins: Sequence[SettingsDocument] = ()
) -> ParsedHooks:
    """Load the hooks of settings files, highest precedence first, then of plug-ins, then of the program.

    Raises `SettingsError` if the program's hooks cannot be parsed: it relies on each of them.
    """
    found = [
        parse_hooks_setting(document.raw["hooks"], document.locate_key, settings.environ)
        for document in (*settings.documents, *plugins)
        if document.raw.get("hooks") and not are_settings_hooks_disabled(document, settings)
    ]
    if given:
        parsed = parse_hooks_from_code(given, "shoal.open")
        if parsed.problems:
            raise SettingsError(" ".join(parsed.problems))
        found.append(parsed)
    return merge_parsed_hooks(found)


def read_agent_definition_hooks(definition: AgentDefinition, settings: Settings) -> ParsedHooks:
    """Return the hooks of a definition. Its `Stop` hooks become `SubagentStop` hooks."""
    if allows_only_managed_hooks(settings.documents):
        return ParsedHooks()
    location = definition.source.locate_field("hooks") or str(definition.source)
    found = parse_hooks_setting(definition.hooks, lambda _: location, settings.environ)
    return replace(found, hooks=tuple(map(_convert_to_subagent_stop_hook, found.hooks)))


def _convert_to_subagent_stop_hook(hook: Hook) -> Hook:
    return replace(hook, event="SubagentStop") if hook.event == "Stop" else hook


def are_settings_hooks_disabled(document: SettingsDocument, settings: Settings) -> bool:
    """Return True if its hooks are off. Projects cannot disable user hooks, and users cannot disable managed
    hooks."""
    if document.kind != "managed" and allows_only_managed_hooks(settings.documents):
        return True
    disabling = [
        each for each in settings.documents if each.raw.get(_DISABLE_KEY) is True and each.is_user_controlled
    ]
    return any(document.kind != "managed" or each.kind == "managed" for each in disabling)
