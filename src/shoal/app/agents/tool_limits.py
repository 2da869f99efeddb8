"""Limits an agent's tools to those of its session."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shoal.app.agents.member_setup import MEMBER_TOOLS
from shoal.core.agents.agent_definitions import ToolSelection, matches_tool_list_entry
from shoal.runs.prepared_agent import TeammateMembership


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
