"""Incremental parser of server-sent events."""

from __future__ import annotations


class SseEventTooLongError(Exception):
    """A line or an event exceeds the limit."""


class SseParser:
    """Takes raw bytes and returns the data of complete events. Event names are ignored.

    Comments, unknown fields and lines without a field are skipped. An event that is not ended by a blank line
    when the stream ends is not an event.
    """

    __slots__ = ("_data", "_limit", "_rest", "_size")

    def __init__(self, *, limit: int = 32 << 20) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._buffer_incomplete_line(chunk)
            return []
        if self._rest:
            self._rest += chunk[:end]
            lines = bytes(self._rest).split(b"\n")
            self._rest.clear()
        else:
            lines = chunk[:end].split(b"\n")
        lines.pop()
        if end < len(chunk):
            self._buffer_incomplete_line(chunk[end:])
        return self._parse_lines(lines)

    def _buffer_incomplete_line(self, part: bytes) -> None:
        self._rest += part
        if len(self._rest) > self._limit:
            raise SseEventTooLongError(f"a line of more than {self._limit >> 20} MB")

    def _parse_lines(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                self._data, self._size = [], 0
                continue
            field, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
            if field == b"data":
                self._size += len(value)
                if self._size > self._limit:
                    raise SseEventTooLongError(f"an event of more than {self._limit >> 20} MB")
                self._data.append(value.removeprefix(b" "))
        return events
