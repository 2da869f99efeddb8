"""HTTP hooks: the event is posted to a URL, and the response is the decision."""

from __future__ import annotations

from shoal.core.clock import Clock
from shoal.core.errors import ShoalError
from shoal.core.extensions.hooks import HttpPostHookAction

_MAX_BODY = 1 << 20


class HookHttpRequestError(ShoalError):
    """The URL returned no usable response."""


async def post_hook_event(target: HttpPostHookAction, data: bytes, *, seconds: float, clock: Clock) -> str:
    """Return the response body, cut to the maximum size. Raises `HookHttpRequestError` and `TimeoutError`."""
    import httpx

    headers = {"content-type": "application/json", **target.headers}
    try:
        async with (
            clock.deadline(seconds),
            httpx.AsyncClient(timeout=seconds, trust_env=False, follow_redirects=False) as client,
            client.stream("POST", target.url, content=data, headers=headers) as response,
        ):
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) >= _MAX_BODY:
                    break
    except httpx.HTTPError as error:
        raise HookHttpRequestError(f"{type(error).__name__}: {error}") from error
    if not response.is_success:
        raise HookHttpRequestError(f"it answered with status {response.status_code}")
    return body[:_MAX_BODY].decode(errors="replace")
