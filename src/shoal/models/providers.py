"""Providers: their addresses, their protocols, and creation of their models behind the port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import UnknownModel
from shoal.core.ports import Model
from shoal.core.usage import ModelCard
from shoal.models import catalogue
from shoal.models.faults import Asked
from shoal.models.http import Deadlines, Endpoint, fetched

_AGENT = {"User-Agent": "shoal"}
_MESSAGES_VERSION = "2023-06-01"
_PATHS = {"messages": "/messages", "chat": "/chat/completions", "responses": "/responses"}


class Provider(Struct, frozen=True, kw_only=True):
    api: Literal["messages", "chat", "responses"]
    base_url: str
    key_variable: str = ""


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        api="messages",
        base_url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN",
    ),
    "openai": Provider(api="chat", base_url="https://api.openai.com/v1", key_variable="OPENAI_API_KEY"),
    "openai-responses": Provider(
        api="responses", base_url="https://api.openai.com/v1", key_variable="OPENAI_API_KEY"
    ),
    "openrouter": Provider(
        api="chat", base_url="https://openrouter.ai/api/v1", key_variable="OPENROUTER_API_KEY"
    ),
    "ollama": Provider(api="chat", base_url="http://127.0.0.1:11434/v1"),
}
assert set(PROVIDERS) == set(catalogue.PROVIDERS)


class Access(Struct, frozen=True, kw_only=True):
    """Address and credentials of a provider; None means the provider's default."""

    base_url: str | None = None
    api_key: str | None = None
    auth_token: str | None = None
    proxy: str | None = None
    deadlines: Deadlines | None = None
    betas: tuple[str, ...] = ()
    """Beta flags of the Messages API; not sent to other providers."""


def make_model(provider: str, card: ModelCard, access: Access, *, clock: Clock) -> Model:
    """Create a model without retries (see `RetryingModel`). Raises `UnknownModel`, `BadRequest`."""
    known = PROVIDERS.get(provider)
    if known is None:
        raise UnknownModel(
            f"There is no provider {provider!r}; there are {', '.join(PROVIDERS)}. "
            "A server that speaks Chat Completions is asked as openai, one that speaks the Responses API as "
            "openai-responses, with its base URL.",
            provider=provider,
            model=card.id,
        )
    base = access.base_url or known.base_url
    api = catalogue.api_of(provider, card, base) or known.api
    asked = Asked(
        provider=provider,
        model=card.id,
        url=_joined(base, "/v1", _PATHS[api]),
        key_variable=known.key_variable,
    )
    endpoint = Endpoint(
        asked,
        headers=_AGENT | _headers(api, access),
        clock=clock,
        deadlines=access.deadlines or usual_deadlines(provider),
        proxy=access.proxy,
    )
    return _speaking(api, card, endpoint, base)


def _speaking(api: str, card: ModelCard, endpoint: Endpoint, base: str) -> Model:
    if api == "messages":
        from shoal.models.messages_api import MessagesModel

        return MessagesModel(card, endpoint)
    if api == "responses":
        from shoal.models import responses_api, responses_body

        return responses_api.ResponsesModel(card, endpoint, responses_body.dialect_of(card.id, base))
    from shoal.models.chat_api import ChatModel
    from shoal.models.chat_body import dialect_of

    return ChatModel(card, endpoint, dialect_of(endpoint.asked.provider, card.id, base))


def usual_deadlines(provider: str) -> Deadlines:
    if provider == "anthropic":  # which sends pings
        return Deadlines()
    # No byte arrives while a model reasons, or while a local server loads it or reads a long prompt.
    return Deadlines(first_byte=900.0, gap=600.0)


def _headers(api: str, access: Access) -> dict[str, str]:
    key, token = (access.api_key or "").strip(), (access.auth_token or "").strip()
    if api == "messages":
        headers = {"anthropic-version": _MESSAGES_VERSION}
        if access.betas:
            headers["anthropic-beta"] = ",".join(access.betas)
        if key:
            headers["x-api-key"] = key
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers
    return {"Authorization": f"Bearer {key or token}"} if key or token else {}


def _joined(base_url: str, version: str, path: str) -> str:
    """Return the request URL; a base URL may end before, after or with its version, or be complete."""
    url = urlsplit(base_url.strip())
    base = url.path.rstrip("/")
    if base.endswith(path):
        path = ""
    elif not base or (path == "/messages" and not base.endswith(version)):
        path = version + path
    return urlunsplit(url._replace(path=base + path, fragment=""))


async def find_ollama(base_url: str | None = None, *, within: float = 0.3) -> list[str]:
    """Return the models of an Ollama at the address; empty if it does not answer quickly."""
    base = urlsplit(base_url or PROVIDERS["ollama"].base_url)
    found = await fetched(urlunsplit(base._replace(path="/api/tags")), clock=SystemClock(), within=within)
    rows: Any = found.get("models") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        return []
    return [row["name"] for row in rows if isinstance(row, dict) and isinstance(row.get("name"), str)]


async def find_served(base_url: str, *, within: float = 1.0) -> list[str]:
    """Return the models of a self-hosted server; empty if it does not answer quickly."""
    found = await fetched(f"{base_url.rstrip('/')}/models", clock=SystemClock(), within=within)
    return _listed(found) or []


async def find_offered(provider: str, access: Access, *, within: float) -> list[str] | None:
    """Return the models that a provider lists for this key; None if it does not answer quickly."""
    known = PROVIDERS[provider]
    base = urlsplit(access.base_url or known.base_url)
    path = base.path.rstrip("/")
    for end in _PATHS.values():
        path = path.removesuffix(end)
    if not path or (known.api == "messages" and not path.endswith("/v1")):
        path += "/v1"
    url = urlunsplit(base._replace(path=f"{path}/models", fragment=""))
    headers = _AGENT | _headers(known.api, access)
    if any(bad in value for value in headers.values() for bad in "\r\n\0"):
        return None
    found = await fetched(url, clock=SystemClock(), within=within, headers=headers, proxy=access.proxy)
    return _listed(found)


def _listed(found: Any) -> list[str] | None:
    rows: Any = found.get("data") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        return None
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
