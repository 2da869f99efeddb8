"""The agent that the lead is: `--agent` and the setting `agent`."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.agent_catalog import AgentCatalog
from shoal.app.options import Options
from shoal.app.settings.settings import Settings
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.errors import InvalidAgentDefinition, SettingsError, UnknownAgentType
from shoal.core.permissions.permission_changes import PermissionMode, resolve_permission_mode
from shoal.policy.mode_inheritance import narrow_child_permission_mode
from shoal.policy.permission_rules import ToolPermissionRule, parse_permission_rule


class LeadAgentChoice(Struct, frozen=True, kw_only=True):
    options: Options
    definition: AgentDefinition | None = None
    notes: tuple[str, ...] = ()


def apply_lead_agent(options: Options, settings: Settings, definitions: AgentCatalog) -> LeadAgentChoice:
    """Return the options with the fields of the lead's agent that options can express.

    Raises `SettingsError` if there is no such agent: it may have fewer tools.
    """
    # A member has the definition that its lead chose.
    name = (options.agent or settings.agent) if options.membership is None else None
    if name is None:
        return LeadAgentChoice(options=options)
    try:
        definition = definitions.find(name)
    except (UnknownAgentType, InvalidAgentDefinition) as error:
        raise SettingsError(f"{describe_lead_agent_origin(options, settings)}: {error}") from error
    notes = [*_describe_unused_fields(definition)]
    if definition.permission_mode is not None:
        options, mode_notes = _apply_mode(options, settings, definition, definition.permission_mode)
        notes += mode_notes
    if definition.effort is not None and options.effort is None and options.thinking_tokens is None:
        is_level = isinstance(definition.effort, str)
        options = replace(options, **{"effort" if is_level else "thinking_tokens": definition.effort})
    if (usd := definition.run.max_budget_usd) is not None:
        options = replace(options, max_budget_usd=min(usd, options.max_budget_usd or usd))
    options = replace(
        options,
        system_prompt=definition.prompt if options.system_prompt is None else options.system_prompt,
        model=definition.model if options.model is None else options.model,
    )
    return LeadAgentChoice(options=options, definition=definition, notes=tuple(notes))


def describe_lead_agent_origin(options: Options, settings: Settings) -> str:
    """Return what chose the lead's agent, for messages about it."""
    return "--agent" if options.agent else f"{settings.find_setting_origin('agent')}: agent"


def _apply_mode(
    options: Options, settings: Settings, definition: AgentDefinition, requested: PermissionMode
) -> tuple[Options, Iterable[str]]:
    """Return the options with the mode of the agent; only the user's own agent may widen an unchosen mode."""
    default = settings.permissions.entries.default_mode
    chosen = "bypassPermissions" if options.skip_permissions else resolve_permission_mode(options.mode)
    session_mode = chosen or default or "default"
    can_bypass = settings.permissions.bypass_ban is None and (
        options.skip_permissions or options.allow_bypass or default == "bypassPermissions"
    )
    mode = narrow_child_permission_mode(
        session_mode,
        # The lead has no parent that could be asked.
        "default" if requested == "bubble" else requested,
        person_configured=definition.source.is_trusted and chosen is None,
        can_bypass=can_bypass,
    )
    location = definition.source.locate_field("permission_mode") or str(definition.source)
    notes = []
    if requested not in (mode, "bubble"):
        notes.append(f"{location}: permissionMode: {requested} is not used; the mode is {mode}.")
    elif chosen is not None and mode != chosen:
        notes.append(f"{location}: permissionMode: {mode} applies instead of the mode {chosen}.")
    return replace(
        options,
        mode=mode,
        skip_permissions=options.skip_permissions and mode == "bypassPermissions",
        allow_bypass=options.allow_bypass or options.skip_permissions,
    ), notes


def _describe_unused_fields(definition: AgentDefinition) -> Iterable[str]:
    """Yield one note if the agent has fields that only agents started by others use."""
    capabilities, run = definition.capabilities, definition.run
    fields = {
        "requiredMcpServers": capabilities.required_mcp_servers,
        "memory": definition.memory,
        "isolation": run.isolation,
        "acceptance": run.acceptance,
    }
    if names := [name for name, value in fields.items() if value]:
        yield (
            f"{definition.source}: as the lead, the agent {definition.name} does not use its "
            f"{', '.join(names)}."
        )


def parse_disallowed_tools(definition: AgentDefinition) -> tuple[ToolPermissionRule, ...]:
    """Return the rules in `disallowedTools` of the lead's agent, which name its file."""
    source = definition.source.locate_field("disallowed_tools") or str(definition.source)
    return tuple(parse_permission_rule(rule, source) for rule in definition.capabilities.disallowed_tools)
