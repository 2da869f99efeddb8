"""Sources of hooks: settings files, the program that opens a session, and agent definitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from shoal.app.settings.foreign_settings import allows_only_managed_hooks
from shoal.app.settings.settings import Settings
from shoal.core.agents.agent_definitions import FORMER_TOOL_NAMES, AgentDefinition
from shoal.core.errors import SettingsError
from shoal.core.extensions.hooks import MATCHER_FIELDS, Hook
from shoal.core.names import TOOL_NAMES
from shoal.core.text.name_suggestions import suggest_name
from shoal.policy.hooks.hook_matcher import list_matcher_names
from shoal.wire.hook_codec import ParsedHooks, merge_parsed_hooks, parse_hooks_from_code, parse_hooks_setting
from shoal.wire.settings_codec import SettingsDocument

_DISABLE_KEY = "disableAllHooks"


def load_configured_hooks(
    settings: Settings,
    given: Mapping[str, Any] | None = None,
    plugins: Sequence[SettingsDocument] = (),
    program_tools: Collection[str] = (),
) -> ParsedHooks:
    """Load the hooks of settings files, highest precedence first, then of plug-ins, then of the program.

    `program_tools` are the names of the program's own tools. Raises `SettingsError` if the program's hooks
    are not understood: it relies on each of them.
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
        _refuse_unknown_tools(given, program_tools)
        found.append(parsed)
    return merge_parsed_hooks(found)


def _refuse_unknown_tools(given: Mapping[str, Any], program_tools: Collection[str]) -> None:
    """Raise `SettingsError` for a matcher that names a tool which does not exist: it would never match.

    Tools of MCP servers and regular expressions are not checked.
    """
    known = {*TOOL_NAMES, *FORMER_TOOL_NAMES, *program_tools}
    for event, entries in given.items():
        if MATCHER_FIELDS.get(event) != "tool_name":  # type: ignore[call-overload]
            continue
        matchers = [entry[0] for entry in entries if isinstance(entry, tuple)]
        for name in (name for matcher in matchers for name in list_matcher_names(matcher)):
            if name not in known and not name.startswith("mcp__"):
                suggestion = suggest_name(name, sorted(known))
                raise SettingsError(
                    f"shoal.open: hooks.{event}: there is no tool named {name!r}.{suggestion}"
                )


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
