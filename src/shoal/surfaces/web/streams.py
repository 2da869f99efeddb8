"""Server-sent event streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import NamedTuple, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shoal.wire.content import dump

HEARTBEAT = 15.0
"""Seconds; proxies and phones drop silent connections."""
_BEAT = b": \n\n"
_FIRST = b"retry: 1000\n\n"

Source: TypeAlias = AsyncGenerator[bytes, None]


class Programme(NamedTuple):
    sources: Sequence[Source]
    ends: Sequence[asyncio.Event]
    """When one of these is set, the stream ends."""


Scene: TypeAlias = AbstractAsyncContextManager[Programme]


def event(value: object, *, ident: int | None = None, kind: str = "") -> bytes:
    head = f"id: {ident}\n" if ident is not None else ""
    head += f"event: {kind}\n" if kind else ""
    # JSON contains no line breaks.
    return b"%bdata: %b\n\n" % (head.encode(), dump(value))


class _Over(Exception):
    """The stream ends: the page or the server is gone."""


class EventStream(Response):
    """Sends the events of its sources until the page is gone or an end event is set.

    A page that reads slowly blocks only its own sources.
    """

    media_type = "text/event-stream"

    def __init__(self, scene: Scene) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._scene = scene

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._scene as programme:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            telling = _Telling(send)
            await telling.tell(_FIRST)
            try:
                async with asyncio.TaskGroup() as tasks:
                    for source in programme.sources:
                        tasks.create_task(telling.all_of(source))
                    tasks.create_task(telling.beat())
                    tasks.create_task(_gone(receive))
                    for end in programme.ends:
                        tasks.create_task(_set(end))
            except* _Over:
                pass
        await send({"type": "http.response.body", "body": b""})


class _Telling:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._turn = asyncio.Lock()

    async def tell(self, part: bytes) -> None:
        async with self._turn:
            await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def all_of(self, source: Source) -> None:
        # Closed here, not by the garbage collector: it may hold a connection to a run.
        async with aclosing(source):
            async for part in source:
                await self.tell(part)

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            await self.tell(_BEAT)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise _Over


async def _set(end: asyncio.Event) -> None:
    await end.wait()
    raise _Over
