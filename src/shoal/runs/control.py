"""Control server of a live run: commands, steering and the event stream over a private Unix socket."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeAlias

from shoal.core.errors import ShoalError
from shoal.core.events import Event, Heard, ToolProgress
from shoal.core.messages import Message
from shoal.runs.sockets import listen
from shoal.wire.control import (
    Command,
    ControlRequest,
    NotUnderstood,
    Subscribe,
    error_line,
    event_line,
    gap_line,
    read_request,
    success_line,
)

LONGEST_LINE = 1 << 20
CONNECTIONS = 32
CROWDED = 1 << 20
"""Backlog in bytes above which a subscriber gets no more deltas."""
TOO_SLOW = 4 << 20
"""Backlog in bytes above which a subscriber is disconnected."""

LAST_WORDS = 0.5
"""Seconds that subscribers have to read the last events of a run."""

Handle: TypeAlias = Callable[[Command], Awaitable[Any]]
Steer: TypeAlias = Callable[[Message], None]


class ControlServer:
    """Context manager for the length of a run. No client can block the run.

    `handle` answers every command except subscribe; its exceptions go to the client. `position` returns the
    current offset of the journal.
    """

    def __init__(self, path: Path, *, handle: Handle, steer: Steer, position: Callable[[], int]) -> None:
        self.path = path
        self._handle = handle
        self._steer = steer
        self._position = position
        self._told_up_to = 0
        self._clients: set[_Client] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._tasks = asyncio.TaskGroup()
        self._accepting: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None

    async def __aenter__(self) -> Self:
        self._listener = listen(self.path)
        await self._tasks.__aenter__()
        self._accepting = self._tasks.create_task(self._accept(self._listener))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
        self.path.unlink(missing_ok=True)
        for client in self._clients:
            client.finish()
        if self._serving:
            await asyncio.wait(self._serving, timeout=LAST_WORDS)
        for task in self._serving:
            task.cancel()
        try:
            # The group does not see the run's error: it would wrap it, and callers expect it unwrapped.
            await self._tasks.__aexit__(None, None, None)
        finally:
            if self._listener is not None:
                self._listener.close()

    def publish(self, event: Event) -> None:
        """Publish an event without waiting; a journaled event is already in the journal."""
        subscribers = [client for client in self._clients if client.subscribed]
        if not subscribers:
            return
        before, self._told_up_to = self._told_up_to, self._position()
        line = event_line(event)
        is_delta = isinstance(event, Heard | ToolProgress)
        for client in subscribers:
            client.tell(line, before=before, is_delta=is_delta)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:
                # For example out of file descriptors: the run continues, and accepting is retried.
                await asyncio.sleep(0.1)
                continue
            if len(self._serving) >= CONNECTIONS:
                connection.close()
                continue
            task = self._tasks.create_task(self._serve(connection))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection, limit=LONGEST_LINE)
            await self._converse(reader, _Client(writer))
        except Exception:  # noqa: BLE001 - a disconnecting client must not end the run
            return
        finally:
            connection.close()

    async def _converse(self, reader: asyncio.StreamReader, client: _Client) -> None:
        self._clients.add(client)
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(reader, client))
                await client.deliver()
                reading.cancel()
        finally:
            self._clients.discard(client)
            client.abort()

    async def _read(self, reader: asyncio.StreamReader, client: _Client) -> None:
        try:
            while line := await _next_line(reader):
                client.answer(await self._answer(line, client))
        finally:
            client.finish()

    async def _answer(self, line: bytes, client: _Client) -> bytes:
        if len(line) >= LONGEST_LINE:
            return error_line("", f"a line may have {LONGEST_LINE} bytes")
        try:
            asked = read_request(line)
        except NotUnderstood as error:
            return error_line(error.request_id, str(error))
        try:
            if isinstance(asked, ControlRequest):
                return success_line(asked.request_id, await self._obey(asked.command, client))
            self._steer(asked.message)
        except ShoalError as error:
            return error_line(asked.request_id, str(error))
        except Exception as error:  # noqa: BLE001 - a client's command must not end the run
            return error_line(asked.request_id, f"{type(error).__name__}: {error}")
        return success_line(asked.request_id, None) if asked.request_id else b""

    async def _obey(self, command: Command, client: _Client) -> Any:
        if not isinstance(command, Subscribe):
            return await self._handle(command)
        if not any(other.subscribed for other in self._clients):
            self._told_up_to = self._position()
        client.subscribed = True
        return {"offset": self._told_up_to}


class _Client:
    """Bounded send queue of one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.subscribed = False
        self._writer = writer
        self._waiting: deque[tuple[bytes, int | None]] = deque()
        """Lines, each with the journal offset before its event; None for an answer."""
        self._size = 0
        self._ending = False
        self._news = asyncio.Event()

    def tell(self, line: bytes, *, before: int, is_delta: bool) -> None:
        if self._ending or (is_delta and self._size + len(line) > CROWDED):
            return
        if self._waiting and self._size + len(line) > TOO_SLOW:
            # The oldest event it has not received tells where it must continue reading.
            first = next((at for _, at in self._waiting if at is not None), before)
            self._waiting.clear()
            self._size = 0
            self._put(gap_line(first), first)
            self.subscribed = False
            self.finish()
            return
        self._put(line, before)

    def answer(self, line: bytes) -> None:
        if self._waiting and self._size + len(line) > TOO_SLOW:
            self.finish()  # it sends requests without reading answers
        elif line and not self._ending:
            self._put(line, None)

    def finish(self) -> None:
        """Send the queued lines, then end."""
        self._ending = True
        self._news.set()

    def abort(self) -> None:
        self._writer.transport.abort()

    def _put(self, line: bytes, before: int | None) -> None:
        self._waiting.append((line, before))
        self._size += len(line)
        self._news.set()

    async def deliver(self) -> None:
        while self._waiting or not self._ending:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                line, _ = self._waiting.popleft()
                self._size -= len(line)
                self._writer.write(line)
                await self._writer.drain()
        self._writer.close()
        await self._writer.wait_closed()


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; only the beginning of one that is too long. Empty at the end."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError:
        beginning = await reader.read(LONGEST_LINE)
        while beginning:
            try:
                await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                pass
            except asyncio.LimitOverrunError as more:
                await reader.readexactly(more.consumed)
                continue
            break
        return beginning.ljust(LONGEST_LINE)
