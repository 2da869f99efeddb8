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

from shoal.tools.mcp.client_context import McpLoginRequired, McpTokenStore
from shoal.wire.json_codec import decode_json, encode_json

_CALLBACK_PATH = "/callback"
_PAGE_TEMPLATE = "<!doctype html><meta charset=utf-8><title>Shoal</title><p>{}</p>"
MAX_REQUEST_BYTES = 1 << 14


class McpOAuthTokenStorage(TokenStorage):
    """OAuth token storage that also keeps expiry time and renewal metadata, which the SDK drops."""

    def __init__(self, tokens: McpTokenStore, registered: OAuthClientInformationFull | None = None) -> None:
        self._tokens = tokens
        self._registered = registered
        self.context: OAuthContext | None = None

    async def get_tokens(self) -> OAuthToken | None:
        stored = self.read_stored_fields().get("tokens")
        return None if stored is None else OAuthToken.model_validate(stored)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        seconds = tokens.expires_in
        metadata = None if self.context is None else self.context.oauth_metadata
        self._update_stored_fields(
            tokens=_dump_pydantic_model(tokens),
            expires_at=None if seconds is None else time.time() + seconds,
            metadata=None if metadata is None else _dump_pydantic_model(metadata),
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._registered is not None:
            return self._registered
        stored = self.read_stored_fields().get("client")
        return None if stored is None else OAuthClientInformationFull.model_validate(stored)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._update_stored_fields(client=_dump_pydantic_model(client_info))

    def restore_oauth_context(self, context: OAuthContext) -> None:
        """Restore the state of the session that logged in."""
        self.context, stored = context, self.read_stored_fields()
        context.token_expiry_time = stored.get("expires_at")
        if stored.get("metadata") is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(stored["metadata"])

    def read_stored_fields(self) -> dict[str, Any]:
        try:
            stored = decode_json(self._tokens.read() or b"{}")
        except ValueError:
            return {}  # an unreadable login counts as none and is made again
        return stored if isinstance(stored, dict) else {}

    def _update_stored_fields(self, **fields: Any) -> None:
        self._tokens.write(encode_json({**self.read_stored_fields(), **fields}))


def _dump_pydantic_model(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(mode="json", exclude_none=True)


def create_mcp_oauth_provider(
    url: str,
    tokens: McpTokenStore,
    *,
    client_id: str = "",
    redirect_url: str = "http://127.0.0.1/callback",
    show_url: Callable[[str], Awaitable[None]] | None = None,
    wait_for_code: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
) -> OAuthClientProvider:
    """Create the provider. Without `show_url` and `wait_for_code`, only stored tokens work.

    They are renewed as needed, and a login is refused. With `client_id`, no client is registered.
    """

    async def refuse_login(_: str) -> None:
        raise McpLoginRequired

    async def refuse_callback() -> AuthorizationCodeResult:
        raise McpLoginRequired

    fields = {
        "client_id": client_id,
        "redirect_uris": [redirect_url],
        "token_endpoint_auth_method": "none",
    }
    registered = OAuthClientInformationFull.model_validate(fields) if client_id else None
    storage = McpOAuthTokenStorage(tokens, registered)
    provider = OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata.model_validate(
            {
                "client_name": "Shoal",
                "redirect_uris": [redirect_url],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
            }
        ),
        storage=storage,
        redirect_handler=show_url or refuse_login,
        callback_handler=wait_for_code or refuse_callback,
    )
    storage.restore_oauth_context(provider.context)
    return provider


class McpOAuthCallbackServer:
    """Loopback HTTP server that receives the browser's redirect after a login."""

    def __init__(self, port: int = 0) -> None:
        """Listen at `port`, or at any free one."""
        self._port = port
        self._code_result: asyncio.Future[AuthorizationCodeResult] = (
            asyncio.get_running_loop().create_future()
        )

    async def __aenter__(self) -> McpOAuthCallbackServer:
        self._server = await asyncio.start_server(
            self._serve_request, "127.0.0.1", self._port, limit=MAX_REQUEST_BYTES
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        if self._port:
            # A login server compares it with the URL that was registered.
            return f"http://localhost:{self._port}{_CALLBACK_PATH}"
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}{_CALLBACK_PATH}"

    async def wait_for_code(self) -> AuthorizationCodeResult:
        return await self._code_result

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._handle_callback(head.split(b" ")[1].decode("ascii", "replace"))
            page = _PAGE_TEMPLATE.format(escape(text)).encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + page
            )
            await writer.drain()
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the request did not come from the browser
        finally:
            writer.close()

    def _handle_callback(self, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        if parts.path != _CALLBACK_PATH:
            return "404 Not Found", "There is nothing here."
        parameters = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if "code" not in parameters:
            return (
                "400 Bad Request",
                f"The login was refused: {parameters.get('error', 'no authorization code')}.",
            )
        if not self._code_result.done():
            result = AuthorizationCodeResult(
                code=parameters["code"], state=parameters.get("state"), iss=parameters.get("iss")
            )
            self._code_result.set_result(result)
        return "200 OK", "You are logged in. You can close this window."
