"""Access control: a browser that has the token, on a page of this server.

Four checks run before everything else. The name in `Host` must be the server's, or a foreign page could
resolve its own name to this server. An `Origin` must be the server's own. The token must be sent, as cookie,
in the URL or as a bearer. A request that changes something needs an `Origin`, unless a bearer token is sent.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlencode

from msgspec import Struct
from starlette.datastructures import Headers, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal.surfaces.web.json_replies import build_json_reply

SAFE = frozenset({"GET", "HEAD"})
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
ADDRESS = "Open the URL that `shoal web` printed: it contains the token."


class WebAccessPolicy(Struct, frozen=True, kw_only=True):
    token: str
    port: int
    names: Sequence[str] = ()
    """Names of the server besides those of the loopback interface."""
    tickets: set[str] = set()
    """Single-use tickets: the URL a browser is started with is visible to all users of the machine."""
    any_address: bool = False
    """True if it listens on every interface, so that any IP address may be its own."""

    @property
    def cookie_name(self) -> str:
        return f"shoal_{self.port}"

    def is_own_host_name(self, host: str) -> bool:
        name = _parse_host_name(host)
        if name == "localhost" or name in self.names:
            return True
        try:
            number = ipaddress.ip_address(name)
        except ValueError:
            return False
        # A foreign name server cannot make an IP address resolve to this server.
        return number.is_loopback or self.any_address

    def is_valid_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _parse_host_name(host: str) -> str:
    """Return the name without port and brackets of an IPv6 address; empty if it has another form."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["address"] or found["name"]).lower()


class WebAccessGuard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, policy: WebAccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_security_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *_RAW_HEADERS]
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    # Revalidated each time: a cached old page must not talk to a newer server.
                    headers.append((b"cache-control", b"no-cache"))
                message["headers"] = headers
            await send(message)

        reply = self._build_refusal_or_redirect(scope)
        await (self._app if reply is None else reply)(scope, receive, send_with_security_headers)

    def _build_refusal_or_redirect(self, scope: Scope) -> Response | None:
        """Return the reply that ends the request here; None lets it through."""
        headers, query = Headers(scope=scope), QueryParams(scope["query_string"])
        path: str = scope["path"]
        refusal = self._find_refusal_reason(scope["method"], headers, query, path)
        if refusal:
            if path.startswith("/api"):
                return build_json_reply({"error": refusal}, 403)
            return PlainTextResponse(refusal + "\n", 403, {"Cache-Control": "no-store"})
        if path == "/" and ("token" in query or "ticket" in query):
            return self._redirect_without_token(query)
        return None

    def _find_refusal_reason(self, method: str, headers: Headers, query: QueryParams, path: str) -> str:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._policy.is_own_host_name(host):
            return f"{host!r} is not this server's name."
        if origin is not None and origin != f"http://{host}":
            return "This request comes from a page on another server."
        if path.startswith("/api") and headers.get("sec-fetch-site", "same-origin") not in (
            "same-origin",
            "none",
        ):
            return "This request comes from a page on another server."
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        is_program = scheme.lower() == "bearer" and self._policy.is_valid_token(bearer.strip())
        if not is_program and not self._redeem_ticket(query, path):
            given_token = query.get("token") or cookie_parser(headers.get("cookie", "")).get(
                self._policy.cookie_name, ""
            )
            if not self._policy.is_valid_token(given_token):
                return f"The token is missing or wrong. {ADDRESS}"
            if method not in SAFE and origin is None:
                return "A request that changes something must have an Origin header."
        return ""

    def _redeem_ticket(self, query: QueryParams, path: str) -> bool:
        ticket = query.get("ticket", "")
        if path != "/" or ticket not in self._policy.tickets:
            return False
        self._policy.tickets.discard(ticket)
        return True

    def _redirect_without_token(self, query: QueryParams) -> Response:
        """Move the token from the URL, which people see and share, into a cookie."""
        kept_params = [(key, value) for key, value in query.multi_items() if key not in ("token", "ticket")]
        rest = urlencode(kept_params)
        reply = RedirectResponse(f"/?{rest}" if rest else "/", 303, {"Cache-Control": "no-store"})
        reply.set_cookie(self._policy.cookie_name, self._policy.token, httponly=True, samesite="strict")
        return reply
