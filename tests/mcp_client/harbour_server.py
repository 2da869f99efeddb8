"""An MCP server made with the official SDK: `harbour_server.py [legacy|sse] [http PORT]`, else on stdio.

`legacy` supports only the protocol before 2026, with a handshake. `sse` sends all answers in one response.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import mcp_types as types
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

server = MCPServer("harbour")
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cf00000004000108e80bd40000000049454e44ae426082"
)


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
def tide(place: str, hour: int = 12) -> str:
    """How high the water stands."""
    return f"{place} at {hour}: {len(place)} m"


@server.tool()
def pid() -> str:
    """The number of this process."""
    return str(os.getpid())


@server.tool()
def where() -> str:
    """Where this process works, and a word of its environment."""
    return f"{Path.cwd()} {os.environ.get('HARBOUR_WORD', '-')}"


@server.tool()
def long(characters: int) -> str:
    """A long text."""
    return "begin " + "x" * characters + " end"


@server.tool(structured_output=False)
def picture() -> list[object]:
    """A text, a picture, and a link."""
    link = types.ResourceLink(type="resource_link", name="chart", uri="chart://north")
    return ["a lighthouse", Image(data=PNG, format="png"), link]


class Ship(BaseModel):
    name: str
    tons: int


@server.tool()
def ship() -> Ship:
    """Data."""
    return Ship(name="Rose", tons=40)


@server.tool()
def wreck() -> str:
    """Fails."""
    raise ValueError("it sank")


@server.tool()
async def sail(ctx: Context, steps: int) -> str:
    """Tells how far it is."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"mile {step + 1}")
    return "arrived"


@server.tool()
async def drift(began: str, cancelled: str) -> str:
    """Never ends; leaves a file when it begins and one when it is cancelled."""
    Path(began).write_text("began")
    try:
        await asyncio.Event().wait()
    finally:
        Path(cancelled).write_text("cancelled")
    return "never"


@server.tool()
def sink() -> str:
    """Ends this process in the middle of the call."""
    os._exit(3)


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool, and says so."""
    server.add_tool(lambda: "new", name="late", description="New.")
    await ctx.notify_tools_changed()
    return "grown"


class Berth(BaseModel):
    number: int = Field(description="Which berth")
    shade: bool = Field(default=False, description="In the shade")


async def ask_berth() -> Elicit[Berth]:
    return Elicit("Where shall she lie?", Berth)


async def ask_roots() -> ListRoots:
    return ListRoots()


async def ask_model() -> Sample:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Hm?"))
    return Sample([message], max_tokens=10)


@server.tool()
async def berth(said: Annotated[ElicitationResult[Berth], Resolve(ask_berth)]) -> str:
    """Asks the user."""
    return f"{said.action} {said.data.model_dump() if said.action == 'accept' else ''}".strip()


@server.tool()
async def roots(found: Annotated[types.ListRootsResult, Resolve(ask_roots)]) -> str:
    """The directories the client names."""
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def think(said: Annotated[types.CreateMessageResult, Resolve(ask_model)]) -> str:
    """Asks the client's model."""
    return "it thought"


@server.resource("chart://north")
def north() -> str:
    """The north."""
    return "rocks everywhere"


@server.prompt()
def greet(captain: str) -> str:
    """Greets a captain."""
    return f"Say hello to {captain}."


async def refuse_request(*_: Any) -> Any:
    raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found")


async def serve_legacy() -> None:
    inner = server._lowlevel_server
    async with stdio_server() as (read, write), inner.lifespan(inner) as state:
        options = inner.create_initialization_options()
        await serve_loop(inner, read, write, lifespan_state=state, init_options=options)


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.stderr.write("harbour is open\n")
    sys.stderr.flush()
    if legacy := "legacy" in words:
        words.remove("legacy")
        server._lowlevel_server.add_request_handler("server/discover", types.RequestParams, refuse_request)
    if words[:1] == ["sse"]:
        server.run("sse", port=int(words[2]), sse_path="/mcp")
    elif words[:1] == ["http"]:
        server.run("streamable-http", port=int(words[1]))
    elif legacy:
        asyncio.run(serve_legacy())
    else:
        server.run()
