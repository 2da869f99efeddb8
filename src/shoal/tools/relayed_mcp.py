"""Tools of MCP servers that run inside the controlling program, which relays the messages."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, TypeAlias

from msgspec import Struct

from shoal.core.conversation.messages import ImageBlock, TextBlock
from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.errors import ShoalError
from shoal.core.extensions.mcp_servers import McpServerStatus, format_mcp_tool_name
from shoal.tools.images import image_from_base64
from shoal.tools.mcp.client_context import ListedMcpTool, limit_server_instructions
from shoal.tools.tool_texts import format_tool_text

PROTOCOL_VERSION = "2025-06-18"
_MAX_PAGES = 100

MessageRelay: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Relays a JSON-RPC message to a server by name and returns its answer, which may be unusable."""


class RelayedMcpServerError(ShoalError):
    """The server refused a request or sent an invalid answer."""


class DrivingProgramMcpServer:
    """One MCP server inside the controlling program. Callers set the deadlines."""

    def __init__(self, name: str, relay: MessageRelay, *, version: str) -> None:
        self.name = name
        self._relay = relay
        self._version = version
        self._request_ids = count(1)
        self.instructions = ""

    async def list_tools(self) -> tuple[ListedMcpTool, ...]:
        """Initialize the server and return its tools. Raises `RelayedMcpServerError`."""
        client_info = {"name": "shoal", "version": self._version}
        parameters = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client_info}
        answer = await self._send_request("initialize", parameters)
        if isinstance(text := answer.get("instructions"), str):
            self.instructions = limit_server_instructions(text)
        await self._relay(self.name, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        if "tools" not in _mapping_or_empty(answer.get("capabilities")):
            return ()
        tools: list[ListedMcpTool] = []
        cursor: object = None
        for _ in range(_MAX_PAGES):
            page = await self._send_request("tools/list", {} if cursor is None else {"cursor": cursor})
            listed = page.get("tools")
            tools += [
                _parse_listed_mcp_tool(self.name, each)
                for each in (listed if isinstance(listed, list) else ())
                if isinstance(each, Mapping) and isinstance(each.get("name"), str)
            ]
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return tuple(tools)

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a tool. Raises `RelayedMcpServerError`."""
        return await self._send_request("tools/call", {"name": tool, "arguments": dict(arguments)})

    async def _send_request(self, method: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        request_id = next(self._request_ids)
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(parameters)}
        answer = await self._relay(self.name, message)
        if (error := answer.get("error")) is not None:
            reason = _mapping_or_empty(error).get("message") or error
            raise RelayedMcpServerError(
                format_tool_text("mcp", "request_refused", server=self.name, method=method, reason=reason)
            )
        if not isinstance(result := answer.get("result"), Mapping):
            raise RelayedMcpServerError(format_tool_text("mcp", "no_answer", server=self.name, method=method))
        return result


class RelayedMcpServer(Struct, frozen=True):
    """A server of the controlling program and the tools that it listed before the session started."""

    connection: DrivingProgramMcpServer
    status: McpServerStatus
    tools: tuple[ListedMcpTool, ...] = ()

    def create_tools(self, deadline: float | None) -> tuple[RelayedMcpTool, ...]:
        return tuple(RelayedMcpTool(self.connection, listed, deadline) for listed in self.tools)


class RelayedMcpTool:
    """Tool of a relayed server. Its read-only hint only affects call order; permission is still required."""

    def __init__(
        self, server: DrivingProgramMcpServer, listed: ListedMcpTool, deadline: float | None
    ) -> None:
        self.server = server
        self.listed = listed
        self.schema = listed.schema
        self.is_read_only = listed.reads_only
        self.is_concurrent = listed.reads_only
        self.deadline = deadline

    def __repr__(self) -> str:
        return f"<tool {self.schema.name}>"

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            return parse_relayed_tool_result(await self.server.call_tool(self.listed.name, arguments))
        except RelayedMcpServerError as error:
            return create_tool_error_output(str(error))


def parse_relayed_tool_result(result: Mapping[str, Any]) -> ToolOutput:
    content = result.get("content")
    blocks = tuple(_parse_mcp_content_block(each) for each in (content if isinstance(content, list) else ()))
    data = result.get("structuredContent")
    only_block = blocks[0] if len(blocks) == 1 else None
    return ToolOutput(
        content=only_block.text
        if isinstance(only_block, TextBlock)
        else blocks or ("" if data is None else _format_json(data)),
        is_error=result.get("isError") is True,
        data=data if isinstance(data, Mapping) else None,
    )


def _format_json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, indent=1)


def _parse_mcp_content_block(raw: object) -> TextBlock | ImageBlock:
    match raw:
        case {"type": "text", "text": str(text)}:
            return TextBlock(text=text)
        case {"type": "image", "data": str(data)} if (image := image_from_base64(data)) is not None:
            return image
        case {"type": "resource", "resource": {"text": str(text), "uri": uri}}:
            return TextBlock(text=f"[{uri}]\n{text}")
        case {"type": "resource_link", "uri": uri}:
            return TextBlock(text=f"[resource {_mapping_or_empty(raw).get('name') or uri} ({uri})]")
        case {"type": kind}:
            return TextBlock(text=f"[{kind} that cannot be shown]")
        case _:
            return TextBlock(text=f"[invalid content: {str(raw)[:100]}]")


def _parse_listed_mcp_tool(server: str, raw: Mapping[str, Any]) -> ListedMcpTool:
    schema = raw.get("inputSchema")
    return ListedMcpTool(
        name=raw["name"],
        schema=ToolSchema(
            name=format_mcp_tool_name(server, raw["name"]),
            description=str(raw.get("description") or ""),
            input_schema=schema if isinstance(schema, Mapping) else {"type": "object", "properties": {}},
        ),
        reads_only=_mapping_or_empty(raw.get("annotations")).get("readOnlyHint") is True,
    )


def _mapping_or_empty(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}
