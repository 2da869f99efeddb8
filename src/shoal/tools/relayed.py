"""Tools of MCP servers that run inside the controlling program, which relays the messages."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, TypeAlias

from shoal.core.errors import ShoalError
from shoal.core.mcp import tool_name
from shoal.core.messages import Image, Text
from shoal.core.requests import ToolSchema
from shoal.core.tools import Outcome, Site, failed
from shoal.tools.mcp.host import ListedTool
from shoal.tools.pictures import picture

PROTOCOL = "2025-06-18"
_MOST_PAGES = 100

Exchange: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Relays a JSON-RPC message to a server by name and returns its answer, which may be unusable."""


class ServerFailed(ShoalError):
    """The server refused a request or sent an invalid answer."""


class RelayedServer:
    """One MCP server inside the controlling program. Callers set the deadlines."""

    def __init__(self, name: str, exchange: Exchange, *, version: str) -> None:
        self.name = name
        self._exchange = exchange
        self._version = version
        self._numbers = count(1)

    async def open(self, deadline: float) -> tuple[RelayedTool, ...]:
        """Initialize the server and return its tools. Raises `RelayedServerError`."""
        about = {"name": "shoal", "version": self._version}
        given = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about}
        answer = await self._request("initialize", given)
        await self._exchange(self.name, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        if "tools" not in _mapping(answer.get("capabilities")):
            return ()
        tools: list[RelayedTool] = []
        cursor: object = None
        for _ in range(_MOST_PAGES):
            page = await self._request("tools/list", {} if cursor is None else {"cursor": cursor})
            listed = page.get("tools")
            tools += [
                RelayedTool(self, _listed(self.name, each), deadline)
                for each in (listed if isinstance(listed, list) else ())
                if isinstance(each, Mapping) and isinstance(each.get("name"), str)
            ]
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return tuple(tools)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a tool. Raises `RelayedServerError`."""
        return await self._request("tools/call", {"name": tool, "arguments": dict(arguments)})

    async def _request(self, method: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        number = next(self._numbers)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(parameters)}
        answer = await self._exchange(self.name, message)
        if (error := answer.get("error")) is not None:
            why = _mapping(error).get("message") or error
            raise ServerFailed(f"The MCP server {self.name} refused {method}: {why}")
        if not isinstance(result := answer.get("result"), Mapping):
            raise ServerFailed(f"The MCP server {self.name} answered {method} with nothing of use.")
        return result


class RelayedTool:
    """Tool of a relayed server. Its read-only hint only affects call order; permission is still required."""

    def __init__(self, server: RelayedServer, listed: ListedTool, deadline: float) -> None:
        self.server = server
        self.listed = listed
        self.schema = listed.schema
        self.reads_only = listed.reads_only
        self.side_by_side = listed.reads_only
        self.deadline: float | None = deadline

    def __repr__(self) -> str:
        return f"<tool {self.schema.name}>"

    async def run(self, arguments: Mapping[str, Any], site: Site) -> Outcome:
        try:
            return outcome(await self.server.call(self.listed.name, arguments))
        except ServerFailed as error:
            return failed(str(error))


def outcome(result: Mapping[str, Any]) -> Outcome:
    content = result.get("content")
    blocks = tuple(_block(each) for each in (content if isinstance(content, list) else ()))
    data = result.get("structuredContent")
    alone = blocks[0] if len(blocks) == 1 else None
    return Outcome(
        content=alone.text if isinstance(alone, Text) else blocks or ("" if data is None else _json(data)),
        is_error=result.get("isError") is True,
        data=data if isinstance(data, Mapping) else None,
    )


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, indent=1)


def _block(raw: object) -> Text | Image:
    match raw:
        case {"type": "text", "text": str(text)}:
            return Text(text=text)
        case {"type": "image", "data": str(data)} if (shown := picture(data)) is not None:
            return shown
        case {"type": "resource", "resource": {"text": str(text), "uri": uri}}:
            return Text(text=f"[{uri}]\n{text}")
        case {"type": "resource_link", "uri": uri}:
            return Text(text=f"[resource {_mapping(raw).get('name') or uri} ({uri})]")
        case {"type": kind}:
            return Text(text=f"[{kind} that cannot be shown]")
        case _:
            return Text(text=f"[content that is none: {str(raw)[:100]}]")


def _listed(server: str, raw: Mapping[str, Any]) -> ListedTool:
    schema = raw.get("inputSchema")
    return ListedTool(
        name=raw["name"],
        schema=ToolSchema(
            name=tool_name(server, raw["name"]),
            description=str(raw.get("description") or ""),
            input_schema=schema if isinstance(schema, Mapping) else {"type": "object", "properties": {}},
        ),
        reads_only=_mapping(raw.get("annotations")).get("readOnlyHint") is True,
    )


def _mapping(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}
