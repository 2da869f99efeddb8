"""Just enough HTTP/1.1 for a mock provider: reads a request, frames a response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from msgspec import Struct

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
    529: "Overloaded",
}
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


class MockServerHttpRequest(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes


async def read_http_request(reader: asyncio.StreamReader) -> MockServerHttpRequest | None:
    """Read the next request of a connection; None if the client is done or does not speak HTTP."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ", 2)
        if not version.startswith("HTTP/1."):
            return None
        headers = {}
        for line in lines[:-2]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            content = await _read_chunked_body(reader)
        else:
            content = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
        return None
    return MockServerHttpRequest(
        method=method, path=target.partition("?")[0], headers=headers, content=content
    )


async def _read_chunked_body(reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readuntil(b"\r\n")
    await reader.readuntil(b"\r\n")
    return b"".join(chunks)


def encode_http_response(
    content: bytes, *, status: int = 200, headers: Iterable[tuple[str, str]] = ()
) -> bytes:
    header_lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n{header_lines}\r\n"
    )
    return head.encode() + content


def encode_http_stream_head(headers: Iterable[tuple[str, str]] = ()) -> bytes:
    header_lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return STREAM_HEAD + header_lines.encode() + b"\r\n"


def encode_http_chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)
