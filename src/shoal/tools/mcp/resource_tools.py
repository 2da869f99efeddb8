"""Tools that list and read resources of MCP servers; agents get them if a server offers resources."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.extensions.mcp_servers import READ_RESOURCE_TOOL
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.tool_texts import format_tool_text, load_tool_text

if TYPE_CHECKING:
    from shoal.tools.mcp.client_context import ActiveMcpCall
    from shoal.tools.mcp.managed_server import ManagedMcpServer
    from shoal.tools.mcp.sdk_connection import McpConnection

LIST_RESOURCES_TOOL = "ListMcpResourcesTool"


def build_mcp_resource_tools(get_servers: Callable[[], Sequence[ManagedMcpServer]]) -> tuple[Tool, ...]:
    @builtin_tool(name=LIST_RESOURCES_TOOL, reads_only=True, deadline=None)
    async def list_resources(
        context: ToolContext,
        server: str = "",
    ) -> ToolOutput:
        servers = [
            managed
            for managed in get_servers()
            if managed.features.resources and server in ("", managed.server.name)
        ]
        if not servers:
            return _report_unknown_resource_server(server, get_servers())
        resources: list[dict[str, Any]] = []
        errors: list[str] = []
        for managed in servers:

            async def list_on_connection(
                connection: McpConnection, _: ActiveMcpCall, name: str = managed.server.name
            ) -> ToolOutput:
                resources.extend({"server": name, **each} for each in await connection.list_resources())
                return ToolOutput(content="")

            output = await managed.run_on_connection(
                load_tool_text("mcp", "resource_list"), context, list_on_connection
            )
            if output.is_error:
                errors.append(str(output.content))
        lines = [json.dumps(each, ensure_ascii=False) for each in resources] or [
            load_tool_text("mcp", "empty_list")
        ]
        return ToolOutput(
            content="\n".join((*errors, *lines)),
            is_error=bool(errors and not resources),
            data={"all": resources},
        )

    @builtin_tool(name=READ_RESOURCE_TOOL, reads_only=True, deadline=None)
    async def read_resource(
        context: ToolContext,
        server: str,
        uri: str,
    ) -> ToolOutput:
        managed = next((each for each in get_servers() if each.server.name == server), None)
        if managed is None or not managed.features.resources:
            return _report_unknown_resource_server(server, get_servers())

        async def read_on_connection(connection: McpConnection, _: ActiveMcpCall) -> ToolOutput:
            return await connection.read_resource(uri, context)

        return await managed.run_on_connection(
            format_tool_text("mcp", "resource", uri=uri), context, read_on_connection
        )

    return list_resources, read_resource


def _report_unknown_resource_server(server: str, servers: Sequence[ManagedMcpServer]) -> ToolOutput:
    names = [managed.server.name for managed in servers if managed.features.resources]
    if not names:
        return create_tool_error_output(load_tool_text("mcp", "no_resources"))
    return create_tool_error_output(
        format_tool_text("mcp", "unknown_server", server=repr(server), names=", ".join(names))
    )
