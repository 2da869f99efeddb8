"""OAuth login to an MCP server through the SDK, with tokens that outlive the session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, TokenStorage
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import BaseModel

from shoal.tools.mcp.host import NeedsLogin, Tokens
from shoal.wire.content import dump, load

_PATH = "/callback"
_PAGE = "<!doctype html><meta charset=utf-8><title>Shoal</title><p>{}</p>"
LONGEST_REQUEST = 1 << 14


class KeptTokens(TokenStorage):
    """OAuth token storage that also keeps expiry time and renewal metadata, which the SDK drops."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.context: OAuthContext | None = None

    async def get_tokens(self) -> OAuthToken | None:
        kept = self.read().get("tokens")
        return None if kept is None else OAuthToken.model_validate(kept)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        seconds = tokens.expires_in
        metadata = None if self.context is None else self.context.oauth_metadata
        self._write(
            tokens=_fields(tokens),
            expires_at=None if seconds is None else time.time() + seconds,
            metadata=None if metadata is None else _fields(metadata),
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        kept = self.read().get("client")
        return None if kept is None else OAuthClientInformationFull.model_validate(kept)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write(client=_fields(client_info))

    def remind(self, context: OAuthContext) -> None:
        """Restore what the session that logged in knew."""
        self.context, kept = context, self.read()
        context.token_expiry_time = kept.get("expires_at")
        if kept.get("metadata") is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(kept["metadata"])

    def read(self) -> dict[str, Any]:
        try:
            kept = load(self._tokens.read() or b"{}")
        except ValueError:
            return {}  # an unreadable login counts as none and is made again
        return kept if isinstance(kept, dict) else {}

    def _write(self, **fields: Any) -> None:
        self._tokens.write(dump({**self.read(), **fields}))


def _fields(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(mode="json", exclude_none=True)


def provider(
    url: str,
    tokens: Tokens,
    *,
    redirect: str = "http://127.0.0.1/callback",
    show: Callable[[str], Awaitable[None]] | None = None,
    answer: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
) -> OAuthClientProvider:
    """Create the provider. Without `show_url` and `wait_for_code`, only stored tokens work.

    They are renewed as needed, and a login is refused.
    """

    async def refuse(_: str) -> None:
        raise NeedsLogin

    async def never() -> AuthorizationCodeResult:
        raise NeedsLogin

    storage = KeptTokens(tokens)
    made = OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata.model_validate(
            {
                "client_name": "Shoal",
                "redirect_uris": [redirect],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
            }
        ),
        storage=storage,
        redirect_handler=show or refuse,
        callback_handler=answer or never,
    )
    storage.remind(made.context)
    return made


class Loopback:
    """Loopback HTTP server that receives the browser's redirect after a login."""

    def __init__(self) -> None:
        self._came: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Loopback:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LONGEST_REQUEST)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}{_PATH}"

    async def answer(self) -> AuthorizationCodeResult:
        return await self._came

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._heard(head.split(b" ")[1].decode("ascii", "replace"))
            page = _PAGE.format(escape(text)).encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + page
            )
            await writer.drain()
        except (OSError, TimeoutError, ValueError, IndexError, asyncio.IncompleteReadError):
            pass  # the request did not come from the browser
        finally:
            writer.close()

    def _heard(self, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        if parts.path != _PATH:
            return "404 Not Found", "There is nothing here."
        given = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if "code" not in given:
            return "400 Bad Request", f"The login was refused: {given.get('error', 'no code came')}."
        if not self._came.done():
            result = AuthorizationCodeResult(
                code=given["code"], state=given.get("state"), iss=given.get("iss")
            )
            self._came.set_result(result)
        return "200 OK", "You are logged in. This window can be closed."
