"""The lead's end of a socket to a process that starts others: sends orders with descriptors."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any


class GuardianOrderChannel:
    """One JSON object per line, both ways. `on_end` is called once, when the other end is gone."""

    def __init__(
        self, end: socket.socket, on_message: Callable[[dict[str, Any]], None], on_end: Callable[[], None]
    ) -> None:
        self._socket = end
        self._socket.setblocking(False)  # noqa: FBT003
        self._on_message = on_message
        self._on_end = on_end
        self._outbox: deque[tuple[memoryview, list[int]]] = deque()
        self._inbox = b""
        self._closed = False
        self._gone = asyncio.Event()
        self.is_finishing = False
        """True if the other side was asked to end everything."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read_available_messages)

    @property
    def is_open(self) -> bool:
        """True while orders are accepted."""
        return not self._closed and not self.is_finishing

    def send_order(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send an order in sequence, as fast as it is read; never blocks, never sends half a message."""
        if self._closed:
            return
        # The standard json module encodes names that are not UTF-8 as surrogates.
        line = memoryview(json.dumps(message).encode() + b"\n")
        self._outbox.append((line, [os.dup(fd) for fd in descriptors]))
        self._write_pending_orders()

    async def make_peer_end_everything(self, deadline: AbstractAsyncContextManager[object]) -> bool:
        """Make the other side end everything; return False if the deadline passes first."""
        if not self._closed and not self.is_finishing:
            self.is_finishing = True
            # Half-closed: the other side sees the end, and its own end is still visible here.
            with suppress(OSError):  # already gone, which the reader is about to see
                self._socket.shutdown(socket.SHUT_WR)
        try:
            async with deadline:
                await self._gone.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for _, descriptors in self._outbox:
            for fd in descriptors:
                os.close(fd)
        self._outbox.clear()
        self._gone.set()
        self._on_end()

    def _write_pending_orders(self) -> None:
        try:
            while self._outbox:
                line, descriptors = self._outbox[0]
                sent = (
                    socket.send_fds(self._socket, [line], descriptors)
                    if descriptors
                    else self._socket.send(line)
                )
                for fd in descriptors:
                    os.close(fd)
                if sent < len(line):
                    self._outbox[0] = (line[sent:], [])
                else:
                    self._outbox.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._write_pending_orders)
        except OSError:
            self.close()
        else:
            self._loop.remove_writer(self._socket)

    def _read_available_messages(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        for line in lines:
            self._on_message(json.loads(line))
        if not data:
            self.close()


def redecode_as_utf8(text: str) -> str:
    """Return the same bytes, decoded for a process that uses UTF-8 regardless of our locale."""
    return os.fsencode(text).decode("utf-8", "surrogateescape")
