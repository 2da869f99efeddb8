"""What a command writes: its first and last part for the model, all of it, within bounds, in a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.tools.plaintext import PlainText

LIMIT = 30_000
"""Characters of an output that a model is given."""
LARGEST_FILE = 64 * 1024 * 1024
_CHUNK = 1 << 16
_LAST_READ = 1 << 20
"""Bytes taken after the command ended: what the pipe can hold, even where a survivor goes on writing."""


class Output:
    """Collects bytes, `limit` characters in memory whatever comes; `keep` makes the file for the rest."""

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
        """From now on everything, from the first character, is also in a file."""
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
        """What stands behind the last line end, where more of it may come."""
        return (self._tail or self._head).rpartition("\n")[2][-200:]

    @property
    def cut(self) -> int:
        """Characters between the first part and the last that are not in memory."""
        return self.total - len(self._head) - len(self._tail)

    @property
    def text(self) -> str:
        if not self.cut:
            return self._head + self._tail
        mark = f"[… {self.cut:,} characters are cut out here; {self.where()} …]"
        return f"{self._head}\n\n{mark}\n\n{self._tail}"

    def where(self) -> str:
        """Where the whole is to be found, as far as it is."""
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
    """The pipe a command writes into, read as it fills; `writer` is for the command."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)
        self._open = True
        self._closed = asyncio.Event()

    def handed_over(self) -> None:
        """The command has its own copy of the writing end."""
        os.close(self.writer)

    async def let_go(self, patience: float) -> None:
        """Wait until no process holds the other end, as long as `patience` in seconds lasts."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._closed.wait()

    def finish(self) -> bool:
        """Take what is left and close; whether some process still holds the other end."""
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
