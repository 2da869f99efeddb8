"""List of agents that the model reads before it starts one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.core.agents.agent_definitions import ALL_TOOLS, AgentDefinition
from shoal.tools.bounded_list import format_bounded_list

MAX_LIST_CHARACTERS = 16_000
"""Limit of the whole list, which is sent with every request."""
_DESCRIPTION_LIMITS = (2_000, 600, 200, 80)
_MAX_TOOLS = 12


def format_agent_list(
    definitions: Iterable[AgentDefinition], *, max_characters: int = MAX_LIST_CHARACTERS
) -> str:
    """Return one line per agent: its name, when to use it, and its tools. Never exceeds `max_characters`."""
    return format_bounded_list(
        tuple(definitions),
        max_characters=max_characters,
        description_limits=_DESCRIPTION_LIMITS,
        format_extra=lambda agent: f" (Tools: {_format_agent_tools(agent)})",
    )


def _format_agent_tools(agent: AgentDefinition) -> str:
    exceptions = (
        f" except {_format_limited_tool_names(agent.disallowed_tools)}" if agent.disallowed_tools else ""
    )
    if agent.tools is None or ALL_TOOLS in agent.tools:
        return f"all{exceptions}"
    return f"{_format_limited_tool_names(agent.tools)}{exceptions}" if agent.tools else "none"


def _format_limited_tool_names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MAX_TOOLS} more" if len(names) > _MAX_TOOLS else ""
    return ", ".join(name[:80] for name in names[:_MAX_TOOLS]) + rest
