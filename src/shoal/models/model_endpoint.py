"""One request to a provider and its streamed answer, with deadlines for everything that can hang."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import (
    BadReply,
    BadRequest,
    ConnectionLost,
    ModelError,
    StreamCut,
    StreamStalled,
    Unauthorized,
)
from shoal.core.tls_contexts import TlsVariables
from shoal.models.http_connection import ProviderHttpConnection, ProviderHttpConnectionPool
from shoal.models.http_parser import HttpResponseHead, HttpResponseParser, MalformedHttpResponseError
from shoal.models.model_errors import ModelRequestTarget, build_model_response_error, build_non_stream_error
from shoal.models.provider_json import decode_json

_MAX_ERROR_BYTES = 64 * 1024
_STALE_WITHIN = 1.0
"""Seconds; a provider that hangs up later may have processed the request, and billed it."""
_MAX_JSON_BYTES = 4 << 20
_DRAIN_TIMEOUT = 0.25
"""Seconds to wait for the end of a complete answer's response, so that the connection can be reused."""

_KEEP_ALIVE_GAPS = 5

ChunkHandler: TypeAlias = Callable[[bytes], Awaitable[bool]]
"""Receives the bytes that arrived; returns True once the answer is complete."""


class ProviderHttpTimeouts(Struct, frozen=True, kw_only=True):
    """Deadlines in seconds. `gap` is the longest silence inside a stream; a ping ends a silence.

    A stream of pings alone ends after `_KEEP_ALIVE_GAPS` times the gap.
    """

    connect: float = 15.0
    first_byte: float = 300.0
    gap: float = 120.0
    total: float = 3600.0


class KeySource(Protocol):
    """Source of a provider's key that may change."""

    async def fetch_key(self, clock: Clock, *, refused: str = "") -> str:
        """Return the key; `refused` is one that the provider does not accept. Raises `Unauthorized`."""
        ...


class _StaleConnectionError(Exception):
    """A reused connection ended at once, without a byte of an answer."""


