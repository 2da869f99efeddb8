"""Coordinator mode: the lead only starts, messages and stops agents."""

from __future__ import annotations

from collections.abc import Collection

from shoal.agent.agent_texts import load_prompt
from shoal.app.config.tool_selection import (
    remove_denied_tools,
    select_tools_by_name,
    split_permission_rule_flags,
)
from shoal.app.options import Options
from shoal.app.settings.settings import Settings
from shoal.core.agents.agent_definitions import AgentDefinition, select_definition_tools
from shoal.core.conversation.tools import Tool
from shoal.core.errors import SettingsError
from shoal.core.extensions.mcp_servers import (
    MCP_PREFIX,
    format_mcp_tool_prefix,
    matches_mcp_server_pattern,
)
from shoal.policy.permission_rules import parse_permission_rule
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT

COORDINATOR_TOOLS = frozenset(
    {"Agent", "SendMessage", "ListAgents", "TaskOutput", "TaskStop", "TeamCreate", "TeamDelete"}
    | {"TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "AskUserQuestion"}
    | {STRUCTURED_OUTPUT}
)


def is_coordinator_mode(options: Options, settings: Settings) -> bool:
    """Return True if the lead is a coordinator. Raises `SettingsError` if it cannot be one."""
    enabled = settings.own.coordinator if options.coordinator is None else options.coordinator
    if enabled:
        require_background_agents(settings, "A coordinator's agents all run in the background")
    return enabled


def require_background_agents(settings: Settings, why: str) -> None:
    """Raise `SettingsError` if background agents are disabled."""
    if not settings.own.background_agents:
        raise SettingsError(
            f"{why}, but the setting shoal.background_agents "
            f"({settings.find_setting_origin('shoal.background_agents')}) forbids that. Change the setting "
            f"or the mode."
        )


def select_lead_tools(
    options: Options,
    settings: Settings,
    tools: dict[str, Tool],
    *,
    coordinator: bool,
    definition: AgentDefinition | None = None,
) -> dict[str, Tool]:
    """Return the tools of the lead, of its `definition` if it has one. Raises `SettingsError`."""
    if definition is not None:
        given = [tool.schema.name for tool in options.tools]
        # As for other agents, the tools of the servers that it names need no entry in `tools`.
        given += _find_tools_of_named_servers(definition, tools)
        selection = select_definition_tools(definition.capabilities, tools, given)
        if selection.missing and not selection.names and not definition.capabilities.can_name_mcp_tools:
            raise SettingsError(
                f"The agent {definition.name} ({definition.source}) names only tools that are not available "
                f"here: {', '.join(selection.missing)}. Change its definition, or choose another agent."
            )
        tools = {name: tools[name] for name in selection.names}
    flags = map(parse_permission_rule, split_permission_rule_flags(options.disallowed_tools))
    available = remove_denied_tools(
        select_tools_by_name(tools, options.available_tools), (*flags, *settings.permissions.rules.deny)
    )
    return {name: tool for name, tool in available.items() if not coordinator or name in COORDINATOR_TOOLS}


def _find_tools_of_named_servers(definition: AgentDefinition, tools: Collection[str]) -> list[str]:
    entries = definition.capabilities.mcp_servers
    names = [name for entry in entries for name in ([entry] if isinstance(entry, str) else entry)]
    prefixes = tuple(map(format_mcp_tool_prefix, names))

    def is_named(tool: str) -> bool:
        server = tool.removeprefix(MCP_PREFIX).partition("__")[0]
        return tool.startswith(prefixes) or any(matches_mcp_server_pattern(name, server) for name in names)

    return [tool for tool in tools if tool.startswith(MCP_PREFIX) and is_named(tool)] if names else []


def find_missing_lead_tools(tools: Collection[str], definition: AgentDefinition | None) -> tuple[str, ...]:
    """Return the tools that the lead's definition names and that are not available here.

    Tools of MCP servers are left out: a server may still be connecting.
    """
    if definition is None:
        return ()
    missing = select_definition_tools(definition.capabilities, tools).missing
    return tuple(name for name in missing if not name.startswith(MCP_PREFIX))


def load_replacement_system_prompt(options: Options, *, coordinator: bool) -> str | None:
    """Return the prompt that replaces the default prompt; None if there is none."""
    if options.system_prompt is not None or not coordinator:
        return options.system_prompt
    return load_prompt("coordinator")
