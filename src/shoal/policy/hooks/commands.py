"""Command hooks: run by the shell with the event as JSON on standard input."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.ports import Launch, Process, Processes
from shoal.wire.hook_output import LetGo, let_go

KEPT = 1 << 20
"""Bytes of a hook's output that are used; the rest is read and dropped."""
_CHUNK = 1 << 16
_LAST_READ = 1 << 20
"""Bytes read after the hook ended: the pipe capacity, even if one of its children keeps writing."""
_GRACE = 1.0
_LINE = 4096
"""Bytes within which the first line must end to be recognized."""


class CommandRan(Struct, frozen=True, kw_only=True):
    status: int | None
    """None if the command was stopped by the timeout."""
    out: str
    err: str


class _Sink:
    """Pipe for the output of a hook: read as it fills, only the beginning is kept."""

    def __init__(self) -> None:
        self.grown: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._take)
        self._open = True
        self._kept = bytearray()

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace")

    @property
    def first_line(self) -> tuple[str, bool]:
        """First line as far as it was written, and True if it is complete."""
        line, end, _ = self._kept[:_LINE].partition(b"\n")
        return line.decode(errors="replace"), bool(end) or len(line) == _LINE

    def close(self) -> None:
        """Read the remaining output; a daemon left by the hook may still hold the write end."""
        for _ in range(_LAST_READ // _CHUNK):
            if not self._open or not self._take():
                break
        if self._open:
            self._end()

    def _take(self) -> bool:
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._end()
        self._kept += data[: KEPT - len(self._kept)]
        if data and self.grown is not None:
            self.grown()
        return bool(data)

    def _end(self) -> None:
        self._open = False
        self._loop.remove_reader(self._reader)
        os.close(self._reader)


class Shop(Struct, frozen=True, kw_only=True):
    """Resources that hooks run with."""

    processes: Processes
    clock: Clock
    env: Mapping[str, str]
    root: Path
    """The project directory, used if the agent's own directory is gone."""


class RunningCommand:
    """Running hook command; its starter waits for it or hands it to the background."""

    def __init__(self, process: Process, out: _Sink, err: _Sink, clock: Clock) -> None:
        self._process = process
        self._out = out
        self._err = err
        self._clock = clock
        self._looks = True
        self._patience: asyncio.Timeout | None = None
        self.let_go: LetGo | None = None
        """Request in the first line to stop waiting for the command, or None."""
        out.grown = self._look
        self._look()

    async def waited(self, seconds: float) -> CommandRan | None:
        """Wait for the command to end within `seconds`; return None if it asks to run in the background."""
        if self._is_let_go():
            return None
        try:
            async with self._clock.deadline(seconds), asyncio.timeout(None) as self._patience:
                status = await self._process.wait()
        except TimeoutError:
            return None if self._is_let_go() else await self._stopped()
        except asyncio.CancelledError:
            await self._stopped()
            raise
        except BaseException:
            self._close()
            raise
        finally:
            self._patience = None
        # Reads the remaining output, which may contain the first line.
        self._close()
        return None if self._is_let_go() else self._ran(status)

    async def ended(self, seconds: float) -> CommandRan:
        """Wait for the command to end, regardless of its first line."""
        self._looks = False
        try:
            async with self._clock.deadline(seconds):
                status = await self._process.wait()
        except TimeoutError:
            return await self._stopped()
        except asyncio.CancelledError:
            await self._stopped()
            raise
        finally:
            self._close()
        return self._ran(status)

    def _is_let_go(self) -> bool:
        return self.let_go is not None

    async def _stopped(self) -> CommandRan:
        try:
            await self._process.stop(grace=_GRACE)
        finally:
            self._close()
        return self._ran(None)

    def _ran(self, status: int | None) -> CommandRan:
        out = self._out.text
        line, _, rest = out.partition("\n")
        return CommandRan(status=status, out=out if let_go(line) is None else rest, err=self._err.text)

    def _close(self) -> None:
        self._out.close()
        self._err.close()

    def _look(self) -> None:
        """Check the first line as it arrives."""
        if not self._looks:
            return
        line, whole = self._out.first_line
        self.let_go = let_go(line)
        self._looks = not whole and self.let_go is None
        if self.let_go is not None and self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())


async def start_command(command: str, data: bytes, *, cwd: Path, shop: Shop) -> RunningCommand:
    """Start a hook command; its children end with the session at the latest. Raises `ProcessError`."""
    out, err = _Sink(), _Sink()
    try:
        process = await _started(command, data, cwd, shop, (out.writer, err.writer))
    except BaseException:
        out.close()
        err.close()
        raise
    return RunningCommand(process, out, err, shop.clock)


async def _started(command: str, data: bytes, cwd: Path, shop: Shop, writers: tuple[int, int]) -> Process:
    try:
        with _given(data) as stdin:
            launch = Launch(
                argv=("/bin/sh", "-c", command),
                cwd=_standing(cwd, shop.root),
                env=shop.env,
                stdin=stdin,
                stdout=writers[0],
                stderr=writers[1],
            )
            return await shop.processes.start(launch)
    finally:
        for writer in writers:
            os.close(writer)


@contextmanager
def _given(data: bytes) -> Iterator[int]:
    """Provide the input as a file, not a pipe: a hook that does not read it blocks nobody."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("hook", os.MFD_CLOEXEC)
        try:
            _write(fd, data)
            yield fd
        finally:
            os.close(fd)
        return
    with tempfile.TemporaryFile() as file:
        _write(file.fileno(), data)
        yield file.fileno()


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)


def _standing(cwd: Path, root: Path) -> Path:
    """Return the project directory if the agent's own directory was removed."""
    return cwd if cwd.is_dir() else root
