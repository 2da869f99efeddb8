"""Agent tool backed by one tool of an MCP server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.core.tools import Outcome, Site
from shoal.tools.mcp.host import ListedTool

if TYPE_CHECKING:
    from shoal.tools.mcp.life import ServerLife


class McpTool:
    deadline: float | None = None
    """None: each call has its own deadline, which progress and questions to the user extend."""

    def __init__(self, life: ServerLife, listed: ListedTool) -> None:
        self.life = life
        self.listed = listed
        self.schema = listed.schema
        # The server's read-only hint only affects call order; permission is still required.
        self.reads_only = listed.reads_only
        self.side_by_side = listed.reads_only

    def __repr__(self) -> str:
        return f"<tool {self.schema.name}>"

    async def run(self, arguments: Mapping[str, Any], site: Site) -> Outcome:
        return await self.life.call(self.listed.name, arguments, site)
