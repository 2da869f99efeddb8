"""Control client: sends commands to a live run of another process and reads its events."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from shoal.core.conversation.messages import Message
from shoal.core.errors import RunUnresponsive, ShoalError, StateFileError
from shoal.core.events import Event, UnknownJournalEvent
from shoal.runs.unix_sockets import connect_unix_socket
from shoal.wire.control_codec import (
    ControlOutput,
    EventSubscriptionGap,
    RunControlCommand,
    RunControlResponse,
    encode_control_request,
    encode_steering_message,
    parse_control_output,
)

_BUFFER = 1 << 20
_TRIES, _PAUSE = 50, 0.1


class RunControlClient:
    """Connection to a live run. Only one task at a time may use it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._request_count = 0
        self._received: deque[Event | EventSubscriptionGap | UnknownJournalEvent] = deque()

    @classmethod
    async def open(cls, path: Path) -> RunControlClient:
        """Connect. Raises `StateFileError` if nobody listens, `RunUnresponsive` if nobody accepts."""
        try:
            connection = await _connect_to_run_with_retries(path)
        except OSError as error:
            raise StateFileError(
                f"No live run responds at {path}: {error.strerror}. It has ended or was never started.",
                path=path,
            ) from error
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_BUFFER)
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def send_command(self, command: RunControlCommand) -> Any:
        """Send a command and return the answer; raises `ShoalError` with the reason of a refusal."""
        request_id = self._next_request_id()
        return await self._send_request(request_id, encode_control_request(request_id, command))

    async def send_steering_message(self, message: Message) -> None:
        request_id = self._next_request_id()
        await self._send_request(request_id, encode_steering_message(message, request_id))

    async def read_events(self) -> AsyncIterator[Event | EventSubscriptionGap | UnknownJournalEvent]:
        """Yield events after `SubscribeToEventsControlCommand`; the last may be an `EventSubscriptionGap`."""
        while True:
            while self._received:
                yield self._received.popleft()
            message = await self._read_control_message()
            if message is None:
                return
            if not isinstance(message, RunControlResponse):
                yield message

    def _next_request_id(self) -> str:
        self._request_count += 1
        return f"{self._request_count}"

    async def _send_request(self, request_id: str, line: bytes) -> Any:
        with suppress(ConnectionError):
            self._writer.write(line)
            await self._writer.drain()
        while True:
            message = await self._read_control_message()
            if message is None:
                raise ShoalError("The run ended before it answered.")
            if not isinstance(message, RunControlResponse):
                self._received.append(message)
            elif message.request_id == request_id:
                if message.error is not None:
                    raise ShoalError(message.error)
                return message.response

    async def _read_control_message(self) -> ControlOutput | None:
        while True:
            try:
                line = await self._read_line_of_any_length()
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            with suppress(ValueError):
                return parse_control_output(line)

    async def _read_line_of_any_length(self) -> bytes:
        """Read a line of any length: an event may carry a whole message with images."""
        parts: list[bytes] = []
        while True:
            try:
                parts.append(await self._reader.readuntil(b"\n"))
            except asyncio.LimitOverrunError as error:
                parts.append(await self._reader.readexactly(error.consumed))
            else:
                return b"".join(parts)


async def _connect_to_run_with_retries(path: Path) -> socket.socket:
    """Connect with retries: a stopped run accepts nobody, and its connection queue may be full."""
    for _ in range(_TRIES):
        try:
            return connect_unix_socket(path)
        except BlockingIOError:
            await asyncio.sleep(_PAUSE)
    raise RunUnresponsive(
        f"The run at {path} does not accept connections because its process is suspended or hung.", path=path
    )
