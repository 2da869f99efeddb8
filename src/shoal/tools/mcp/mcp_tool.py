"""Agent tool backed by one tool of an MCP server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.core.tools import ToolContext, ToolOutput
from shoal.tools.mcp.client_context import ListedMcpTool

if TYPE_CHECKING:
    from shoal.tools.mcp.managed_server import ManagedMcpServer


class McpTool:
    deadline: float | None = None
    """None: each call has its own deadline, which progress and questions to the user extend."""

    def __init__(self, managed: ManagedMcpServer, listed: ListedMcpTool) -> None:
        self.managed = managed
        self.listed = listed
        self.schema = listed.schema
        # The server's read-only hint only affects call order; permission is still required.
        self.is_read_only = listed.reads_only
        self.is_concurrent = listed.reads_only

    def __repr__(self) -> str:
        return f"<tool {self.schema.name}>"

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self.managed.call_tool(self.listed.name, arguments, context)
