"""HTTP hooks: the event is posted to a URL, and the response is the decision."""

from __future__ import annotations

from shoal.core.clock import Clock
from shoal.core.errors import ShoalError
from shoal.core.hooks import Post

_KEPT = 1 << 20


class NotAnswered(ShoalError):
    """The URL returned no usable response."""


async def post(to: Post, data: bytes, *, seconds: float, clock: Clock) -> str:
    """Return the response body, cut to the maximum size. Raises `HookRequestError` and `TimeoutError`."""
    import httpx

    headers = {"content-type": "application/json", **to.headers}
    try:
        async with (
            clock.deadline(seconds),
            httpx.AsyncClient(timeout=seconds, trust_env=False, follow_redirects=False) as client,
            client.stream("POST", to.url, content=data, headers=headers) as response,
        ):
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) >= _KEPT:
                    break
    except httpx.HTTPError as error:
        raise NotAnswered(f"{type(error).__name__}: {error}") from error
    if not response.is_success:
        raise NotAnswered(f"it answered with status {response.status_code}")
    return body[:_KEPT].decode(errors="replace")
