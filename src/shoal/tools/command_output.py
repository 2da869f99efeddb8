"""Output of a command: head and tail for the model, the whole in a size-limited file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.core.errors import StateFileError
from shoal.tools.terminal_text import TerminalTextDecoder
from shoal.tools.tool_texts import format_tool_text

OUTPUT_LIMIT = 30_000
"""Maximum number of characters of output shown to the model."""
MAX_FILE_BYTES = 64 * 1024 * 1024
_CHUNK = 1 << 16
_FINAL_READ_BYTES = 1 << 20
"""Bytes read after the command has ended: the pipe's capacity, even if a child keeps writing."""


class CommandOutputCollector:
    """Collects bytes, at most `limit` characters in memory; `create_file` makes the file for the rest."""

    def __init__(self, create_file: Callable[[], Path], *, limit: int = OUTPUT_LIMIT) -> None:
        self.has_new_data = asyncio.Event()
        self.file: Path | None = None
        self.total = 0
        self._create_file = create_file
        self._limit = limit
        self._decoder = TerminalTextDecoder()
        self._head = ""
        self._tail = ""
        self._descriptor: int | None = None
        self._file_bytes_left = MAX_FILE_BYTES
        self._file_error = ""

    def add_bytes(self, data: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(data, final=final)
        if not text:
            return
        if self.total + len(text) > self._limit:
            self.start_file_output()
        self.total += len(text)
        half = self._limit // 2
        missing = half - len(self._head)
        self._write_to_file(text)
        self._head += text[:missing] if missing > 0 else ""
        self._tail = (self._tail + text[max(0, missing) :])[-half:]
        self.has_new_data.set()

    def start_file_output(self) -> None:
        """Write everything, from the first character on, to a file as well."""
        if self._descriptor is not None or self._file_error:
            return
        try:
            self.file = self._create_file()
            self._descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except (OSError, StateFileError) as error:
            self._file_error = str(error)
            return
        self._write_to_file(self._head + self._tail)

    def close(self) -> None:
        self.add_bytes(b"", final=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def get_last_line(self) -> str:
        lines = (self._tail or self._head).rstrip().rsplit("\n", 1)
        return lines[-1][-200:]

    def get_unfinished_line(self) -> str:
        """Return the text after the last line end, which may still grow."""
        return (self._tail or self._head).rpartition("\n")[2][-200:]

    @property
    def omitted_characters(self) -> int:
        """Number of characters between head and tail that are not in memory."""
        return self.total - len(self._head) - len(self._tail)

    @property
    def text(self) -> str:
        if not self.omitted_characters:
            return self._head + self._tail
        omission = self.format_omission(f"{self.omitted_characters:,} characters")
        return f"{self._head}\n\n{omission}\n\n{self._tail}"

    def format_omission(self, count: str) -> str:
        """Return a note that says how much is missing and where the full output is stored."""
        return format_tool_text("Bash", "omitted", count=count, location=self.describe_output_location())

    def describe_output_location(self) -> str:
        if self.file is None:
            return format_tool_text("Bash", "not_saved", error=self._file_error)
        if self._file_bytes_left <= 0:
            return format_tool_text("Bash", "partly_saved", megabytes=MAX_FILE_BYTES >> 20, file=self.file)
        return format_tool_text("Bash", "saved", file=self.file)

    def _write_to_file(self, text: str) -> None:
        if self._descriptor is None or self._file_bytes_left <= 0 or not text:
            return
        data = memoryview(text.encode())[: self._file_bytes_left]
        try:
            while data:
                written = os.write(self._descriptor, data)
                self._file_bytes_left -= written
                data = data[written:]
        except OSError as error:
            os.close(self._descriptor)
            self._descriptor = self.file = None
            self._file_error = str(error)


class CommandOutputPipe:
    """Pipe that a command writes into, read as it fills; `writer` is the command's end."""

    def __init__(self, on_data: Callable[[bytes], None]) -> None:
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read_available)
        self._is_open = True
        self._closed = asyncio.Event()

    def close_writer(self) -> None:
        """Close our copy of the writing end, once the command has its own."""
        os.close(self.writer)

    async def wait_closed(self, seconds: float) -> None:
        """Wait until no process holds the other end, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()

    def read_rest_and_close(self) -> bool:
        """Read what is left and close. Return True if a process still holds the other end."""
        if not self._is_open:
            return False
        for _ in range(_FINAL_READ_BYTES // _CHUNK):
            try:
                data = os.read(self._reader, _CHUNK)
            except BlockingIOError:
                break
            if not data:
                self._close_reader()
                return False
            self._on_data(data)
        self._close_reader()
        return True

    def _read_available(self) -> None:
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._on_data(data)
        else:
            self._close_reader()

    def _close_reader(self) -> None:
        self._is_open = False
        self._closed.set()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
