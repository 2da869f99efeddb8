"""Sends one reply of a mock provider to the client, with its faults."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.usage import Usage
from shoal.testing.http import LAST_CHUNK, chunk, stream_head, whole
from shoal.testing.replies import (
    Answer,
    AnyFault,
    Body,
    Cut,
    Delay,
    Drip,
    Garbage,
    HttpError,
    Pings,
    Reset,
    Stall,
    StreamError,
)

T = TypeVar("T")


class Form(Protocol):
    """One provider's wire format."""

    path: str
    tool_fragment: bytes
    ping: bytes
    call_prefix: str

    def key_given(self, headers: Mapping[str, str], /) -> bool: ...
    def complaint(self, headers: Mapping[str, str], body: Body, /) -> str | None: ...
    def reported(self, usage: Usage, body: Body, /) -> Usage: ...
    def whole(self, answer: Answer, body: Body, number: int, usage: Usage, /) -> bytes: ...
    def events(self, answer: Answer, body: Body, number: int, usage: Usage, /) -> list[bytes]: ...
    def error(self, fault: HttpError, body: Body, number: int, /) -> bytes: ...
    def stream_error(self, fault: StreamError, /) -> bytes: ...
    def models(self, names: Sequence[str], /) -> bytes: ...


class Received(Struct, frozen=True, kw_only=True):
    """A request as received."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    raw: bytes
    connection: int
    at: float
    """time.monotonic()"""


class HungUp(Exception):
    """The client closed the connection, or a fault ends it."""


async def unless_hung_up(reader: asyncio.StreamReader, work: Awaitable[T]) -> T:
    """Return the result of the work; raises `ClientDisconnected` as soon as the client disconnects."""

    async def watch() -> None:
        # A client that waits for its reply sends nothing: anything readable is the end of the connection.
        await reader.read(1)
        raise HungUp

    given: list[T] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            given.append(await work)
            watching.cancel()
    except* HungUp:
        given.clear()
    # Not raised above: before Python 3.11.4 an exception raised there is wrapped in a group.
    if not given:
        raise HungUp
    return given[0]


class Outgoing:
    """Sends one reply, with its faults."""

    def __init__(
        self,
        form: Form,
        clock: Clock,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        received: Received,
    ) -> None:
        self._form = form
        self._clock = clock
        self._reader = reader
        self._writer = writer
        self._received = received
        self._ids = (("request-id", f"req_{received.number:024d}"),)
        self._drip: Drip | None = None
        self._settle: Callable[[], None] = lambda: None
        self.began = False
        self.settled = False

    async def send(self, answer: Answer, usage: Usage, settle: Callable[[], None]) -> None:
        """`on_settled` is called when nothing can fail any more and the client does not have the end yet."""
        self._settle = settle
        for fault in answer.faults:
            match fault:
                case Delay():
                    await unless_hung_up(self._reader, self._clock.sleep(fault.seconds))
                case Reset():
                    self._reset()
                case Drip():
                    self._drip = fault
                case HttpError():
                    await self._send_error(fault)
                    return
        body, number = self._received.body, self._received.number
        self.began = True
        if not body.get("stream"):
            self._settled()
            await self._write(whole(self._form.whole(answer, body, number, usage), headers=self._ids))
            return
        events = self._form.events(answer, body, number, usage)
        if answer.faults:
            await self._send_faulty(events, answer.faults)
            return
        self._settled()
        self._writer.write(stream_head(self._ids) + b"".join(map(chunk, events)) + LAST_CHUNK)
        await self._writer.drain()

    def _settled(self) -> None:
        self.settled = True
        self._settle()

    async def _send_error(self, fault: HttpError) -> None:
        headers = list(self._ids)
        if fault.retry_after is not None:
            headers.append(("retry-after", f"{fault.retry_after:g}"))
        content = self._form.error(fault, self._received.body, self._received.number)
        if fault.raw is not None:
            content = fault.raw.encode()
        await self._write(whole(content, status=fault.status, headers=headers))

    async def _send_faulty(self, events: list[bytes], faults: Sequence[AnyFault]) -> None:
        await self._write(stream_head(self._ids))
        pings = any(isinstance(fault, Pings) for fault in faults)
        for index in range(len(events) + 1):
            for fault in faults:
                if await self._strike(fault, index, events):
                    return
            if index < len(events):
                if index == len(events) - 1:
                    self._settled()
                await self._write(chunk(events[index]))
                if pings and index < len(events) - 1:
                    await self._write(chunk(self._form.ping))
        await self._write(LAST_CHUNK)

    async def _strike(self, fault: AnyFault, index: int, events: list[bytes]) -> bool:
        """Apply the fault before event `index`; return True if the stream is over."""
        match fault:
            case Garbage() if fault.after == index:
                await self._write(chunk(fault.line.encode() + b"\n\n"))
            case StreamError() if fault.after == index:
                await self._write(chunk(self._form.stream_error(fault)) + LAST_CHUNK)
                return True
            case Stall() if fault.after == index:
                await self._reader.read(1)
                raise HungUp
            case Cut() if self._cut_at(fault, events) == index:
                if fault.how == "clean":
                    await self._write(LAST_CHUNK)
                    return True
                if fault.how == "reset":
                    self._reset()
                raise HungUp
        return False

    def _cut_at(self, cut: Cut, events: list[bytes]) -> int:
        if not cut.in_tool_call:
            return cut.after
        fragments = [i for i, event in enumerate(events) if self._form.tool_fragment in event]
        if not fragments:
            raise ValueError("Cut(in_tool_call=True) needs an answer with a tool call.")
        return fragments[len(fragments) // 2]

    async def _write(self, content: bytes) -> None:
        if self._drip is None:
            self._writer.write(content)
            await self._writer.drain()
            return
        for start in range(0, len(content), self._drip.size):
            await self._clock.sleep(self._drip.seconds)
            self._writer.write(content[start : start + self._drip.size])
            await self._writer.drain()

    def _reset(self) -> None:
        sock = self._writer.get_extra_info("socket")
        # A linger time of zero turns the close into a reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        raise HungUp
