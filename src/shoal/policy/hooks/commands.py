"""A hook that is a command: run by the shell, with the event as JSON on its standard input."""

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
"""Bytes of what a hook writes that are looked at; the rest is read and dropped."""
_CHUNK = 1 << 16
_LAST_READ = 1 << 20
"""Bytes taken after the hook ended: what the pipe can hold, even where a child of it goes on writing."""
_GRACE = 1.0
_LINE = 4096
"""Bytes in which the first line has its end, if it is to mean something."""


class CommandRan(Struct, frozen=True, kw_only=True):
    status: int | None
    """None where it was ended for taking too long."""
    out: str
    err: str


class _Sink:
    """The pipe that a hook writes into: read as it fills, the beginning kept."""

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
        """As far as it is written, and whether that is all of it."""
        line, end, _ = self._kept[:_LINE].partition(b"\n")
        return line.decode(errors="replace"), bool(end) or len(line) == _LINE

    def close(self) -> None:
        """What is left is taken; a daemon that the hook left behind may still hold the other end."""
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
    """What hooks are run with."""

    processes: Processes
    clock: Clock
    env: Mapping[str, str]
    root: Path
    """The project, for an agent whose own directory is gone."""


class RunningCommand:
    """A command at work: whoever started it waits for it, or hands it to who does."""

    def __init__(self, process: Process, out: _Sink, err: _Sink, clock: Clock) -> None:
        self._process = process
        self._out = out
        self._err = err
        self._clock = clock
        self._looks = True
        self._patience: asyncio.Timeout | None = None
        self.let_go: LetGo | None = None
        """What its first line says, where that is that nobody is to wait for it."""
        out.grown = self._look
        self._look()

    async def waited(self, seconds: float) -> CommandRan | None:
        """Until it has ended, and so long at most; None where nobody is to wait for it any longer."""
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
        # Takes what is left, and that may be the first line.
        self._close()
        return None if self._is_let_go() else self._ran(status)

    async def ended(self, seconds: float) -> CommandRan:
        """The same, whatever its first line says."""
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
        """Into the first line, as it comes."""
        if not self._looks:
            return
        line, whole = self._out.first_line
        self.let_go = let_go(line)
        self._looks = not whole and self.let_go is None
        if self.let_go is not None and self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())


async def start_command(command: str, data: bytes, *, cwd: Path, shop: Shop) -> RunningCommand:
    """Raises `ProcessError` where it cannot be started. What it forks ends with the session at the latest."""
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
    """A file and not a pipe: a hook that does not read holds nobody up."""
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
    """An agent may have removed its own directory."""
    return cwd if cwd.is_dir() else root
