"""One request to a provider and its streamed answer, with deadlines for everything that can hang."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import BadReply, BadRequest, ConnectionLost, ModelError, StreamCut, StreamStalled
from shoal.models.connection import Connection, Origin
from shoal.models.faults import Asked, not_a_stream, refusal
from shoal.models.http1 import Head, Malformed, Response
from shoal.models.json_text import decoded

_ERROR_BODY = 64 * 1024
_AT_ONCE = 1.0
"""Seconds; a provider that hangs up later may have processed the request, and billed it."""
_LOOK_LIMIT = 4 << 20
_LINGER = 0.25
"""Seconds to wait for the end of a complete answer's response, so that the connection can be reused."""

Take: TypeAlias = Callable[[bytes], Awaitable[bool]]
"""Receives the bytes that arrived; returns True once the answer is complete."""


class Deadlines(Struct, frozen=True, kw_only=True):
    """Deadlines in seconds. `gap` is the longest silence inside a stream; a ping ends a silence."""

    connect: float = 15.0
    first_byte: float = 300.0
    gap: float = 120.0
    total: float = 3600.0


class _Stale(Exception):
    """A reused connection ended at once, without a byte of an answer."""


class Endpoint:
    """HTTP endpoint of one model."""

    def __init__(
        self,
        asked: Asked,
        *,
        headers: Mapping[str, str],
        clock: Clock,
        deadlines: Deadlines,
        proxy: str | None = None,
    ) -> None:
        url = urlsplit(asked.url)
        try:
            self._origin = Origin(url, clock, proxy=proxy)
            head = _request_head(url, headers)
        except ValueError as error:
            raise asked.fault(BadRequest, f"A request cannot be made: {error}.") from error
        self.asked = asked
        self._head = head
        self._clock = clock
        self._deadlines = deadlines

    async def ask(self, body: bytes, take: Take) -> None:
        """Post the body and pass chunks to `on_chunk` until it has the whole answer.

        Raises a `ModelError`; `StreamCut` if the answer started and did not end.
        """
        try:
            async with self._clock.deadline(self._deadlines.total):
                await self._exchange(body, take)
        except TimeoutError:
            raise self._fault(StreamStalled, f"gave no whole answer in {self._deadlines.total:g} s") from None

    async def _exchange(self, body: bytes, take: Take) -> None:
        try:
            await self._post(body, take)
        except _Stale:
            # The server closed the idle connection: the request was never accepted, so it may be sent again.
            self._origin.close()
            await self._post(body, take)

    async def _post(self, body: bytes, take: Take) -> None:
        connection = await self._connected()
        try:
            connection.send(b"%s%d\r\n\r\n" % (self._head, len(body)), body)
            await self._answer(connection, take)
        except Malformed as error:
            raise self._fault(BadReply, f"does not answer in HTTP/1.1: {error}") from error
        finally:
            self._origin.put(connection)

    async def _connected(self) -> Connection:
        try:
            return await self._origin.take(within=self._deadlines.connect)
        except TimeoutError:
            within = f"{self._deadlines.connect:g} s"
            raise self._fault(ConnectionLost, f"did not take a connection within {within}") from None
        except OSError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise self._fault(
                    BadRequest,
                    f"shows a certificate that cannot be verified: {error}. "
                    "If it is your company's, add it to the system's or name it in SSL_CERT_FILE",
                ) from error
            # asyncio's message repeats the address as a tuple.
            why = os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else error
            raise self._fault(ConnectionLost, f"cannot be reached: {why}") from error

    async def _answer(self, connection: Connection, take: Take) -> None:
        response = Response()
        content = b""
        began = False
        asked_at = self._clock.monotonic()
        while response.head is None:
            data = await self._read(connection, self._deadlines.gap if began else self._deadlines.first_byte)
            if not data:
                if connection.kept and not began and self._clock.monotonic() - asked_at < _AT_ONCE:
                    raise _Stale
                why = f": {connection.fault}" if connection.fault else ""
                raise self._fault(ConnectionLost, f"closed the connection without an answer{why}")
            content = response.feed(data)
            began = True
        if not _is_stream(response.head):
            raise await self._refused(connection, response, response.head, content)
        unpacked = _unpacker(response.head)
        done = bool(content) and await take(unpacked(content))
        while not done:
            if response.whole or not (data := await self._read(connection, self._deadlines.gap)):
                if (response.whole or response.ended()) and await take(b""):
                    break
                why = f": {connection.fault}" if connection.fault else ""
                raise self._fault(StreamCut, f"broke off its answer{why}")
            content = response.feed(data)
            done = bool(content) and await take(unpacked(content))
        await self._end(connection, response, response.head)

    async def _end(self, connection: Connection, response: Response, head: Head) -> None:
        """Read to the end of the response, so that the connection can be reused; failures are ignored."""
        try:
            while not response.whole:
                async with self._clock.deadline(_LINGER):
                    data = await connection.read()
                if not data:
                    return
                response.feed(data)
        except (TimeoutError, Malformed):
            return
        connection.finished = head.keep_alive

    async def _refused(
        self, connection: Connection, response: Response, head: Head, content: bytes
    ) -> ModelError:
        body = bytearray(content)
        try:
            while not response.whole and len(body) < _ERROR_BODY:
                data = await self._read(connection, self._deadlines.gap)
                if not data:
                    break
                body += response.feed(data)
        except StreamStalled:
            pass  # what has arrived is enough
        connection.finished = response.whole and head.keep_alive
        try:
            words = _unpacker(head)(bytes(body))
        except Malformed:
            words = b""
        if head.status == 200:
            return not_a_stream(self.asked, head, words)
        return refusal(self.asked, head, words, now_ms=self._clock.now())

    async def _read(self, connection: Connection, patience: float) -> bytes:
        # The deadline covers only the read: a slow consumer is not the provider's silence.
        try:
            async with self._clock.deadline(patience):
                return await connection.read()
        except TimeoutError:
            raise self._fault(StreamStalled, f"sent nothing for {patience:g} s") from None

    def _fault(self, kind: type[ModelError], what: str) -> ModelError:
        return self.asked.fault(kind, f"{self.asked.provider} ({self.asked.url}) {what}.")

    async def aclose(self) -> None:
        self._origin.close()


