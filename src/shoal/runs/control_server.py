"""Control server of a live run: commands, steering and the event stream over a private Unix socket."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeAlias

from shoal.core.conversation.messages import Message
from shoal.core.errors import ShoalError
from shoal.core.events import Event, TextStreamed, ToolProgressed
from shoal.runs.unix_sockets import open_unix_listener
from shoal.wire.control_codec import (
    InvalidControlRequestError,
    RunControlCommand,
    RunControlRequest,
    SubscribeToEventsControlCommand,
    encode_control_error,
    encode_control_success,
    encode_event_for_subscriber,
    encode_subscription_gap,
    parse_control_request,
)

MAX_LINE_BYTES = 1 << 20
MAX_CONNECTIONS = 32
DELTA_BACKLOG_BYTES = 1 << 20
"""Backlog in bytes above which a subscriber gets no more deltas."""
MAX_BACKLOG_BYTES = 4 << 20
"""Backlog in bytes above which a subscriber is disconnected."""

DRAIN_SECONDS = 0.5
"""Seconds that subscribers have to read the last events of a run."""

HandleCommand: TypeAlias = Callable[[RunControlCommand], Awaitable[Any]]
SteerRun: TypeAlias = Callable[[Message], None]


class RunControlServer:
    """Context manager for the length of a run. No client can block the run.

    Clients can connect as soon as it is entered, but they are served only after `start_serving`.

    `handle` answers every command except subscribe; its exceptions go to the client. `position` returns the
    current offset of the journal.
    """

    def __init__(
        self, path: Path, *, handle: HandleCommand, steer: SteerRun, position: Callable[[], int]
    ) -> None:
        self.path = path
        self._handle = handle
        self._steer = steer
        self._position = position
        self._published_offset: int
        """Offset of the journal after the last published event; set when somebody subscribes."""
        self._clients: set[_RunControlClientSendQueue] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._tasks = asyncio.TaskGroup()
        self._accepting: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None

    async def __aenter__(self) -> Self:
        self._listener = open_unix_listener(self.path)
        await self._tasks.__aenter__()
        return self

    def start_serving(self) -> None:
        """Serve the clients that are waiting, and those that follow."""
        assert self._listener is not None
        self._accepting = self._tasks.create_task(self._accept_clients(self._listener))

    async def __aexit__(self, *_: object) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
        self.path.unlink(missing_ok=True)
        for client in self._clients:
            client.finish_sending()
        if self._serving:
            await asyncio.wait(self._serving, timeout=DRAIN_SECONDS)
        for task in self._serving:
            task.cancel()
        try:
            # The group does not see the run's error: it would wrap it, and callers expect it unwrapped.
            await self._tasks.__aexit__(None, None, None)
        finally:
            if self._listener is not None:
                self._listener.close()

    def publish_event(self, event: Event) -> None:
        """Publish an event without waiting; a journaled event is already in the journal."""
        if not self._clients:
            return
        subscribers = [client for client in self._clients if client.subscribed]
        if not subscribers:
            return
        offset_before, self._published_offset = self._published_offset, self._position()
        line = encode_event_for_subscriber(event)
        is_delta = isinstance(event, TextStreamed | ToolProgressed)
        for client in subscribers:
            client.send_event(line, before=offset_before, is_delta=is_delta)

    async def _accept_clients(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:
                # For example out of file descriptors: the run continues, and accepting is retried.
                await asyncio.sleep(0.1)
                continue
            if len(self._serving) >= MAX_CONNECTIONS:
                connection.close()
                continue
            task = self._tasks.create_task(self._serve_connection(connection))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve_connection(self, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE_BYTES)
            await self._exchange_with_client(reader, _RunControlClientSendQueue(writer))
        except Exception:  # noqa: BLE001 - a disconnecting client must not end the run
            return
        finally:
            connection.close()

    async def _exchange_with_client(
        self, reader: asyncio.StreamReader, client: _RunControlClientSendQueue
    ) -> None:
        self._clients.add(client)
        try:
            async with asyncio.TaskGroup() as tasks:
                read_task = tasks.create_task(self._read_and_answer_requests(reader, client))
                await client.write_queued_lines()
                read_task.cancel()
        finally:
            self._clients.discard(client)
            client.abort()

    async def _read_and_answer_requests(
        self, reader: asyncio.StreamReader, client: _RunControlClientSendQueue
    ) -> None:
        try:
            while line := await _read_bounded_line(reader):
                client.send_answer(await self._answer_request_line(line, client))
        finally:
            client.finish_sending()

    async def _answer_request_line(self, line: bytes, client: _RunControlClientSendQueue) -> bytes:
        if len(line) >= MAX_LINE_BYTES:
            return encode_control_error("", f"a line may have at most {MAX_LINE_BYTES} bytes")
        try:
            request = parse_control_request(line)
        except InvalidControlRequestError as error:
            return encode_control_error(error.request_id, str(error))
        try:
            if isinstance(request, RunControlRequest):
                return encode_control_success(
                    request.request_id, await self._execute_command(request.command, client)
                )
            self._steer(request.message)
        except ShoalError as error:
            return encode_control_error(request.request_id, str(error))
        except Exception as error:  # noqa: BLE001 - a client's command must not end the run
            return encode_control_error(request.request_id, f"{type(error).__name__}: {error}")
        return encode_control_success(request.request_id, None) if request.request_id else b""

    async def _execute_command(self, command: RunControlCommand, client: _RunControlClientSendQueue) -> Any:
        if not isinstance(command, SubscribeToEventsControlCommand):
            return await self._handle(command)
        if not any(other.subscribed for other in self._clients):
            self._published_offset = self._position()
        client.subscribed = True
        return {"offset": self._published_offset}


class _RunControlClientSendQueue:
    """Bounded send queue of one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.subscribed = False
        self._writer = writer
        self._waiting: deque[tuple[bytes, int | None]] = deque()
        """Lines, each with the journal offset before its event; None for an answer."""
        self._size = 0
        self._ending = False
        self._wakeup = asyncio.Event()

    def send_event(self, line: bytes, *, before: int, is_delta: bool) -> None:
        if self._ending or (is_delta and self._size + len(line) > DELTA_BACKLOG_BYTES):
            return
        if self._waiting and self._size + len(line) > MAX_BACKLOG_BYTES:
            # The oldest event it has not received tells where it must continue reading.
            first_offset = next((at for _, at in self._waiting if at is not None), before)
            self._waiting.clear()
            self._size = 0
            self._enqueue_line(encode_subscription_gap(first_offset), first_offset)
            self.subscribed = False
            self.finish_sending()
            return
        self._enqueue_line(line, before)

    def send_answer(self, line: bytes) -> None:
        if self._waiting and self._size + len(line) > MAX_BACKLOG_BYTES:
            self.finish_sending()  # it sends requests without reading answers
        elif line and not self._ending:
            self._enqueue_line(line, None)

    def finish_sending(self) -> None:
        """Send the queued lines, then end."""
        self._ending = True
        self._wakeup.set()

    def abort(self) -> None:
        self._writer.transport.abort()

    def _enqueue_line(self, line: bytes, before: int | None) -> None:
        self._waiting.append((line, before))
        self._size += len(line)
        self._wakeup.set()

    async def write_queued_lines(self) -> None:
        while self._waiting or not self._ending:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._waiting:
                line, _ = self._waiting.popleft()
                self._size -= len(line)
                self._writer.write(line)
                await self._writer.drain()
        self._writer.close()
        await self._writer.wait_closed()


async def _read_bounded_line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; only the beginning of one that is too long. Empty at the end."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error_at_end:
        return error_at_end.partial
    except asyncio.LimitOverrunError:
        beginning = await reader.read(MAX_LINE_BYTES)
        while beginning:
            try:
                await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                pass
            except asyncio.LimitOverrunError as error:
                await reader.readexactly(error.consumed)
                continue
            break
        return beginning.ljust(MAX_LINE_BYTES)
