"""The lead's end of the socket to its guardian: orders out, with descriptors; news in."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("guardian.py")
ENDING = 6.0
"""Seconds a guardian may take to end everything; it promises less."""


class GuardianLink:
    """One guardian, from its start to its end. `lost` is called once, when it is gone without being asked."""

    def __init__(self, hear: Callable[[dict[str, Any]], None], lost: Callable[[], None]) -> None:
        self._hear = hear
        self._lost = lost
        self._outbox: deque[tuple[memoryview, list[int]]] = deque()
        self._inbox = b""
        self._closing = False
        self._gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)  # noqa: FBT003
        with theirs:
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", "-E", "-X", "utf8", str(SCRIPT), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        self._loop.add_reader(self._socket, self._read)

    @property
    def pid(self) -> int:
        return self._guardian.pid

    @property
    def alive(self) -> bool:
        return not self._gone.is_set() and not self._closing

    def order(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sent in order, as fast as the guardian takes them; never blocks, never half a message."""
        if not self.alive:
            return
        # The standard json carries names that are not UTF-8, as surrogates.
        line = memoryview(json.dumps(message).encode() + b"\n")
        self._outbox.append((line, [os.dup(fd) for fd in descriptors]))
        self._write()

    def _write(self) -> None:
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
            self._loop.add_writer(self._socket, self._write)
        except OSError:
            self._end()
        else:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        if not data:
            self._end()

    def _end(self) -> None:
        if self._gone.is_set():
            return
        self._gone.set()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for _, descriptors in self._outbox:
            for fd in descriptors:
                os.close(fd)
        self._outbox.clear()
        # Its socket is closed, so it is dead or about to be: this does not wait.
        self._guardian.kill()
        self._guardian.wait()
        if not self._closing:
            self._lost()

    def abandon(self) -> None:
        """Give up on a guardian that does not answer."""
        self._guardian.send_signal(signal.SIGKILL)
        self._end()

    async def close(self) -> None:
        """Have it end everything, and wait until it has."""
        if self._gone.is_set():
            return
        if not self._closing:
            self._closing = True
            # Half-closed: the guardian sees the end, and its own end is seen here.
            self._socket.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(ENDING):
                await self._gone.wait()
        except TimeoutError:
            self.abandon()
