"""Limits an agent's tools by its spawn request, and lends it permissions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shoal.app.agents.member_setup import MEMBER_TOOLS
from shoal.app.skills.skill_invoker import PreloadedSkills
from shoal.core.agents.agent_definitions import (
    AgentDefinition,
    DefinitionSource,
    ToolSelection,
    matches_tool_list_entry,
    select_definition_tools,
)
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.errors import AgentRequestRefused
from shoal.policy.agent_restrictions import StoredToolRestrictions
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_rules import parse_permission_rule
from shoal.runs.prepared_agent import TeammateMembership


def limit_tools_to_spawn_request(toolset: ToolSelection, request: SpawnRequest) -> ToolSelection:
    """Return the tools of the definition that the request allows. Raises `AgentRequestRefused`."""
    if not request.only_tools:
        return toolset
    selection = select_definition_tools(
        AgentDefinition(
            name="",
            description="",
            prompt="",
            source=DefinitionSource(kind="builtin"),
            tools=request.only_tools,
        ),
        toolset.names,
    )
    if selection.missing:
        raise AgentRequestRefused(
            f"{request.description} was not started because its allowed-tools lists tools that its agent "
            f"does not have: "
            f"{', '.join(selection.missing)}. Remove them from its allowed-tools, or name another agent."
        )
    return replace(toolset, names=selection.names)


def limit_tools_to_session(
    toolset: ToolSelection, available: Sequence[str] | None, assignment: TeammateMembership | None
) -> ToolSelection:
    """Return the tools that the options of the session make available; a teammate keeps those of its team."""
    if available is None:
        return toolset
    entries = available if assignment is None else (*available, *MEMBER_TOOLS)
    return replace(
        toolset,
        names=tuple(
            name for name in toolset.names if any(matches_tool_list_entry(entry, name) for entry in entries)
        ),
    )


def build_stored_tool_restrictions(request: SpawnRequest | None) -> StoredToolRestrictions | None:
    """Build the restriction that also applies to the agents it starts."""
    return (
        StoredToolRestrictions(only=(request.only_tools,))
        if request is not None and request.only_tools
        else None
    )


def lend_permissions_to_new_agent(
    permissions: PermissionEngine, request: SpawnRequest | None, preloaded: PreloadedSkills
) -> None:
    """Lend permissions while the agent works; a resumed agent has to ask."""
    for directory in preloaded.directories:
        permissions.allow_reading(directory)
    if request is not None and request.lent:
        permissions.grant_allow_rules(
            (parse_permission_rule(entry, request.description) for entry in request.lent), lasting=True
        )