async def fetched(
    url: str,
    *,
    clock: Clock,
    within: float,
    headers: Mapping[str, str] | None = None,
    proxy: str | None = None,
) -> Any:
    """Return the JSON at an address, or None: for probing whether a server answers."""
    parts = urlsplit(url)
    told = [f"{name}: {value}" for name, value in (headers or {}).items()]
    try:
        origin = Origin(parts, clock, proxy=proxy)
        async with clock.deadline(within):
            connection = await origin.take(within=within)
            try:
                host = parts.netloc.rpartition("@")[2]
                lines = (f"GET {_target(parts)} HTTP/1.1", f"Host: {host}", "Connection: close")
                connection.send("\r\n".join((*lines, *told, "", "")).encode())
                return await _json_body(connection)
            finally:
                connection.close()
    except (OSError, ValueError, Malformed):
        return None


async def _json_body(connection: Connection) -> Any:
    response, body = Response(), bytearray()
    while not response.whole and len(body) < _LOOK_LIMIT:
        data = await connection.read()
        if not data:
            response.ended()
            break
        body += response.feed(data)
    is_found = response.whole and response.head is not None and response.head.status == 200
    return decoded(bytes(body)) if is_found else None


def _target(url: SplitResult) -> str:
    path = url.path or "/"
    return f"{path}?{url.query}" if url.query else path


def _request_head(url: SplitResult, headers: Mapping[str, str]) -> bytes:
    target = _target(url)
    lines = {
        "Host": url.netloc.rpartition("@")[2],
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        # A compressing proxy would hold events back.
        "Accept-Encoding": "identity",
        **headers,
    }
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    if any(bad in f"{target}{''.join(lines.values())}" for bad in "\r\n\0"):
        raise ValueError("its address or a header (perhaps the key) holds a line break")
    return f"POST {target} HTTP/1.1\r\n{text}Content-Length: ".encode()


def _is_stream(head: Head) -> bool:
    kind = head.headers.get("content-type", "")
    return head.status == 200 and not kind.startswith(("text/html", "application/json"))


def _unpacker(head: Head) -> Callable[[bytes], bytes]:
    """Return a function that undoes a compression that was not requested."""
    encoding = head.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return bytes
    if encoding not in ("gzip", "deflate"):
        raise Malformed(f"its content is encoded with {encoding!r}, which was not asked for")
    import zlib

    unpack = zlib.decompressobj(wbits=47).decompress  # 47: detects gzip or zlib

    def unpacked(data: bytes) -> bytes:
        try:
            return unpack(data)
        except zlib.error as error:
            raise Malformed(f"its content is not the {encoding} it says: {error}") from error

    return unpacked
