"""Providers: their addresses, their protocols, and creation of their models behind the port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from shoal.core.budgets.usage import ModelCard
from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import UnknownModel
from shoal.core.ports import Model
from shoal.core.tls_contexts import TlsVariables
from shoal.models import catalogue
from shoal.models.model_endpoint import (
    KeySource,
    ModelEndpoint,
    ProviderHttpTimeouts,
    fetch_json_or_none,
)
from shoal.models.model_errors import ModelRequestTarget

_USER_AGENT_HEADER = {"User-Agent": "shoal"}
_MESSAGES_VERSION = "2023-06-01"
_PATHS = {"messages": "/messages", "chat": "/chat/completions", "responses": "/responses"}


class ModelProviderInfo(Struct, frozen=True, kw_only=True):
    api: Literal["messages", "chat", "responses"]
    base_url: str
    key_variable: str = ""


PROVIDERS: Mapping[str, ModelProviderInfo] = {
    "anthropic": ModelProviderInfo(
        api="messages",
        base_url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN",
    ),
    "openai": ModelProviderInfo(
        api="chat", base_url="https://api.openai.com/v1", key_variable="OPENAI_API_KEY"
    ),
    "openai-responses": ModelProviderInfo(
        api="responses", base_url="https://api.openai.com/v1", key_variable="OPENAI_API_KEY"
    ),
    "openrouter": ModelProviderInfo(
        api="chat", base_url="https://openrouter.ai/api/v1", key_variable="OPENROUTER_API_KEY"
    ),
    "ollama": ModelProviderInfo(api="chat", base_url="http://127.0.0.1:11434/v1"),
}
assert set(PROVIDERS) == set(catalogue.PROVIDERS)


class ProviderAccess(Struct, frozen=True, kw_only=True):
    """Address and credentials of a provider; None means the provider's default."""

    base_url: str | None = None
    api_key: str | None = None
    auth_token: str | None = None
    proxy: str | None = None
    tls: TlsVariables | None = None
    """Variables that name certificates; None means those of the process."""
    deadlines: ProviderHttpTimeouts | None = None
    betas: tuple[str, ...] = ()
    """Beta flags of the Messages API; not sent to other providers."""
    key_source: KeySource | None = None
    """Source of keys that change while the model is in use; for the Messages API."""
    headers: tuple[tuple[str, str], ...] = ()
    """Additional headers of each request."""


def create_model(provider: str, card: ModelCard, access: ProviderAccess, *, clock: Clock) -> Model:
    """Create a model without retries (see `RetryingModel`). Raises `UnknownModel`, `BadRequest`."""
    info = PROVIDERS.get(provider)
    if info is None:
        raise UnknownModel(
            f"There is no provider {provider!r}. Providers: {', '.join(PROVIDERS)}. For another server, "
            "use openai (Chat Completions) or openai-responses (Responses API) with its base URL.",
            provider=provider,
            model=card.id,
        )
    base_url = access.base_url or info.base_url
    api = catalogue.select_openai_api(provider, card, base_url) or info.api
    target = ModelRequestTarget(
        provider=provider,
        model=card.id,
        url=_build_provider_request_url(base_url, "/v1", _PATHS[api]),
        key_variable=info.key_variable,
    )
    endpoint = ModelEndpoint(
        target,
        headers=_USER_AGENT_HEADER | _build_provider_headers(api, access),
        clock=clock,
        deadlines=access.deadlines or get_default_http_deadlines(provider),
        proxy=access.proxy,
        tls=access.tls,
        key_source=access.key_source,
    )
    return _create_api_model(api, card, endpoint, base_url)


