"""Standard output for programs: whole lines of bytes, written without blocking the loop."""

from __future__ import annotations

import asyncio
import os
import select

from shoal.core.errors import ShoalError

ATOMIC = 4096
"""Bytes that a pipe which polls writable takes without blocking (PIPE_BUF on Linux)."""


class ReaderGone(ShoalError):
    """Raised if nobody reads the output any more."""


class OutputLost(ShoalError):
    """Raised if the output cannot be written."""


class Stdout:
    """Writes when the reader is ready, so that signals and deadlines are served while it is not.

    The descriptor stays in blocking mode: it may be a terminal that other programs share.
    """

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._whole = asyncio.Lock()

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._fd)

    async def write(self, data: bytes) -> None:
        async with self._whole:
            rest = memoryview(data)
            while rest:
                if not self._poll.poll(0):
                    await self._ready()
                rest = rest[self._some(rest[:ATOMIC]) :]

    def _some(self, piece: memoryview) -> int:
        try:
            return os.write(self._fd, piece)
        except BrokenPipeError as error:
            raise ReaderGone("nobody reads the output any more") from error
        except OSError as error:
            raise OutputLost(f"Standard output cannot be written: {error.strerror}.") from error

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._fd)
