"""Server-sent event streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import NamedTuple, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shoal.wire.json_codec import encode_json

HEARTBEAT = 15.0
"""Seconds; proxies and phones drop silent connections."""
MAX_CHUNK = 1 << 18
"""Bytes sent at once: the server copies each chunk."""
_BEAT = b": \n\n"
_FIRST = b"retry: 1000\n\n"

EncodedEvent: TypeAlias = tuple[bytes, ...]
"""Parts of an event, which are not joined: the first frame of a large board can be many megabytes."""
EventSource: TypeAlias = AsyncGenerator[EncodedEvent, None]


class ServerSentEventSources(NamedTuple):
    sources: Sequence[EventSource]
    end_events: Sequence[asyncio.Event]
    """When one of these is set, the stream ends."""


StreamContext: TypeAlias = AbstractAsyncContextManager[ServerSentEventSources]


def encode_server_sent_event(value: object, *, event_id: int | None = None, kind: str = "") -> EncodedEvent:
    head = f"id: {event_id}\n" if event_id is not None else ""
    head += f"event: {kind}\n" if kind else ""
    # JSON contains no line breaks.
    return f"{head}data: ".encode(), encode_json(value), b"\n\n"


class _ServerSentEventStreamEndedError(Exception):
    """The stream ends: the page or the server is gone."""


class ServerSentEventResponse(Response):
    """Sends the events of its sources until the page is gone or an end event is set.

    A page that reads slowly blocks only its own sources.
    """

    media_type = "text/event-stream"

    def __init__(self, context: StreamContext) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            # Only an ended answer frees the connection for the next request.
            await super().__call__(scope, receive, send)
            return
        async with self._context as events:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            writer = _ServerSentEventWriter(send)
            await writer.write_event((_FIRST,))
            try:
                async with asyncio.TaskGroup() as tasks:
                    for source in events.sources:
                        tasks.create_task(writer.write_source_events(source))
                    tasks.create_task(writer.send_heartbeats())
                    tasks.create_task(_raise_on_client_disconnect(receive))
                    for end in events.end_events:
                        tasks.create_task(_raise_when_end_event_set(end))
            except* _ServerSentEventStreamEndedError:
                pass
        await send({"type": "http.response.body", "body": b""})


class _ServerSentEventWriter:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._write_lock = asyncio.Lock()

    async def write_event(self, event: EncodedEvent) -> None:
        async with self._write_lock:
            if sum(map(len, event)) <= MAX_CHUNK:
                await self._send_chunk(b"".join(event))
                return
            for part in event:
                for start in range(0, len(part), MAX_CHUNK):
                    await self._send_chunk(part[start : start + MAX_CHUNK])

    async def _send_chunk(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def write_source_events(self, source: EventSource) -> None:
        # Closed here, not by the garbage collector: it may hold a connection to a run.
        async with aclosing(source):
            async for event in source:
                await self.write_event(event)

    async def send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            await self.write_event((_BEAT,))


async def _raise_on_client_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise _ServerSentEventStreamEndedError


async def _raise_when_end_event_set(end: asyncio.Event) -> None:
    await end.wait()
    raise _ServerSentEventStreamEndedError