def _create_api_model(api: str, card: ModelCard, endpoint: ModelEndpoint, base_url: str) -> Model:
    if api == "messages":
        from shoal.models.messages_api import MessagesApiModel

        return MessagesApiModel(card, endpoint)
    if api == "responses":
        from shoal.models import responses_api, responses_body

        return responses_api.ResponsesApiModel(
            card, endpoint, responses_body.select_responses_dialect(card.id, base_url)
        )
    from shoal.models.chat_api import ChatCompletionsApiModel
    from shoal.models.chat_body import select_chat_dialect

    return ChatCompletionsApiModel(
        card, endpoint, select_chat_dialect(endpoint.target.provider, card.id, base_url)
    )


def get_default_http_deadlines(provider: str) -> ProviderHttpTimeouts:
    if provider == "anthropic":  # which sends pings
        return ProviderHttpTimeouts()
    # No byte arrives while a model reasons, or while a local server loads it or reads a long prompt.
    return ProviderHttpTimeouts(first_byte=900.0, gap=600.0)


def _build_provider_headers(api: str, access: ProviderAccess) -> dict[str, str]:
    key, token = (access.api_key or "").strip(), (access.auth_token or "").strip()
    if api == "messages":
        headers = {"anthropic-version": _MESSAGES_VERSION}
        if access.betas:
            headers["anthropic-beta"] = ",".join(access.betas)
        if key:
            headers["x-api-key"] = key
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return _merge_headers(headers, access.headers)
    return {"Authorization": f"Bearer {key or token}"} if key or token else {}


def _merge_headers(headers: dict[str, str], additional: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return both; an additional header replaces one of the same name, and betas are joined."""
    names = {name.lower(): name for name in headers}
    for name, value in additional:
        known_name = names.get(name.lower(), name)
        is_joined = name.lower() == "anthropic-beta" and known_name in headers
        headers[known_name] = f"{headers[known_name]},{value}" if is_joined else value
    return headers


def _build_provider_request_url(base_url: str, version: str, path: str) -> str:
    """Return the request URL; a base URL may end before, after or with its version, or be complete."""
    url = urlsplit(base_url.strip())
    base = url.path.rstrip("/")
    if base.endswith(path):
        path = ""
    elif not base or (path == "/messages" and not base.endswith(version)):
        path = version + path
    return urlunsplit(url._replace(path=base + path, fragment=""))


async def list_ollama_models(base_url: str | None = None, *, timeout: float = 0.3) -> list[str]:
    """Return the models of an Ollama at the address; empty if it does not answer quickly."""
    base = urlsplit(base_url or PROVIDERS["ollama"].base_url)
    answer = await fetch_json_or_none(
        urlunsplit(base._replace(path="/api/tags")), clock=SystemClock(), timeout=timeout
    )
    rows: Any = answer.get("models") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        return []
    return [row["name"] for row in rows if isinstance(row, dict) and isinstance(row.get("name"), str)]


async def list_openai_server_models(base_url: str, *, timeout: float = 1.0) -> list[str]:
    """Return the models of a self-hosted server; empty if it does not answer quickly."""
    answer = await fetch_json_or_none(f"{base_url.rstrip('/')}/models", clock=SystemClock(), timeout=timeout)
    return _parse_model_ids(answer) or []


async def list_provider_models(provider: str, access: ProviderAccess, *, timeout: float) -> list[str] | None:
    """Return the models that a provider lists for this key; None if it does not answer quickly."""
    info = PROVIDERS[provider]
    base = urlsplit(access.base_url or info.base_url)
    path = base.path.rstrip("/")
    for suffix in _PATHS.values():
        path = path.removesuffix(suffix)
    if not path or (info.api == "messages" and not path.endswith("/v1")):
        path += "/v1"
    url = urlunsplit(base._replace(path=f"{path}/models", fragment=""))
    headers = _USER_AGENT_HEADER | _build_provider_headers(info.api, access)
    if any(character in value for value in headers.values() for character in "\r\n\0"):
        return None
    answer = await fetch_json_or_none(
        url, clock=SystemClock(), timeout=timeout, headers=headers, proxy=access.proxy, tls=access.tls
    )
    return _parse_model_ids(answer)


def _parse_model_ids(answer: Any) -> list[str] | None:
    rows: Any = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        return None
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
