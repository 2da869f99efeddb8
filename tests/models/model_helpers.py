"""Helpers for tests of models: a model on a mock server, and a recorder of deltas."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from shoal.core.clock import Clock, SystemClock
from shoal.core.conversation.messages import Message, user_message
from shoal.core.conversation.model_requests import ModelRequest, StreamDelta, ToolSchema
from shoal.core.ports import Model
from shoal.models.catalogue import get_model_card
from shoal.models.model_endpoint import ProviderHttpTimeouts
from shoal.models.providers import ProviderAccess, create_model

READ_SCHEMA = ToolSchema(
    name="Read",
    description="Read a file.",
    input_schema={
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
GREP_SCHEMA = ToolSchema(
    name="Grep",
    description="Search files.",
    input_schema={"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
)


def create_anthropic_model(url: str, *, model: str = "claude-sonnet-4-5", **options: Any) -> Model:
    return _create_model("anthropic", model, url, **options)


def create_openai_model(url: str, *, model: str = "gpt-5.5", **options: Any) -> Model:
    return _create_model("openai", model, url, **options)


def create_responses_model(url: str, *, model: str = "gpt-6-sol", **options: Any) -> Model:
    return _create_model("openai-responses", model, url, **options)


def _create_model(
    provider: str,
    model: str,
    url: str,
    *,
    clock: Clock | None = None,
    deadlines: ProviderHttpTimeouts | None = None,
    card: Any = None,
    api_key: str | None = "sk-test",
    **access: Any,
) -> Model:
    provider_access = ProviderAccess(base_url=url, api_key=api_key, deadlines=deadlines, **access)
    return create_model(
        provider, card or get_model_card(provider, model), provider_access, clock=clock or SystemClock()
    )


def make_request(*messages: Message | str, **fields: Any) -> ModelRequest:
    user_messages = [user_message(message) if isinstance(message, str) else message for message in messages]
    return ModelRequest(system=fields.pop("system", "Be brief."), messages=user_messages, **fields)


class DeltaRecorder:
    """Records the deltas it receives."""

    def __init__(self) -> None:
        self.deltas: list[StreamDelta] = []
        self._new_delta = asyncio.Event()

    async def __call__(self, delta: StreamDelta) -> None:
        self.deltas.append(delta)
        self._new_delta.set()

    async def wait_for_deltas(self, kind: type, count: int = 1) -> None:
        """Wait until that many deltas of a type were received."""
        async with asyncio.timeout(30):
            while len(self.list_deltas(kind)) < count:
                self._new_delta.clear()
                await self._new_delta.wait()

    def list_deltas(self, kind: type) -> list[Any]:
        return [delta for delta in self.deltas if isinstance(delta, kind)]

    def join_text(self, kind: type) -> str:
        return "".join(delta.text for delta in self.list_deltas(kind))


ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serve_connections(handle_connection: ConnectionHandler, **options: Any) -> AsyncGenerator[int]:
    """Run a server and yield its port; at the end all connections are closed."""
    handlers: set[asyncio.Task[None] | None] = set()

    async def track_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        # Cancelled only by the end of this server; asyncio would report that as a failure.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await handle_connection(reader, writer)
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()

    server = await asyncio.start_server(track_connection, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for handler in filter(None, handlers):
            handler.cancel()
        await asyncio.gather(*filter(None, handlers))


@contextlib.asynccontextmanager
async def serve_responses(*responses: bytes, close_connection: bool = True) -> AsyncGenerator[str]:
    """Serve each request the next of these raw responses, and yield the server's address."""
    remaining = iter(responses)

    async def send_next_response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (answer := next(remaining, None)) is not None:
            await read_whole_request(reader)
            writer.write(answer)
            await writer.drain()
            if close_connection:
                break

    async with serve_connections(send_next_response) as port:
        yield f"http://127.0.0.1:{port}"


async def read_whole_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    await reader.readexactly(int(length.group(1)) if length else 0)
    return head


def make_response(body: bytes, *headers: str, status: int = 200) -> bytes:
    """Make a complete HTTP response."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def make_events(*data: Any) -> bytes:
    """Make server-sent events; data that is not text is encoded as JSON."""
    texts = [part if isinstance(part, str) else json.dumps(part) for part in data]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def make_assistant_message(*blocks: Any) -> Message:
    return Message(role="assistant", content=blocks)


def make_user_message(*blocks: Any) -> Message:
    return Message(role="user", content=blocks)
