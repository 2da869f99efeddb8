"""One tool of an MCP server, as an agent has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.core.tools import Outcome, Site
from shoal.tools.mcp.host import ListedTool

if TYPE_CHECKING:
    from shoal.tools.mcp.life import ServerLife


class McpTool:
    deadline: float | None = None
    """The call keeps its own, which signs of life and questions for a person move."""

    def __init__(self, life: ServerLife, listed: ListedTool) -> None:
        self.life = life
        self.listed = listed
        self.schema = listed.schema
        # What a server says of itself is a hint: it orders calls, and permission is asked for all the same.
        self.reads_only = listed.reads_only
        self.side_by_side = listed.reads_only

    def __repr__(self) -> str:
        return f"<tool {self.schema.name}>"

    async def run(self, arguments: Mapping[str, Any], site: Site) -> Outcome:
        return await self.life.call(self.listed.name, arguments, site)