class ModelEndpoint:
    """HTTP endpoint of one model."""

    def __init__(
        self,
        target: ModelRequestTarget,
        *,
        headers: Mapping[str, str],
        clock: Clock,
        deadlines: ProviderHttpTimeouts,
        proxy: str | None = None,
        tls: TlsVariables | None = None,
        key_source: KeySource | None = None,
    ) -> None:
        url = urlsplit(target.url)
        try:
            self._pool = ProviderHttpConnectionPool(url, clock, proxy=proxy, tls=tls)
            head = _build_http_request_head(url, headers)
        except ValueError as error:
            raise target.build_error(BadRequest, f"Cannot build the request: {error}.") from error
        self.target = target
        self._head = head
        self._clock = clock
        self._deadlines = deadlines
        self._key_source = key_source

    async def post_request(
        self, body: bytes, on_chunk: ChunkHandler, count_events: Callable[[], int] | None = None
    ) -> None:
        """Post the body and pass chunks to `on_chunk` until it has the whole answer.

        `count_events` returns the number of events so far, without keep-alive messages. Raises a
        `ModelError`; `StreamCut` if the answer started and did not end.
        """
        if count_events is not None:
            on_chunk = self._limit_keep_alives(on_chunk, count_events)
        try:
            async with self._clock.deadline(self._deadlines.total):
                await self._post_with_current_key(body, on_chunk)
        except TimeoutError:
            raise self._build_endpoint_error(
                StreamStalled, f"did not complete a response within {self._deadlines.total:g} s"
            ) from None

    def _limit_keep_alives(self, on_chunk: ChunkHandler, count_events: Callable[[], int]) -> ChunkHandler:
        """Return a handler that raises `StreamStalled` if only keep-alive messages arrive for long."""
        limit = self._deadlines.gap * _KEEP_ALIVE_GAPS
        last_count, last_event_at = 0, self._clock.monotonic()

        async def handle_chunk(chunk: bytes) -> bool:
            nonlocal last_count, last_event_at
            is_done = await on_chunk(chunk)
            now, count = self._clock.monotonic(), count_events()
            if count != last_count:
                last_count, last_event_at = count, now
            elif not is_done and now - last_event_at > limit:
                raise self._build_endpoint_error(
                    StreamStalled, f"sent nothing but keep-alive messages for {limit:g} s"
                )
            return is_done

        return handle_chunk

    async def _post_with_current_key(self, body: bytes, on_chunk: ChunkHandler) -> None:
        if self._key_source is None:
            await self._post_retrying_stale_connection(self._head, body, on_chunk)
            return
        key = await self._key_source.fetch_key(self._clock)
        try:
            await self._post_retrying_stale_connection(self._add_key(key), body, on_chunk)
        except Unauthorized as error:
            if error.status != 401:
                raise
            key = await self._key_source.fetch_key(self._clock, refused=key)
            await self._post_retrying_stale_connection(self._add_key(key), body, on_chunk)

    def _add_key(self, key: str) -> bytes:
        """Return the head of a request with the key as a gateway and as the provider expect it."""
        start, _, rest = self._head.partition(b"\r\n")
        return b"%s\r\nx-api-key: %s\r\nAuthorization: Bearer %s\r\n%s" % (
            start,
            key.encode(),
            key.encode(),
            rest,
        )

    async def _post_retrying_stale_connection(self, head: bytes, body: bytes, on_chunk: ChunkHandler) -> None:
        try:
            await self._post_once(head, body, on_chunk)
        except _StaleConnectionError:
            # The server closed the idle connection: the request was never accepted, so it may be sent again.
            self._pool.close()
            await self._post_once(head, body, on_chunk)

    async def _post_once(self, head: bytes, body: bytes, on_chunk: ChunkHandler) -> None:
        connection = await self._acquire_connection()
        try:
            connection.write_bytes(b"%s%d\r\n\r\n" % (head, len(body)), body)
            await self._read_response(connection, on_chunk)
        except MalformedHttpResponseError as error:
            raise self._build_endpoint_error(
                BadReply, f"did not send a valid HTTP/1.1 response: {error}"
            ) from error
        finally:
            self._pool.release(connection)

    async def _acquire_connection(self) -> ProviderHttpConnection:
        try:
            return await self._pool.acquire(timeout=self._deadlines.connect)
        except TimeoutError:
            limit = f"{self._deadlines.connect:g} s"
            raise self._build_endpoint_error(
                ConnectionLost, f"did not accept a connection within {limit}"
            ) from None
        except OSError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise self._build_endpoint_error(
                    BadRequest,
                    f"has a certificate that cannot be verified: {error}. If it is your company's "
                    "certificate, add it to the system's store or set SSL_CERT_FILE",
                ) from error
            # asyncio's message repeats the address as a tuple.
            reason = os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else error
            raise self._build_endpoint_error(ConnectionLost, f"cannot be reached: {reason}") from error

    async def _read_response(self, connection: ProviderHttpConnection, on_chunk: ChunkHandler) -> None:
        response = HttpResponseParser()
        content = b""
        has_started = False
        sent_at = self._clock.monotonic()
        while response.head is None:
            data = await self._read_chunk_with_timeout(
                connection, self._deadlines.gap if has_started else self._deadlines.first_byte
            )
            if not data:
                if (
                    connection.is_reused
                    and not has_started
                    and self._clock.monotonic() - sent_at < _STALE_WITHIN
                ):
                    raise _StaleConnectionError
                reason = f": {connection.error}" if connection.error else ""
                raise self._build_endpoint_error(
                    ConnectionLost, f"closed the connection without a response{reason}"
                )
            content = response.feed(data)
            has_started = True
        if not _is_event_stream_response(response.head):
            raise await self._read_error_response(connection, response, response.head, content)
        decompress = _create_decompressor(response.head)
        is_done = bool(content) and await on_chunk(decompress(content))
        while not is_done:
            if response.is_complete or not (
                data := await self._read_chunk_with_timeout(connection, self._deadlines.gap)
            ):
                if (response.is_complete or response.handle_connection_end()) and await on_chunk(b""):
                    break
                reason = f": {connection.error}" if connection.error else ""
                raise self._build_endpoint_error(StreamCut, f"interrupted its response{reason}")
            content = response.feed(data)
            is_done = bool(content) and await on_chunk(decompress(content))
        await self._drain_response(connection, response, response.head)

    async def _drain_response(
        self, connection: ProviderHttpConnection, response: HttpResponseParser, head: HttpResponseHead
    ) -> None:
        """Read to the end of the response, so that the connection can be reused; failures are ignored."""
        try:
            while not response.is_complete:
                async with self._clock.deadline(_DRAIN_TIMEOUT):
                    data = await connection.read_bytes()
                if not data:
                    return
                response.feed(data)
        except (TimeoutError, MalformedHttpResponseError):
            return
        connection.response_finished = head.keep_alive

    async def _read_error_response(
        self,
        connection: ProviderHttpConnection,
        response: HttpResponseParser,
        head: HttpResponseHead,
        content: bytes,
    ) -> ModelError:
        body = bytearray(content)
        try:
            while not response.is_complete and len(body) < _MAX_ERROR_BYTES:
                data = await self._read_chunk_with_timeout(connection, self._deadlines.gap)
                if not data:
                    break
                body += response.feed(data)
        except StreamStalled:
            pass  # what has arrived is enough
        connection.response_finished = response.is_complete and head.keep_alive
        try:
            text = _create_decompressor(head)(bytes(body))
        except MalformedHttpResponseError:
            text = b""
        if head.status == 200:
            return build_non_stream_error(self.target, head, text)
        return build_model_response_error(self.target, head, text, now_ms=self._clock.now())

    async def _read_chunk_with_timeout(self, connection: ProviderHttpConnection, timeout: float) -> bytes:
        # The deadline covers only the read: a slow consumer is not the provider's silence.
        try:
            async with self._clock.deadline(timeout):
                return await connection.read_bytes()
        except TimeoutError:
            raise self._build_endpoint_error(StreamStalled, f"sent nothing for {timeout:g} s") from None

    def _build_endpoint_error(self, kind: type[ModelError], what: str) -> ModelError:
        return self.target.build_error(kind, f"{self.target.provider} ({self.target.url}) {what}.")

    async def aclose(self) -> None:
        self._pool.close()


