"""Sources of hooks: settings files, the program that opens a session, and agent definitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from shoal.app.settings.foreign_settings import find_http_hook_limits
from shoal.app.settings.managed_switches import allows_only_managed_hooks, is_plugin_only
from shoal.app.settings.settings import Settings
from shoal.core.agents.agent_definitions import AgentDefinition, DefinitionSource
from shoal.core.errors import SettingsError
from shoal.core.extensions.hooks import MATCHER_FIELDS, MATCHER_VALUES, Hook
from shoal.core.names import FORMER_TOOL_NAMES, TOOL_NAMES
from shoal.core.text.name_suggestions import find_similar_names, suggest_name
from shoal.policy.hooks.hook_matcher import list_matcher_names
from shoal.wire.hook_codec import ParsedHooks, merge_parsed_hooks, parse_hooks_from_code, parse_hooks_setting
from shoal.wire.settings_codec import SettingsDocument

_DISABLE_KEY = "disableAllHooks"


def load_configured_hooks(
    settings: Settings,
    given: Mapping[str, Any] | None = None,
    plugins: Sequence[SettingsDocument] = (),
    program_tools: Collection[str] = (),
    agent_types: Collection[str] = (),
) -> ParsedHooks:
    """Load the hooks of settings files, highest precedence first, then of plug-ins, then of the program.

    `program_tools` are the names of the program's own tools, `agent_types` those of all agents. Raises
    `SettingsError` if the program's hooks are not understood: it relies on each of them.
    """
    found = [
        parse_document_hooks(document, settings)
        for document in (*settings.documents, *plugins)
        if document.raw.get("hooks") and not are_settings_hooks_disabled(document, settings)
    ]
    if given:
        parsed = parse_hooks_from_code(given, "shoal.open")
        if parsed.problems:
            raise SettingsError(" ".join(parsed.problems))
        refuse_unknown_matcher_names("shoal.open", given, program_tools, agent_types)
        found.append(parsed)
    return merge_parsed_hooks(found)


def list_machine_guards(
    settings: Settings, plugins: Sequence[SettingsDocument] = (), *, sends_project: bool
) -> list[str]:
    """Return the places of hooks that decide about calls, and that other machines do not get.

    Those of the command line are sent. With `sends_project`, so are those of the project that are trusted.
    """
    sent = ("command line", "project") if sends_project else ("command line",)
    return [
        document.locate_key(("hooks", event))
        for document in (*settings.documents, *plugins)
        if document.kind not in sent and not are_settings_hooks_disabled(document, settings)
        for event in ("PreToolUse", "PermissionRequest")
        if (document.raw.get("hooks") or {}).get(event)
    ]


def list_unused_settings(settings: Settings, hooks: ParsedHooks) -> tuple[str, ...]:
    """Return a sentence for each item that a session starts without, because it is only a convenience."""
    return (*map(str, settings.findings.unused_items), *hooks.unused)


def parse_document_hooks(
    document: SettingsDocument, settings: Settings, hooks: Mapping[str, Any] | None = None
) -> ParsedHooks:
    """Parse all hooks of a document, or those given."""
    return parse_hooks_setting(
        document.raw["hooks"] if hooks is None else hooks,
        document.locate_key,
        settings.environ,
        http_limits=find_http_hook_limits(settings.documents),
    )


def parse_definition_hooks(hooks: Any, source: DefinitionSource, settings: Settings) -> ParsedHooks:
    """Parse the hooks of an agent or a skill; none if the settings disable them."""
    if are_definition_hooks_disabled(source, settings):
        return ParsedHooks()
    location = source.locate_field("hooks") or str(source)
    limits = find_http_hook_limits(settings.documents)
    return parse_hooks_setting(hooks, lambda _: location, settings.environ, http_limits=limits)


def are_definition_hooks_disabled(source: DefinitionSource, settings: Settings) -> bool:
    """Return True if a managed file limits hooks to other sources than this agent or skill."""
    return allows_only_managed_hooks(settings.documents) or (
        source.kind in ("user", "project") and is_plugin_only(settings.documents, "hooks")
    )


def refuse_unknown_matcher_names(
    origin: str,
    hooks: Mapping[str, Any],
    program_tools: Collection[str],
    agent_types: Collection[str] | None = None,
) -> None:
    """Raise `SettingsError` for a matcher with a name that does not exist: it would never match.

    Tools of MCP servers and regular expressions are not checked, nor are agents without `agent_types`.
    """
    tools = {*TOOL_NAMES, *FORMER_TOOL_NAMES, *program_tools}
    for event, entries in hooks.items():
        field = MATCHER_FIELDS.get(event)  # type: ignore[call-overload]
        values = MATCHER_VALUES.get(event)  # type: ignore[call-overload]
        for name in (name for entry in entries for name in list_matcher_names(_find_matcher(entry))):
            problem = ""
            if field == "tool_name" and name not in tools and not name.startswith("mcp__"):
                problem = f"there is no tool named {name!r}.{suggest_name(name, sorted(tools))}"
            elif values is not None and name not in values:
                problem = f"the {field} is never {name!r}.{suggest_name(name, values)}"
            elif field == "agent_type" and agent_types is not None:
                problem = find_unknown_agent_problem(name, agent_types)
            if problem:
                raise SettingsError(f"{origin}: hooks.{event}: {problem}")


def find_unknown_agent_problem(name: str, agent_types: Collection[str]) -> str:
    """Return a sentence with the nearest name if there is no such agent, else an empty text."""
    if name in agent_types:
        return ""
    close = find_similar_names(name, agent_types)
    advice = f"Did you mean {' or '.join(close)}?" if close else f"Known agents: {', '.join(agent_types)}."
    return f"there is no agent named {name!r}. {advice} Pass agents that you start later in agents=."


def _find_matcher(entry: Any) -> str:
    """Return the matcher of an entry in any form; empty if it has none."""
    match entry:
        case (str(matcher), _) | Hook(matcher=matcher) | {"matcher": str(matcher)}:
            return matcher
    return ""


def read_agent_definition_hooks(definition: AgentDefinition, settings: Settings) -> ParsedHooks:
    """Return the hooks of a definition. Its `Stop` hooks become `SubagentStop` hooks."""
    found = parse_definition_hooks(definition.hooks, definition.source, settings)
    return replace(found, hooks=tuple(map(convert_to_subagent_stop_hook, found.hooks)))


def convert_to_subagent_stop_hook(hook: Hook) -> Hook:
    return replace(hook, event="SubagentStop") if hook.event == "Stop" else hook


def are_settings_hooks_disabled(document: SettingsDocument, settings: Settings) -> bool:
    """Return True if its hooks are off. Projects cannot disable user hooks, and users cannot disable managed
    hooks."""
    if document.kind != "managed" and allows_only_managed_hooks(settings.documents):
        return True
    if document.kind not in ("managed", "plugin") and is_plugin_only(settings.documents, "hooks"):
        return True
    disabling = [
        each for each in settings.documents if each.raw.get(_DISABLE_KEY) is True and each.is_user_controlled
    ]
    return any(document.kind != "managed" or each.kind == "managed" for each in disabling)
