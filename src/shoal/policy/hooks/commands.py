"""A hook that is a command: run by the shell, with the event as JSON on its standard input."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.ports import Launch, Process, Processes

KEPT = 1 << 20
"""Bytes of what a hook writes that are looked at; the rest is read and dropped."""
_CHUNK = 1 << 16
_LAST_READ = 1 << 20
"""Bytes taken after the hook ended: what the pipe can hold, even where a child of it goes on writing."""
_GRACE = 1.0


class CommandRan(Struct, frozen=True, kw_only=True):
    status: int | None
    """None where it was ended for taking too long."""
    out: str
    err: str


class _Sink:
    """The pipe that a hook writes into: read as it fills, the beginning kept."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._take)
        self._open = True
        self._kept = bytearray()

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace")

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


async def run_command(command: str, data: bytes, *, seconds: float, cwd: Path, shop: Shop) -> CommandRan:
    """Raises `ProcessError` where it cannot be started. What it forks ends with the session at the latest."""
    out, err = _Sink(), _Sink()
    try:
        process = await _started(command, data, cwd, shop, (out.writer, err.writer))
        try:
            async with shop.clock.deadline(seconds):
                status: int | None = await process.wait()
        except TimeoutError:
            status = None
            await process.stop(grace=_GRACE)
        except asyncio.CancelledError:
            await process.stop(grace=_GRACE)
            raise
    finally:
        out.close()
        err.close()
    return CommandRan(status=status, out=out.text, err=err.text)


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
