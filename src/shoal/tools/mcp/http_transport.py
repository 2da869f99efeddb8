"""Transport to an MCP server over streamable HTTP or the older SSE, with bounded responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from shoal.core.mcp_servers import McpHttpConfig

MAX_BODY_BYTES = 16 << 20
CONNECT_TIMEOUT, READ_TIMEOUT = 30.0, 3600.0
"""Seconds; each call has its own deadline."""


@asynccontextmanager
async def open_mcp_http_transport(
    address: McpHttpConfig, *, auth: httpx2.Auth | None, on_error_status: Callable[[int], None]
) -> AsyncIterator[Any]:
    """Open the transport; `on_error_status` receives the status of each error response."""

    async def check_http_response(response: httpx2.Response) -> None:
        if response.status_code >= 400 and str(response.request.url).startswith(address.url):
            on_error_status(response.status_code)
        if "json" in response.headers.get("content-type", ""):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _SizeLimitedResponseStream(response.stream)

    def create_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = auth,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=dict(address.headers),
            timeout=httpx2.Timeout(CONNECT_TIMEOUT, read=READ_TIMEOUT),
            auth=auth,
            event_hooks={"response": [check_http_response]},
        )

    if address.transport == "sse":
        async with sse_client(address.url, httpx_client_factory=create_client, auth=auth) as streams:
            yield streams
        return
    async with (
        create_client() as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_BODY_BYTES) as streams,
    ):
        yield streams


class _SizeLimitedResponseStream(httpx2.AsyncByteStream):
    """Response body with a length limit."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise httpx2.StreamError(f"The answer is longer than {MAX_BODY_BYTES >> 20} MB.")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
