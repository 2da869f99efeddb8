"""Incremental parser of HTTP/1.1 responses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

_MAX_HEAD_BYTES = 64 * 1024
_MAX_LINE_BYTES = 4 * 1024
_MAX_LENGTH_DIGITS = 18
_HEXADECIMAL = re.compile(rb"[0-9A-Fa-f]{1,16}")


class MalformedHttpResponseError(Exception):
    """The server does not speak valid HTTP/1.1."""


class HttpResponseHead(Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str]
    """By lower-case name; repeated headers are joined with a comma."""
    keep_alive: bool


class HttpResponseParser:
    """Takes raw bytes and returns those of the body; `is_complete` is True once the response is whole."""

    __slots__ = ("_in_trailers", "_is_chunked", "_pending", "_remaining", "head", "is_complete")

    def __init__(self) -> None:
        self.head: HttpResponseHead | None = None
        self.is_complete = False
        self._pending = b""
        self._is_chunked = False
        self._in_trailers = False
        # Bytes still to come, of the body or the current chunk; None means "until the connection ends".
        self._remaining: int | None = 0

    def feed(self, data: bytes) -> bytes:
        if self.head is None:
            data = self._feed_head(data)
            if self.head is None:
                return b""
        if self.is_complete or not data:
            return b""
        if self._is_chunked:
            return self._feed_chunks(data)
        if self._remaining is None:
            return data
        body, self._remaining = data[: self._remaining], self._remaining - len(data)
        self.is_complete = self._remaining <= 0
        return body

    def handle_connection_end(self) -> bool:
        """Handle the end of the connection; return True if the response is complete."""
        if self.head is not None and not self._is_chunked and self._remaining is None:
            self.is_complete = True
        return self.is_complete

    def _feed_head(self, data: bytes) -> bytes:
        """Return the bytes after the head; interim responses (1xx) are skipped."""
        while True:
            data = self._pending + data
            self._pending = b""
            text, blank_line, rest = data.partition(b"\r\n\r\n")
            if not blank_line:
                if len(data) > _MAX_HEAD_BYTES:
                    raise MalformedHttpResponseError("the response header is too long")
                if data and not b"HTTP/1.".startswith(data[:7]):
                    raise MalformedHttpResponseError(f"it starts with {data[:40]!r}")
                self._pending = data
                return b""
            head = _parse_http_response_head(text)
            if head.status >= 200 or head.status == 101:
                self._begin_body(head)
                return rest
            data = rest

    def _begin_body(self, head: HttpResponseHead) -> None:
        self.head = head
        if head.status in (204, 304):
            self.is_complete = True
            return
        self._is_chunked = "chunked" in head.headers.get("transfer-encoding", "").lower()
        if self._is_chunked:
            return
        length = head.headers.get("content-length")
        if length is None:
            self._remaining = None
            return
        # A proxy that repeats the header sends "12, 12".
        digits = length.split(",")[0].strip()
        if not digits.isascii() or not digits.isdigit() or len(digits) > _MAX_LENGTH_DIGITS:
            raise MalformedHttpResponseError(f"its length is {length!r}")
        self._remaining = int(digits)
        self.is_complete = self._remaining == 0

    def _feed_chunks(self, data: bytes) -> bytes:
        if self._pending:
            data, self._pending = self._pending + data, b""
        body: list[bytes] = []
        position = 0
        while position < len(data) and not self.is_complete:
            remaining = self._remaining or 0
            if remaining > 2:
                piece = data[position : position + remaining - 2]
                body.append(piece)
                position += len(piece)
                self._remaining = remaining - len(piece)
            elif remaining:  # the line end after a chunk
                step = min(remaining, len(data) - position)
                position += step
                self._remaining = remaining - step
            else:
                end = data.find(b"\r\n", position)
                if end < 0:
                    if len(data) - position > _MAX_LINE_BYTES:
                        raise MalformedHttpResponseError("a chunk-size line is too long")
                    self._pending = data[position:]
                    break
                self._parse_chunk_size_line(data[position:end])
                position = end + 2
        return body[0] if len(body) == 1 else b"".join(body)

    def _parse_chunk_size_line(self, line: bytes) -> None:
        if self._in_trailers:
            self.is_complete = not line
            return
        digits = line.split(b";")[0].strip()
        # A sign would lead back to this line forever.
        if _HEXADECIMAL.fullmatch(digits) is None:
            raise MalformedHttpResponseError(f"{line[:40]!r} is not a chunk size")
        size = int(digits, 16)
        if size == 0:
            self._in_trailers = True
        else:
            self._remaining = size + 2


def _parse_http_response_head(text: bytes) -> HttpResponseHead:
    status_line, *lines = text.decode("latin-1").split("\r\n")
    version, _, rest = status_line.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
        raise MalformedHttpResponseError(f"it starts with {status_line[:40]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name = name.strip().lower()
        value = value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection if version == "HTTP/1.1" else "keep-alive" in connection
    return HttpResponseHead(status=int(code), headers=headers, keep_alive=keep_alive)
