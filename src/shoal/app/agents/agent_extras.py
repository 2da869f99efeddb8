"""Tools of agents: those of their definitions, and what a program adds to its own definitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shoal.app.mcp.mcp_servers import AgentTools
from shoal.app.options import AgentExtras
from shoal.core.agents.agent_definitions import AgentDefinition, ToolSelection, select_definition_tools
from shoal.core.conversation.tools import Tool
from shoal.core.output_type import OutputType
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT, StructuredOutputTool

if TYPE_CHECKING:
    from shoal.app.runtime.runtime import Runtime

_NO_EXTRAS = AgentExtras()


def get_program_extras(runtime: Runtime, definition: AgentDefinition) -> AgentExtras:
    """Return what the program added to a definition; a managed definition of the same name gets nothing."""
    if definition.source.kind != "flag":
        return _NO_EXTRAS
    return runtime.agents.extras.get(definition.name, _NO_EXTRAS)


def add_program_tools(
    agent_tools: AgentTools, tools: Sequence[Tool], output: OutputType[Any] | None
) -> AgentTools:
    """Return the tools with those of the program, and with a new tool for the answer if one is required."""
    if not tools and output is None:
        return agent_tools
    output_tool = None if output is None else StructuredOutputTool(output.schema, output)
    own_tools: dict[str, Tool] = {tool.schema.name: tool for tool in tools}
    names = (*agent_tools.extra_names, *own_tools)
    if output_tool is not None:
        own_tools[STRUCTURED_OUTPUT] = output_tool
    return replace(
        agent_tools, tools={**agent_tools.tools, **own_tools}, extra_names=names, output_tool=output_tool
    )


class ToolsetCache:
    """Caches the last toolset, because many agents of one type usually start together."""

    def __init__(self, lead_only_tools: Collection[str]) -> None:
        self._lead_only_tools = lead_only_tools
        self._last: tuple[AgentDefinition, tuple[str, ...], tuple[str, ...], ToolSelection] | None = None

    def resolve_toolset(self, definition: AgentDefinition, agent_tools: AgentTools) -> ToolSelection:
        tool_names, cached = tuple(agent_tools.tools), self._last
        if (
            cached is not None
            and cached[0] is definition
            and cached[1] == tool_names
            and cached[2] == agent_tools.extra_names
        ):
            return cached[3]
        offered = (name for name in tool_names if name not in self._lead_only_tools)
        toolset = select_definition_tools(definition.capabilities, offered, agent_tools.extra_names)
        self._last = (definition, tool_names, agent_tools.extra_names, toolset)
        return toolset
