"""The usual variables that name proxies for requests."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

_SUFFIX = "_proxy"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ProxyVariables(Struct, frozen=True):
    """Values by name in lower case: `https_proxy`, `http_proxy`, `all_proxy`, `no_proxy`."""

    values: Mapping[str, str] = {}

    def find_proxy(self, url: str) -> str | None:
        """Return the proxy for a URL."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if host in _LOOPBACK or _is_excluded_from_proxy(host, self.values.get("no_proxy", "")):
            return None
        return self.values.get(f"{parts.scheme}{_SUFFIX}") or self.values.get("all_proxy") or None

    def __repr__(self) -> str:
        return "ProxyVariables()"  # the URL of a proxy may contain a password


def read_proxy_variables(environ: Mapping[str, str], user_env: Mapping[str, str]) -> ProxyVariables:
    """Read the variables; `user_env` from the user's settings files overrides the environment."""
    values: dict[str, str] = {}
    for variables in (environ, user_env):
        # The name in lower case overrides the other one.
        for name in sorted(variables):
            if name.lower().endswith(_SUFFIX):
                values[name.lower()] = variables[name]
    return ProxyVariables(values)


def _is_excluded_from_proxy(host: str, exceptions: str) -> bool:
    names = [name.strip().lstrip(".") for name in exceptions.split(",") if name.strip()]
    return "*" in names or any(host == name or host.endswith(f".{name}") for name in names)
