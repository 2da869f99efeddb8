"""Helpers for tests of models: a model on a mock server, and a recorder of deltas."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from shoal.core.clock import Clock, SystemClock
from shoal.core.messages import Message, user
from shoal.core.ports import Model
from shoal.core.requests import Delta, Request, ToolSchema
from shoal.models.catalogue import card_of
from shoal.models.http import Deadlines
from shoal.models.providers import Access, make_model

READ = ToolSchema(
    name="Read",
    description="Read a file.",
    input_schema={
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
GREP = ToolSchema(
    name="Grep",
    description="Search files.",
    input_schema={"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
)


def anthropic_at(url: str, *, model: str = "claude-sonnet-4-5", **options: Any) -> Model:
    return _made("anthropic", model, url, **options)


def openai_at(url: str, *, model: str = "gpt-5.5", **options: Any) -> Model:
    return _made("openai", model, url, **options)


def responses_at(url: str, *, model: str = "gpt-6-sol", **options: Any) -> Model:
    return _made("openai-responses", model, url, **options)


def _made(
    provider: str,
    model: str,
    url: str,
    *,
    clock: Clock | None = None,
    deadlines: Deadlines | None = None,
    card: Any = None,
    api_key: str | None = "sk-test",
    **access: Any,
) -> Model:
    reached = Access(base_url=url, api_key=api_key, deadlines=deadlines, **access)
    return make_model(provider, card or card_of(provider, model), reached, clock=clock or SystemClock())


def asking(*messages: Message | str, **fields: Any) -> Request:
    spoken = [user(message) if isinstance(message, str) else message for message in messages]
    return Request(system=fields.pop("system", "Be brief."), messages=spoken, **fields)


class Ear:
    """Records the deltas it receives."""

    def __init__(self) -> None:
        self.heard: list[Delta] = []
        self._more = asyncio.Event()

    async def __call__(self, delta: Delta) -> None:
        self.heard.append(delta)
        self._more.set()

    async def until(self, kind: type, count: int = 1) -> None:
        """Wait until that many deltas of a type were received."""
        async with asyncio.timeout(30):
            while len(self.of(kind)) < count:
                self._more.clear()
                await self._more.wait()

    def of(self, kind: type) -> list[Any]:
        return [delta for delta in self.heard if isinstance(delta, kind)]

    def text(self, kind: type) -> str:
        return "".join(delta.text for delta in self.of(kind))


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(serve: Serve, **options: Any) -> AsyncGenerator[int]:
    """Run a server and yield its port; at the end all connections are closed."""
    handlers: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        # Cancelled only by the end of this server; asyncio would report that as a failure.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for handler in filter(None, handlers):
            handler.cancel()
        await asyncio.gather(*filter(None, handlers))


@contextlib.asynccontextmanager
async def saying(*answers: bytes, hang_up: bool = True) -> AsyncGenerator[str]:
    """Serve each request the next of these raw responses, and yield the server's address."""
    remaining = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (answer := next(remaining, None)) is not None:
            await whole_request(reader)
            writer.write(answer)
            await writer.drain()
            if hang_up:
                break

    async with listening(serve) as port:
        yield f"http://127.0.0.1:{port}"


async def whole_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    await reader.readexactly(int(length.group(1)) if length else 0)
    return head


def http(body: bytes, *headers: str, status: int = 200) -> bytes:
    """Make a complete HTTP response."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def events(*data: Any) -> bytes:
    """Make server-sent events; data that is not text is encoded as JSON."""
    texts = [part if isinstance(part, str) else json.dumps(part) for part in data]
    return "".join(f"data: {text}\n\n" for text in texts).encode()