async def fetch_json_or_none(
    url: str,
    *,
    clock: Clock,
    timeout: float,
    headers: Mapping[str, str] | None = None,
    proxy: str | None = None,
    tls: TlsVariables | None = None,
) -> Any:
    """Return the JSON at an address, or None: for probing whether a server answers."""
    parts = urlsplit(url)
    header_lines = [f"{name}: {value}" for name, value in (headers or {}).items()]
    try:
        pool = ProviderHttpConnectionPool(parts, clock, proxy=proxy, tls=tls)
        async with clock.deadline(timeout):
            connection = await pool.acquire(timeout=timeout)
            try:
                host = parts.netloc.rpartition("@")[2]
                lines = (
                    f"GET {_build_http_request_target(parts)} HTTP/1.1",
                    f"Host: {host}",
                    "Connection: close",
                )
                connection.write_bytes("\r\n".join((*lines, *header_lines, "", "")).encode())
                return await _read_json_response_or_none(connection)
            finally:
                connection.close()
    except (OSError, ValueError, MalformedHttpResponseError):
        return None


async def _read_json_response_or_none(connection: ProviderHttpConnection) -> Any:
    response, body = HttpResponseParser(), bytearray()
    while not response.is_complete and len(body) < _MAX_JSON_BYTES:
        data = await connection.read_bytes()
        if not data:
            response.handle_connection_end()
            break
        body += response.feed(data)
    is_ok = response.is_complete and response.head is not None and response.head.status == 200
    return decode_json(bytes(body)) if is_ok else None


def _build_http_request_target(url: SplitResult) -> str:
    path = url.path or "/"
    return f"{path}?{url.query}" if url.query else path


def _build_http_request_head(url: SplitResult, headers: Mapping[str, str]) -> bytes:
    target = _build_http_request_target(url)
    lines = {
        "Host": url.netloc.rpartition("@")[2],
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        # A compressing proxy would hold events back.
        "Accept-Encoding": "identity",
        **headers,
    }
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    if any(character in f"{target}{''.join(lines.values())}" for character in "\r\n\0"):
        raise ValueError("its URL or a header (perhaps the key) contains a line break")
    return f"POST {target} HTTP/1.1\r\n{text}Content-Length: ".encode()


def _is_event_stream_response(head: HttpResponseHead) -> bool:
    content_type = head.headers.get("content-type", "")
    return head.status == 200 and not content_type.startswith(("text/html", "application/json"))


def _create_decompressor(head: HttpResponseHead) -> Callable[[bytes], bytes]:
    """Return a function that undoes a compression that was not requested."""
    encoding = head.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return bytes
    if encoding not in ("gzip", "deflate"):
        raise MalformedHttpResponseError(
            f"its content is encoded with {encoding!r}, which Shoal did not ask for"
        )
    import zlib

    decompress_chunk = zlib.decompressobj(wbits=47).decompress  # 47: detects gzip or zlib

    def decompress(data: bytes) -> bytes:
        try:
            return decompress_chunk(data)
        except zlib.error as error:
            raise MalformedHttpResponseError(f"its content is not valid {encoding}: {error}") from error

    return decompress
