"""Connections to a provider, with TLS and proxy support, reuse and flow control.

Uses asyncio only: a streamed answer is many small pieces, each of which costs a third of what it costs
through a general HTTP client, and nothing has to be imported before the first request.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, unquote, urlsplit

from shoal.core.tls_contexts import TlsVariables, get_tls_context
from shoal.models.http_parser import HttpResponseParser

if TYPE_CHECKING:
    import ssl

    from shoal.core.clock import Clock

_MAX_BUFFERED_BYTES = 1 << 20
"""Bytes buffered for a slow reader before the sender is paused."""
_IDLE_SECONDS = 60.0
"""A connection idle for longer is not assumed to be alive."""


class ProviderHttpConnection(asyncio.Protocol):
    """One connection; `read` returns the received bytes, b"" at the end."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received: list[bytes] = []
        self._size = 0
        self._reading_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False
        self.error: Exception | None = None
        self.response_finished = False
        """Its response is complete: the next request may use the connection."""
        self.is_reused = False
        """It has served a request before, and the server may have closed it since."""
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._size += len(data)
        if self._size > _MAX_BUFFERED_BYTES and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> None:
        self.closed = True
        self._wake_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.error = exc
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def is_reusable(self) -> bool:
        return not self.closed and not self._received

    def write_bytes(self, *parts: bytes) -> None:
        assert self._transport is not None
        self._transport.writelines(parts)

    async def read_bytes(self) -> bytes:
        if not self._received and not self.closed:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = self._received[0] if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        self._size = 0
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        return data

    async def start_tls(self, host: str, context: ssl.SSLContext) -> None:
        """Upgrade the connection to TLS."""
        assert self._transport is not None
        tls_transport = await asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_hostname=host
        )
        if tls_transport is None:
            raise ConnectionResetError("the connection closed during the TLS handshake")
        self._transport = tls_transport

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            # Not `close`: data that was not sent or read by now is useless.
            self._transport.abort()


class ProviderHttpConnectionPool:
    """Pool of idle connections to one scheme, host and port, possibly through a proxy."""

    def __init__(
        self, url: SplitResult, clock: Clock, *, proxy: str | None = None, tls: TlsVariables | None = None
    ) -> None:
        """`tls` are the variables of the session; None means those of the process."""
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"{url.geturl()!r} is not an http:// or https:// URL")
        self._uses_tls = url.scheme == "https"
        self._host = url.hostname
        self._port = url.port or (443 if self._uses_tls else 80)
        self._proxy = _parse_proxy_url(proxy) if proxy else None
        self._tls = tls
        self._clock = clock
        self._idle: list[ProviderHttpConnection] = []

    async def acquire(self, *, timeout: float) -> ProviderHttpConnection:
        """Return a connection for one request; `release` it after. Raises OSError, including TimeoutError."""
        idle = self._take_idle_connection()
        if idle is not None:
            return idle
        async with self._clock.deadline(timeout):
            return await self._open_connection()

    def release(self, connection: ProviderHttpConnection) -> None:
        if connection.response_finished and connection.is_reusable:
            connection.response_finished = False
            connection.is_reused = True
            connection.idle_since = self._clock.monotonic()
            # Last in, first out, so that surplus connections grow old and are closed.
            self._idle.append(connection)
        else:
            connection.close()

    def _take_idle_connection(self) -> ProviderHttpConnection | None:
        min_idle_since = self._clock.monotonic() - _IDLE_SECONDS
        while self._idle and (self._idle[0].idle_since < min_idle_since or not self._idle[0].is_reusable):
            self._idle.pop(0).close()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.idle_since >= min_idle_since:
                return connection
            connection.close()
        return None

    async def _open_connection(self) -> ProviderHttpConnection:
        loop = asyncio.get_running_loop()
        if self._proxy is None:
            _, connection = await loop.create_connection(
                ProviderHttpConnection,
                self._host,
                self._port,
                ssl=get_tls_context(self._tls) if self._uses_tls else None,
                server_hostname=self._host if self._uses_tls else None,
            )
            return connection
        _, connection = await loop.create_connection(
            ProviderHttpConnection, self._proxy.hostname or "", self._proxy.port or 8080
        )
        try:
            await self._open_proxy_tunnel(connection)
            if self._uses_tls:
                await connection.start_tls(self._host, get_tls_context(self._tls))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open_proxy_tunnel(self, connection: ProviderHttpConnection) -> None:
        """Open a tunnel through the proxy, for plain http as well."""
        assert self._proxy is not None
        target = f"{self._host}:{self._port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self._proxy.username:
            credentials = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {b64encode(credentials.encode()).decode()}")
        connection.write_bytes("\r\n".join([*lines, "", ""]).encode())
        response = HttpResponseParser()
        while response.head is None:
            data = await connection.read_bytes()
            if not data:
                raise ConnectionResetError(f"the proxy {self._proxy.hostname} closed the connection")
            response.feed(data)
        if response.head.status != 200:
            raise ConnectionRefusedError(
                f"the proxy {self._proxy.hostname} responded with {response.head.status} to CONNECT {target}"
            )

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _parse_proxy_url(address: str) -> SplitResult:
    url = urlsplit(address if "://" in address else f"http://{address}")
    if url.scheme != "http" or not url.hostname:
        raise ValueError(
            f"the proxy {url.scheme}://{url.hostname or ''} cannot be used because its URL must start with "
            "http://. HTTPS_PROXY takes precedence over ALL_PROXY; list hosts without a proxy in NO_PROXY"
        )
    _ = url.port  # raises if it is not a number
    return url
