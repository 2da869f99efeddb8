"""Filters a server's messages before the SDK validates them: one bad tool must not cost the others."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import anyio
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse

Incoming = SessionMessage | Exception
CHANNEL_NOTIFICATION = "notifications/claude/channel"
IGNORED_NOTIFICATIONS = frozenset({"notifications/message", "notifications/resources/updated"})
"""Notifications that nobody handles; a server may send any number of them."""


def is_ignored_mcp_notification(message: object) -> bool:
    return isinstance(message, JSONRPCNotification) and message.method in IGNORED_NOTIFICATIONS


class McpToolFilterTransport:
    """Transport that drops tools which would make the SDK reject the whole list.

    `on_push` receives channel messages, which the SDK does not know.
    """

    def __init__(
        self, transport: Transport, note: Callable[[str], None], on_push: Callable[[Any], None]
    ) -> None:
        self._transport = transport
        self._note = note
        self._on_push = on_push

    async def __aenter__(self) -> Any:
        read, write = await self._transport.__aenter__()
        return _McpToolFilterStream(read, self._note, self._on_push), write

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


class _McpToolFilterStream:
    def __init__(self, inner: Any, note: Callable[[str], None], on_push: Callable[[Any], None]) -> None:
        self._inner = inner
        self._note = note
        self._on_push = on_push

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Incoming:
        item: Incoming = await self._inner.receive()
        while isinstance(item, SessionMessage) and self._handle_or_ignore_message(item.message):
            item = await self._inner.receive()
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            result = item.message.result
            if isinstance(result.get("tools"), list):
                result["tools"] = [tool for tool in result["tools"] if self._is_usable_tool(tool)]
        return item

    def _handle_or_ignore_message(self, message: object) -> bool:
        """Return True if the message is handled here or ignored, and the SDK must not see it."""
        if isinstance(message, JSONRPCNotification) and message.method == CHANNEL_NOTIFICATION:
            self._on_push(message.params)
            return True
        return is_ignored_mcp_notification(message)

    def _is_usable_tool(self, tool: Any) -> bool:
        problem = find_mcp_tool_problem(tool)
        if problem:
            self._note(problem)
        return not problem

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> _McpToolFilterStream:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _McpToolFilterStream:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def find_mcp_tool_problem(tool: Any) -> str:
    """Return why the tool cannot be used, or "" if it can. Removes invalid optional fields."""
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
        return "it lists a tool without a name, which Shoal ignores."
    schema, name = tool.get("inputSchema"), tool["name"][:80]
    if not isinstance(schema, dict):
        return f"its tool {name!r} is ignored: its input schema is not an object."
    if schema.setdefault("type", "object") != "object":
        return f"its tool {name!r} is ignored: its input has the type {schema['type']!r} instead of object."
    for key in ("properties", "$defs", "definitions"):
        if not isinstance(schema.get(key, {}), dict):
            return f"its tool {name!r} is ignored: {key} in its schema is not an object."
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        return f"its tool {name!r} is ignored: `required` in its schema is not a list of names."
    # Results are passed on unvalidated, whatever schema the server declared.
    tool.pop("outputSchema", None)
    if not isinstance(tool.get("description", ""), str):
        tool.pop("description")
    if not isinstance(tool.get("annotations", {}), dict):
        tool.pop("annotations")
    return ""
