"""Adapts an agent's identity, tools, mode and system prompt to its team membership."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from shoal.app.config.system_prompt import load_default_prompt
from shoal.core.agents.agent_definitions import AgentDefinition, ToolSelection, matches_tool_list_entry
from shoal.core.agents.identity import AgentIdentity
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.policy.mode_inheritance import is_wider_permission_mode, narrow_child_permission_mode
from shoal.policy.permission_engine import PermissionEngine
from shoal.runs.prepared_agent import TeammateMembership
from shoal.tools.team_tools import TEAM_TOOLS

MEMBER_TOOLS = ("SendMessage", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate")
"""Tools that every teammate has, whatever its definition says."""


def resolve_member_identity(
    identity: AgentIdentity, assignment: TeammateMembership | None, mode: str
) -> AgentIdentity:
    """Return its identity in the team.

    `mode` is its first permission mode: an approved plan is not required again.
    """
    if assignment is None:
        return identity
    plan_required = assignment.mode == "plan" == mode
    return replace(
        identity,
        team=assignment.team,
        teammate=assignment.form,
        parent_session=identity.session,
        plan_required=plan_required,
        name=assignment.name,
    )


def resolve_member_tools(
    toolset: ToolSelection, assignment: TeammateMembership | None, offered: Iterable[str]
) -> ToolSelection:
    if assignment is None:
        return toolset
    selected = {*toolset.names, *MEMBER_TOOLS, *(TEAM_TOOLS if assignment.can_lead else ())}
    return replace(
        toolset,
        names=tuple(name for name in offered if name in selected),
        never=tuple(entry for entry in toolset.never if entry not in MEMBER_TOOLS),
    )


def resolve_member_permission_mode(
    authority: PermissionEngine, definition: AgentDefinition, assignment: TeammateMembership | None
) -> PermissionMode:
    requested_mode = None if assignment is None else assignment.mode
    return narrow_child_permission_mode(
        authority.mode,
        requested_mode or definition.permission_mode,
        person_configured=requested_mode is None and definition.source.is_trusted,
        can_bypass=authority.can_bypass,
    )


def resolve_launch_permission_mode(
    authority: PermissionEngine, requested_mode: PermissionMode | None
) -> tuple[PermissionMode | None, bool]:
    """Return the mode for a command line, and whether permissions are skipped.

    A foreign program is restricted by these arguments only, so they never exceed what its lead may do.
    """
    lead_mode = authority.mode
    if requested_mode in (None, "plan"):
        # Planning first has its own flag; afterward it has the lead's mode.
        return (
            lead_mode if is_wider_permission_mode("default", than=lead_mode) else None
        ), lead_mode == "bypassPermissions"
    mode = narrow_child_permission_mode(lead_mode, requested_mode, can_bypass=authority.can_bypass)
    if mode == "bypassPermissions":
        return None, True
    return ("acceptEdits" if mode == "delegate" else mode), False


def build_agent_role_prompt(definition: AgentDefinition, assignment: TeammateMembership | None) -> str:
    """Build its part of the system prompt; a teammate also gets the default prompt and the team section."""
    if assignment is None:
        return definition.prompt
    return "\n\n".join(
        filter(None, (load_default_prompt().strip(), assignment.section, definition.prompt.strip()))
    )


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
