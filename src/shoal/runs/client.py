"""Control client: sends commands to a live run of another process and reads its events."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from shoal.core.errors import RunHangs, ShoalError, StoreError
from shoal.core.events import Event
from shoal.core.messages import Message
from shoal.runs.sockets import connect
from shoal.wire.control import Command, Gap, Response, Told, read_told, request_line, steering_line
from shoal.wire.journal import Unknown

_BUFFER = 1 << 20
_TRIES, _PAUSE = 50, 0.1


class ControlClient:
    """Connection to a live run. Only one task at a time may use it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked = 0
        self._heard: deque[Event | Gap | Unknown] = deque()

    @classmethod
    async def open(cls, path: Path) -> ControlClient:
        """Connect. Raises `StoreError` if nobody listens, `RunUnresponsive` if no connection is accepted."""
        try:
            connection = await _let_in(path)
        except OSError as error:
            raise StoreError(
                f"No live run answers at {path}: {error.strerror}. It has ended, or never started.", path=path
            ) from error
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_BUFFER)
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def request(self, command: Command) -> Any:
        """Send a command and return the answer; raises `ShoalError` with the reason of a refusal."""
        request_id = self._next_id()
        return await self._ask(request_id, request_line(request_id, command))

    async def say(self, message: Message) -> None:
        request_id = self._next_id()
        await self._ask(request_id, steering_line(message, request_id))

    async def events(self) -> AsyncIterator[Event | Gap | Unknown]:
        """Yield the run's events after `Subscribe` until it ends; a `Gap` is the last."""
        while True:
            while self._heard:
                yield self._heard.popleft()
            told = await self._next()
            if told is None:
                return
            if not isinstance(told, Response):
                yield told

    def _next_id(self) -> str:
        self._asked += 1
        return f"{self._asked}"

    async def _ask(self, request_id: str, line: bytes) -> Any:
        with suppress(ConnectionError):
            self._writer.write(line)
            await self._writer.drain()
        while True:
            told = await self._next()
            if told is None:
                raise ShoalError("The run ended before it answered.")
            if not isinstance(told, Response):
                self._heard.append(told)
            elif told.request_id == request_id:
                if told.error is not None:
                    raise ShoalError(told.error)
                return told.response

    async def _next(self) -> Told | None:
        while True:
            try:
                line = await self._line()
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            with suppress(ValueError):
                return read_told(line)

    async def _line(self) -> bytes:
        """Read a line of any length: an event may carry a whole message with images."""
        parts: list[bytes] = []
        while True:
            try:
                parts.append(await self._reader.readuntil(b"\n"))
            except asyncio.LimitOverrunError as longer:
                parts.append(await self._reader.readexactly(longer.consumed))
            else:
                return b"".join(parts)


async def _let_in(path: Path) -> socket.socket:
    """Connect with retries: a stopped run accepts nobody, and its connection queue may be full."""
    for _ in range(_TRIES):
        try:
            return connect(path)
        except BlockingIOError:
            await asyncio.sleep(_PAUSE)
    raise RunHangs(f"The run at {path} lets nobody in: its process was stopped, or hangs.", path=path)
