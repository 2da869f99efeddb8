"""Sends one reply of a mock provider to the client, with its faults."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.core.clock import Clock
from shoal.testing.http_messages import (
    LAST_CHUNK,
    encode_http_chunk,
    encode_http_response,
    encode_http_stream_head,
)
from shoal.testing.mock_replies import (
    AnyFault,
    ConnectionResetFault,
    CutStreamFault,
    DelayedReplyFault,
    GarbageLineFault,
    HttpErrorFault,
    MockReply,
    PingAfterEachEventFault,
    RequestBody,
    SlowStreamFault,
    StalledStreamFault,
    StreamErrorFault,
)

T = TypeVar("T")


class MockProviderApiFormat(Protocol):
    """One provider's wire format."""

    path: str
    tool_fragment: bytes
    ping: bytes
    call_prefix: str

    def has_api_key(self, headers: Mapping[str, str], /) -> bool: ...
    def find_request_error(self, headers: Mapping[str, str], body: RequestBody, /) -> str | None: ...
    def compute_reported_usage(self, usage: Usage, body: RequestBody, /) -> Usage: ...
    def encode_reply(self, answer: MockReply, body: RequestBody, number: int, usage: Usage, /) -> bytes: ...
    def encode_stream_events(
        self, answer: MockReply, body: RequestBody, number: int, usage: Usage, /
    ) -> list[bytes]: ...
    def encode_error(self, fault: HttpErrorFault, body: RequestBody, number: int, /) -> bytes: ...
    def encode_stream_error(self, fault: StreamErrorFault, /) -> bytes: ...
    def encode_model_list(self, names: Sequence[str], /) -> bytes: ...


class MockServerReceivedRequest(Struct, frozen=True, kw_only=True):
    """A request as received."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    raw: bytes
    connection: int
    at: float
    """time.monotonic()"""


class MockServerClientDisconnectedError(Exception):
    """The client closed the connection, or a fault ends it."""


async def await_unless_disconnected(reader: asyncio.StreamReader, work: Awaitable[T]) -> T:
    """Return the result of the work. Raises `MockServerClientDisconnectedError` if the client leaves."""

    async def raise_on_disconnect() -> None:
        # A client that waits for its reply sends nothing: anything readable is the end of the connection.
        await reader.read(1)
        raise MockServerClientDisconnectedError

    results: list[T] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            watch_task = tasks.create_task(raise_on_disconnect())
            results.append(await work)
            watch_task.cancel()
    except* MockServerClientDisconnectedError:
        results.clear()
    # Not raised above: before Python 3.11.4 an exception raised there is wrapped in a group.
    if not results:
        raise MockServerClientDisconnectedError
    return results[0]


class MockReplySender:
    """Sends one reply, with its faults."""

    def __init__(
        self,
        api_format: MockProviderApiFormat,
        clock: Clock,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        received: MockServerReceivedRequest,
        on_settled: Callable[[], None],
    ) -> None:
        """`on_settled` is called when nothing can fail any longer and the client lacks the end yet."""
        self._format = api_format
        self._clock = clock
        self._reader = reader
        self._writer = writer
        self._received = received
        self._ids = (("request-id", f"req_{received.number:024d}"),)
        self._drip: SlowStreamFault | None = None
        self._on_settled = on_settled
        self.has_begun = False
        self.is_settled = False

    async def send_reply(self, answer: MockReply, usage: Usage) -> None:
        for fault in answer.faults:
            match fault:
                case DelayedReplyFault():
                    await await_unless_disconnected(self._reader, self._clock.sleep(fault.seconds))
                case ConnectionResetFault():
                    self._reset_connection()
                case SlowStreamFault():
                    self._drip = fault
                case HttpErrorFault():
                    await self._send_http_error(fault)
                    return
        body, number = self._received.body, self._received.number
        self.has_begun = True
        if not body.get("stream"):
            self._mark_settled()
            await self._write_content(
                encode_http_response(
                    self._format.encode_reply(answer, body, number, usage), headers=self._ids
                )
            )
            return
        events = self._format.encode_stream_events(answer, body, number, usage)
        if answer.faults:
            await self._send_events_with_faults(events, answer.faults)
            return
        self._mark_settled()
        self._writer.write(
            encode_http_stream_head(self._ids) + b"".join(map(encode_http_chunk, events)) + LAST_CHUNK
        )
        await self._writer.drain()

    def _mark_settled(self) -> None:
        self.is_settled = True
        self._on_settled()

    async def _send_http_error(self, fault: HttpErrorFault) -> None:
        headers = list(self._ids)
        if fault.retry_after is not None:
            headers.append(("retry-after", f"{fault.retry_after:g}"))
        content = self._format.encode_error(fault, self._received.body, self._received.number)
        if fault.raw is not None:
            content = fault.raw.encode()
        await self._write_content(encode_http_response(content, status=fault.status, headers=headers))

    async def _send_events_with_faults(self, events: list[bytes], faults: Sequence[AnyFault]) -> None:
        await self._write_content(encode_http_stream_head(self._ids))
        has_pings = any(isinstance(fault, PingAfterEachEventFault) for fault in faults)
        for index in range(len(events) + 1):
            for fault in faults:
                if await self._apply_stream_fault(fault, index, events):
                    return
            if index < len(events):
                if index == len(events) - 1:
                    self._mark_settled()
                await self._write_content(encode_http_chunk(events[index]))
                if has_pings and index < len(events) - 1:
                    await self._write_content(encode_http_chunk(self._format.ping))
        await self._write_content(LAST_CHUNK)

    async def _apply_stream_fault(self, fault: AnyFault, index: int, events: list[bytes]) -> bool:
        """Apply the fault before event `index`; return True if the stream is over."""
        match fault:
            case GarbageLineFault() if fault.after == index:
                await self._write_content(encode_http_chunk(fault.line.encode() + b"\n\n"))
            case StreamErrorFault() if fault.after == index:
                await self._write_content(
                    encode_http_chunk(self._format.encode_stream_error(fault)) + LAST_CHUNK
                )
                return True
            case StalledStreamFault() if fault.after == index:
                await self._reader.read(1)
                raise MockServerClientDisconnectedError
            case CutStreamFault() if self._find_cut_index(fault, events) == index:
                if fault.how == "clean":
                    await self._write_content(LAST_CHUNK)
                    return True
                if fault.how == "reset":
                    self._reset_connection()
                raise MockServerClientDisconnectedError
        return False

    def _find_cut_index(self, cut: CutStreamFault, events: list[bytes]) -> int:
        if not cut.in_tool_call:
            return cut.after
        fragment_indexes = [i for i, event in enumerate(events) if self._format.tool_fragment in event]
        if not fragment_indexes:
            raise ValueError("Cut(in_tool_call=True) needs an answer with a tool call.")
        return fragment_indexes[len(fragment_indexes) // 2]

    async def _write_content(self, content: bytes) -> None:
        if self._drip is None:
            self._writer.write(content)
            await self._writer.drain()
            return
        for start in range(0, len(content), self._drip.size):
            await self._clock.sleep(self._drip.seconds)
            self._writer.write(content[start : start + self._drip.size])
            await self._writer.drain()

    def _reset_connection(self) -> None:
        sock = self._writer.get_extra_info("socket")
        # A linger time of zero turns the close into a reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        raise MockServerClientDisconnectedError
