"""Tools that list and read resources of MCP servers; agents get them if a server offers resources."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from shoal.core.tools import Outcome, Site, Tool, failed
from shoal.tools.define import tool

if TYPE_CHECKING:
    from shoal.tools.mcp.host import Caller
    from shoal.tools.mcp.life import ServerLife
    from shoal.tools.mcp.link import Link

LIST, READ = "ListMcpResourcesTool", "ReadMcpResourceTool"


def resource_tools(lives: Callable[[], Sequence[ServerLife]]) -> tuple[Tool, ...]:
    @tool(name=LIST, reads_only=True, deadline=None)
    async def list_resources(
        site: Site, server: Annotated[str, Meta(description="Only of this server; empty is all.")] = ""
    ) -> Outcome:
        """List the resources of MCP servers: files, rows, pages that ReadMcpResourceTool can read."""
        asked = [life for life in lives() if life.offer.resources and server in ("", life.server.name)]
        if not asked:
            return _no_such(server, lives())
        found: list[dict[str, Any]] = []
        troubles: list[str] = []
        for life in asked:

            async def work(link: Link, _: Caller, name: str = life.server.name) -> Outcome:
                found.extend({"server": name, **each} for each in await link.resources())
                return Outcome(content="")

            outcome = await life.reached("The list of resources", site, work)
            if outcome.is_error:
                troubles.append(str(outcome.content))
        lines = [json.dumps(each, ensure_ascii=False) for each in found] or ["There are no resources."]
        return Outcome(
            content="\n".join((*troubles, *lines)), is_error=bool(troubles and not found), data={"all": found}
        )

    @tool(name=READ, reads_only=True, deadline=None)
    async def read_resource(
        site: Site,
        server: Annotated[str, Meta(description="The server that has it.")],
        uri: Annotated[str, Meta(description="As ListMcpResourcesTool gives it.")],
    ) -> Outcome:
        """Read one resource of an MCP server."""
        life = next((each for each in lives() if each.server.name == server), None)
        if life is None or not life.offer.resources:
            return _no_such(server, lives())

        async def work(link: Link, _: Caller) -> Outcome:
            return await link.read(uri, site)

        return await life.reached(f"Reading {uri}", site, work)

    return list_resources, read_resource


def _no_such(server: str, lives: Sequence[ServerLife]) -> Outcome:
    names = [life.server.name for life in lives if life.offer.resources]
    there = f"There are: {', '.join(names)}." if names else "No server has any."
    return failed(f"There is no MCP server {server!r} with resources. {there}")
