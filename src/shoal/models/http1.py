"""Incremental parser of HTTP/1.1 responses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

_HEAD_LIMIT = 64 * 1024
_LINE_LIMIT = 4 * 1024
_MOST_DIGITS = 18
_HEXADECIMAL = re.compile(rb"[0-9A-Fa-f]{1,16}")


class Malformed(Exception):
    """The server does not speak valid HTTP/1.1."""


class Head(Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str]
    """By lower-case name; repeated headers are joined with a comma."""
    keep_alive: bool


class Response:
    """Takes raw bytes and returns those of the body; `whole` is True once the response is complete."""

    __slots__ = ("_chunked", "_left", "_pending", "_trailers", "head", "whole")

    def __init__(self) -> None:
        self.head: Head | None = None
        self.whole = False
        self._pending = b""
        self._chunked = False
        self._trailers = False
        # Bytes still to come, of the body or the current chunk; None means "until the connection ends".
        self._left: int | None = 0

    def feed(self, data: bytes) -> bytes:
        if self.head is None:
            data = self._feed_head(data)
            if self.head is None:
                return b""
        if self.whole or not data:
            return b""
        if self._chunked:
            return self._feed_chunks(data)
        if self._left is None:
            return data
        body, self._left = data[: self._left], self._left - len(data)
        self.whole = self._left <= 0
        return body

    def ended(self) -> bool:
        """Handle the end of the connection; return True if the response is complete."""
        if self.head is not None and not self._chunked and self._left is None:
            self.whole = True
        return self.whole

    def _feed_head(self, data: bytes) -> bytes:
        """Return the bytes after the head; interim responses (1xx) are skipped."""
        while True:
            data = self._pending + data
            self._pending = b""
            text, blank_line, rest = data.partition(b"\r\n\r\n")
            if not blank_line:
                if len(data) > _HEAD_LIMIT:
                    raise Malformed("the head of the response does not end")
                if data and not b"HTTP/1.".startswith(data[:7]):
                    raise Malformed(f"it begins with {data[:40]!r}")
                self._pending = data
                return b""
            head = _head_from(text)
            if head.status >= 200 or head.status == 101:
                self._begin_body(head)
                return rest
            data = rest

    def _begin_body(self, head: Head) -> None:
        self.head = head
        if head.status in (204, 304):
            self.whole = True
            return
        self._chunked = "chunked" in head.headers.get("transfer-encoding", "").lower()
        if self._chunked:
            return
        length = head.headers.get("content-length")
        if length is None:
            self._left = None
            return
        # A proxy that repeats the header sends "12, 12".
        digits = length.split(",")[0].strip()
        if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
            raise Malformed(f"its length is {length!r}")
        self._left = int(digits)
        self.whole = self._left == 0

    def _feed_chunks(self, data: bytes) -> bytes:
        if self._pending:
            data, self._pending = self._pending + data, b""
        body: list[bytes] = []
        at = 0
        while at < len(data) and not self.whole:
            left = self._left or 0
            if left > 2:
                piece = data[at : at + left - 2]
                body.append(piece)
                at += len(piece)
                self._left = left - len(piece)
            elif left:  # the line end after a chunk
                step = min(left, len(data) - at)
                at += step
                self._left = left - step
            else:
                end = data.find(b"\r\n", at)
                if end < 0:
                    if len(data) - at > _LINE_LIMIT:
                        raise Malformed("a chunk's size does not end")
                    self._pending = data[at:]
                    break
                self._begin_chunk(data[at:end])
                at = end + 2
        return body[0] if len(body) == 1 else b"".join(body)

    def _begin_chunk(self, line: bytes) -> None:
        if self._trailers:
            self.whole = not line
            return
        digits = line.split(b";")[0].strip()
        # A sign would lead back to this line forever.
        if _HEXADECIMAL.fullmatch(digits) is None:
            raise Malformed(f"{line[:40]!r} is not the size of a chunk")
        size = int(digits, 16)
        if size == 0:
            self._trailers = True
        else:
            self._left = size + 2


def _head_from(text: bytes) -> Head:
    first, *lines = text.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
        raise Malformed(f"it begins with {first[:40]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name = name.strip().lower()
        value = value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    connection = headers.get("connection", "").lower()
    keep = "close" not in connection if version == "HTTP/1.1" else "keep-alive" in connection
    return Head(status=int(code), headers=headers, keep_alive=keep)
