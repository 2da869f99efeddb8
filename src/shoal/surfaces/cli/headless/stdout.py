"""Standard output for programs: whole lines of bytes, written without blocking the loop."""

from __future__ import annotations

import asyncio
import os
import select

from shoal.core.errors import ShoalError

ATOMIC_WRITE_SIZE = 4096
"""Bytes that a writable pipe accepts without blocking (PIPE_BUF on Linux)."""


class StdoutReaderGoneError(ShoalError):
    """Raised if nobody reads the output."""


class StdoutWriteError(ShoalError):
    """Raised if the output cannot be written."""


class AsyncStdoutWriter:
    """Writes when the reader is ready, so that signals and deadlines are served while it is not.

    The descriptor stays in blocking mode: it may be a terminal that other programs share.
    """

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._lock = asyncio.Lock()

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._fd)

    async def write(self, data: bytes) -> None:
        async with self._lock:
            rest = memoryview(data)
            while rest:
                if not self._poll.poll(0):
                    await self._wait_until_writable()
                rest = rest[self._write_some(rest[:ATOMIC_WRITE_SIZE]) :]

    def _write_some(self, piece: memoryview) -> int:
        try:
            return os.write(self._fd, piece)
        except BrokenPipeError as error:
            raise StdoutReaderGoneError("standard output is closed") from error
        except OSError as error:
            raise StdoutWriteError(f"Cannot write to standard output: {error.strerror}.") from error

    async def _wait_until_writable(self) -> None:
        loop = asyncio.get_running_loop()
        writable_event = asyncio.Event()
        loop.add_writer(self._fd, writable_event.set)
        try:
            await writable_event.wait()
        finally:
            loop.remove_writer(self._fd)
