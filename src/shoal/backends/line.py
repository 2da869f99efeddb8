"""The line between a lead and a teammate's process: whole messages over a stream socket, in order."""

from __future__ import annotations

import asyncio
import socket
from collections import deque

LIMIT = 64 << 20
"""Bytes of one message; a longer one is refused here, and breaks the line there."""
_PREFIX = 4
_CHUNK = 1 << 18
_AHEAD = 1 << 20
"""Bytes of whole messages that are taken in before anyone asks for them."""


class SocketLine:
    """One end; made inside the running event loop, and the socket is its own from then on."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)  # noqa: FBT003
        self._loop = asyncio.get_running_loop()
        self._outbox: deque[memoryview] = deque()
        self._inbox = bytearray()
        self._messages: deque[bytes] = deque()
        self._ahead = 0
        self._news = asyncio.Event()
        self._sent = asyncio.Event()
        self._sent.set()
        self._ended = False
        """No message will be heard any more."""
        self._deaf = False
        """No message can be sent any more."""
        self._paused = False
        self._loop.add_reader(self._socket, self._read)

    @classmethod
    def inherited(cls, fd: int) -> SocketLine:
        """In the process of a teammate: from the descriptor it was started with."""
        return cls(socket.socket(fileno=fd))

    def send(self, message: bytes) -> None:
        """Never waits; to one whose other end is gone it does nothing. ValueError for one over `LIMIT`."""
        if len(message) > LIMIT:
            raise ValueError(f"A message of {len(message)} bytes is longer than a line takes ({LIMIT}).")
        if self._deaf:
            return
        self._outbox.append(memoryview(len(message).to_bytes(_PREFIX, "big") + message))
        if self._sent.is_set():
            self._write()

    async def sent(self) -> None:
        """Until the system has everything that was sent; to be awaited before a process ends."""
        await self._sent.wait()

    async def receive(self) -> bytes | None:
        """The next message; None when the other end is gone. A message cut short by that is dropped."""
        while not self._messages:
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        message = self._messages.popleft()
        self._ahead -= len(message)
        if self._paused and not self._ended and self._ahead < _AHEAD:
            self._paused = False
            self._loop.add_reader(self._socket, self._read)
        return message

    def close(self) -> None:
        """What was sent before still goes out, as long as the other end takes it and the loop runs."""
        self._messages.clear()
        self._stop_reading()
        if self._sent.is_set():
            self._socket.close()
        self._deaf = True

    def _write(self) -> None:
        try:
            while self._outbox:
                sent = self._socket.send(self._outbox[0])
                if sent < len(self._outbox[0]):
                    self._outbox[0] = self._outbox[0][sent:]
                else:
                    self._outbox.popleft()
        except BlockingIOError:
            self._sent.clear()
            self._loop.add_writer(self._socket, self._write)
            return
        except OSError:
            self._outbox.clear()
            self._deaf = True
        if not self._sent.is_set():
            self._loop.remove_writer(self._socket)
            self._sent.set()
        if self._deaf and self._ended:
            self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._inbox += data
        if not data or not self._take_whole_messages():
            self._stop_reading()
        elif self._ahead >= _AHEAD:
            self._paused = True
            self._loop.remove_reader(self._socket)

    def _take_whole_messages(self) -> bool:
        """False where what comes is no message."""
        start = 0
        while (body := start + _PREFIX) <= len(self._inbox):
            size = int.from_bytes(self._inbox[start:body], "big")
            if size > LIMIT:
                return False
            if len(self._inbox) < body + size:
                break
            self._messages.append(bytes(self._inbox[body : body + size]))
            self._ahead += size
            start = body + size
        del self._inbox[:start]
        if self._messages:
            self._news.set()
        return True

    def _stop_reading(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._inbox.clear()
        self._loop.remove_reader(self._socket)
        self._news.set()
