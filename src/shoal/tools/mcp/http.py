"""Transport to an MCP server over streamable HTTP or the older SSE, with bounded responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from shoal.core.mcp import Address

LONGEST_BODY = 16 << 20
CONNECT, READ = 30.0, 3600.0
"""Seconds; each call has its own deadline."""


@asynccontextmanager
async def address_transport(
    address: Address, *, auth: httpx2.Auth | None, answered: Callable[[int], None]
) -> AsyncIterator[Any]:
    """Open the transport; `on_error_status` receives the status of each error response."""

    async def look(response: httpx2.Response) -> None:
        if response.status_code >= 400 and str(response.request.url).startswith(address.url):
            answered(response.status_code)
        if "json" in response.headers.get("content-type", ""):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream)

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = auth,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=dict(address.headers),
            timeout=httpx2.Timeout(CONNECT, read=READ),
            auth=auth,
            event_hooks={"response": [look]},
        )

    if address.transport == "sse":
        async with sse_client(address.url, httpx_client_factory=client, auth=auth) as streams:
            yield streams
        return
    async with (
        client() as http,
        streamable_http_client(address.url, http_client=http, max_sse_event_size=LONGEST_BODY) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncByteStream):
    """Response body with a length limit."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > LONGEST_BODY:
                raise httpx2.StreamError(f"The answer is longer than {LONGEST_BODY >> 20} MB.")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
