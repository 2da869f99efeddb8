"""Python tools and structured answers of the agents that a program defines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shoal.app.mcp.mcp_servers import AgentTools
from shoal.app.options import AgentExtras
from shoal.core.agents.agent_definitions import AgentDefinition
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
