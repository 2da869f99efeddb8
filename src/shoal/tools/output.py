"""Output of a command: head and tail for the model, the whole in a size-limited file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.tools.plaintext import PlainText

LIMIT = 30_000
"""Characters of output shown to the model."""
LARGEST_FILE = 64 * 1024 * 1024
_CHUNK = 1 << 16
_LAST_READ = 1 << 20
"""Bytes read after the command has ended: the pipe's capacity, even if a child keeps writing."""


class Output:
    """Collects bytes, at most `limit` characters in memory; `create_file` makes the file for the rest."""

    def __init__(self, keep: Callable[[], Path], *, limit: int = LIMIT) -> None:
        self.grown = asyncio.Event()
        self.file: Path | None = None
        self.total = 0
        self._keep = keep
        self._limit = limit
        self._plain = PlainText()
        self._head = ""
        self._tail = ""
        self._descriptor: int | None = None
        self._room = LARGEST_FILE
        self._trouble = ""

    def add(self, data: bytes, *, final: bool = False) -> None:
        text = self._plain.take(data, final=final)
        if not text:
            return
        if self.total + len(text) > self._limit:
            self.open_file()
        self.total += len(text)
        half = self._limit // 2
        missing = half - len(self._head)
        self._write(text)
        self._head += text[:missing] if missing > 0 else ""
        self._tail = (self._tail + text[max(0, missing) :])[-half:]
        self.grown.set()

    def open_file(self) -> None:
        """Write everything, from the first character on, to a file as well."""
        if self._descriptor is not None or self._trouble:
            return
        try:
            self.file = self._keep()
            self._descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except (OSError, StoreError) as error:
            self._trouble = str(error)
            return
        self._write(self._head + self._tail)

    def close(self) -> None:
        self.add(b"", final=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def last_line(self) -> str:
        lines = (self._tail or self._head).rstrip().rsplit("\n", 1)
        return lines[-1][-200:]

    def open_line(self) -> str:
        """Return the text after the last line end, which may still grow."""
        return (self._tail or self._head).rpartition("\n")[2][-200:]

    @property
    def cut(self) -> int:
        """Number of characters between head and tail that are not in memory."""
        return self.total - len(self._head) - len(self._tail)

    @property
    def text(self) -> str:
        if not self.cut:
            return self._head + self._tail
        mark = f"[… {self.cut:,} characters are cut out here; {self.where()} …]"
        return f"{self._head}\n\n{mark}\n\n{self._tail}"

    def where(self) -> str:
        """Return a note that says where the whole output is stored."""
        if self.file is None:
            return f"the whole could not be kept: {self._trouble}"
        if self._room <= 0:
            return f"the first {LARGEST_FILE >> 20} MB are in {self.file}, the rest was dropped"
        return f"the whole output is in {self.file}"

    def _write(self, text: str) -> None:
        if self._descriptor is None or self._room <= 0 or not text:
            return
        data = memoryview(text.encode())[: self._room]
        try:
            while data:
                written = os.write(self._descriptor, data)
                self._room -= written
                data = data[written:]
        except OSError as error:
            os.close(self._descriptor)
            self._descriptor = self.file = None
            self._trouble = str(error)


class Pipe:
    """Pipe that a command writes into, read as it fills; `writer` is the command's end."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)
        self._open = True
        self._closed = asyncio.Event()

    def handed_over(self) -> None:
        """Close our copy of the writing end, once the command has its own."""
        os.close(self.writer)

    async def let_go(self, patience: float) -> None:
        """Wait until no process holds the other end, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._closed.wait()

    def finish(self) -> bool:
        """Read what is left and close. Return True if a process still holds the other end."""
        if not self._open:
            return False
        for _ in range(_LAST_READ // _CHUNK):
            try:
                data = os.read(self._reader, _CHUNK)
            except BlockingIOError:
                break
            if not data:
                self._close()
                return False
            self._take(data)
        self._close()
        return True

    def _read(self) -> None:
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._take(data)
        else:
            self._close()

    def _close(self) -> None:
        self._open = False
        self._closed.set()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
