"""An MCP server that requires a login: `lock_server.py http PORT`."""

from __future__ import annotations

import os
import secrets
import sys
import time
from typing import Any

from mcp.server.auth.provider import AccessToken, AuthorizationCode, AuthorizationParams, RefreshToken
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

PORT = int(sys.argv[2])
REGISTERED_REDIRECT = os.environ.get("REGISTERED_REDIRECT", "http://localhost/callback")
URL = f"http://127.0.0.1:{PORT}"


class MemoryAuthProvider:
    """Accepts every client, and remembers them in memory."""

    def __init__(self) -> None:
        self._clients: dict[str, OAuthClientInformationFull] = {}
        self._codes: dict[str, AuthorizationCode] = {}
        self._access_tokens: dict[str, AccessToken] = {}
        self._refresh_tokens: dict[str, RefreshToken] = {}
        self.refresh_count = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        if client_id == "registered-by-hand":
            fields = {"client_id": client_id, "redirect_uris": [REGISTERED_REDIRECT]}
            return OAuthClientInformationFull(**fields, token_endpoint_auth_method="none")
        return self._clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self._clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_hex(16)
        self._codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return f"{params.redirect_uri}?code={code}&state={params.state}"

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: Any, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self._codes[authorization_code.code]
        return self._issue_token(client.client_id)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self._refresh_tokens.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> OAuthToken:
        self.refresh_count += 1
        return self._issue_token(client.client_id)

    async def load_access_token(self, token: str) -> AccessToken | None:
        if token == "issued-by-hand":
            return AccessToken(token=token, client_id="by-hand", scopes=[])
        return self._access_tokens.get(token)

    async def revoke_token(self, token: Any) -> None: ...

    def _issue_token(self, client: str) -> OAuthToken:
        access, refresh = secrets.token_hex(16), secrets.token_hex(16)
        self._access_tokens[access] = AccessToken(token=access, client_id=client, scopes=[])
        self._refresh_tokens[refresh] = RefreshToken(token=refresh, client_id=client, scopes=[])
        return OAuthToken(access_token=access, expires_in=3600, refresh_token=refresh)


auth_provider = MemoryAuthProvider()
server = MCPServer(
    "lock",
    auth_server_provider=auth_provider,  # type: ignore[arg-type]
    auth=AuthSettings(
        issuer_url=URL,  # type: ignore[arg-type]
        resource_server_url=f"{URL}/mcp",  # type: ignore[arg-type]
        client_registration_options=ClientRegistrationOptions(enabled=True),
        validate_token_resource=False,
    ),
)


@server.tool()
def inside() -> str:
    """Only for those who are let in."""
    return f"let in, renewed {auth_provider.refresh_count}"


if __name__ == "__main__":
    server.run("streamable-http", port=PORT)
