"""Known models: names, prices, context windows. The data is in `catalogue.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from shoal.core.errors import SettingsError, UnknownModel
from shoal.core.usage import LongPrompt, ModelCard, Price

PROVIDERS = ("anthropic", "openai", "openai-responses", "openrouter", "ollama")
_DATED = re.compile(r"(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-latest|-v\d+(?::\d+)?)$")
_LOCAL_TAG = re.compile(r"[^:/]+(?:/[^:]+)?:(?:latest|[ae]?\d+(?:\.\d+)?[bm]\b.*|q\d.*|\d.*)", re.IGNORECASE)


class LongEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens: int
    input: float
    output: float
    cache_write: float | None = None
    cache_read: float | None = None


class CardEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Entry of a model: prices in US dollars per million tokens. Omitted fields are unknown."""

    input: float | None = None
    output: float | None = None
    cache_write: float | None = None
    cache_read: float | None = None
    beyond: LongEntry | None = None
    window: int | None = None
    max_output: int | None = None
    images: bool | None = None
    tools: bool | None = None
    provider: str | None = None
    api: Literal["chat", "responses"] | None = None
    """The OpenAI API to use; in built-in entries it applies to OpenAI's own address only."""


class _Catalogue(Struct, frozen=True, kw_only=True):
    aliases: dict[str, dict[str, str]]
    models: dict[str, dict[str, CardEntry]]


class Resolved(NamedTuple):
    provider: str
    id: str
    card: ModelCard


@lru_cache(maxsize=1)
def _catalogue() -> _Catalogue:
    data = Path(__file__).with_name("catalogue.json").read_bytes()
    return msgspec.json.decode(data, type=_Catalogue)


def resolve(
    name: str,
    *,
    provider: str | None = None,
    models: Mapping[str, Any] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Resolved:
    """Return the model for `provider:name`, an id or an alias.

    `provider` resolves a bare alias, and is the default for a name that implies no provider. `models` and
    `aliases` come from the user's settings. Raises `UnknownModel` or `SettingsError`.
    """
    own = {key: own_entry(key, value) for key, value in (models or {}).items()}
    name = (aliases or {}).get(name, name).strip()
    given, model = _split(name)
    chosen = given or _provider_of(model, own) or provider
    if model in _alias_names():
        chosen = given or provider or "anthropic"
        model = _aliases(chosen).get(model, model)
    if chosen is None or not model:
        raise _unknown(name, own)
    return Resolved(chosen, model, card_of(chosen, model, own=own))


def names_of(card: ModelCard) -> set[str]:
    """Return the names that mean the current model.

    An alias does if the model belongs to its family. Every alias does if the provider has no model for it, or
    if the model is in no list: a self-hosted server does not have the vendor's other models.
    """
    aliases = _aliases(card.provider) if _rows(card.provider, card.id) else {}
    others = {alias for alias, model in aliases.items() if _family(model) != _family(card.id)}
    return {card.id, f"{card.provider}:{card.id}"} | (_alias_names() - others)


def beside(name: str, card: ModelCard) -> str:
    """Return the name for `resolve_model`, with a bare alias bound to the current model's provider."""
    return f"{card.provider}:{name}" if name in _aliases(card.provider) else name


def card_of(provider: str, model: str, *, own: Mapping[str, CardEntry] | None = None) -> ModelCard:
    """Return the known facts about the model; user entries override built-in ones."""
    known: dict[str, Any] = {}
    for row in (*reversed(_rows(provider, model)), *_own_rows(provider, model, own or {})):
        told = ((field, getattr(row, field)) for field in row.__struct_fields__)
        known |= {field: value for field, value in told if value is not None}
    card: dict[str, Any] = {
        field: known[field] for field in ("window", "max_output", "images", "tools") if field in known
    }
    own_api = next((row.api for row in _own_rows(provider, model, own or {}) if row.api), None)
    return ModelCard(id=model, provider=provider, price=_price(known), api=own_api, **card)


def api_of(provider: str, card: ModelCard, base_url: str) -> Literal["chat", "responses"] | None:
    """Return which of OpenAI's two APIs the model uses; None if the provider has only one."""
    if provider != "openai":
        return None
    if card.api is not None:
        return card.api
    if not is_openai(base_url):
        return None
    return next((row.api for row in _rows(provider, card.id) if row.api is not None), None)


def is_openai(base_url: str) -> bool:
    """Return True if this is OpenAI itself, not a compatible server."""
    return f".{urlsplit(base_url).hostname}".endswith((".openai.com", ".azure.com"))


def is_own_machine(base_url: str) -> bool:
    return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")


def _aliases(provider: str) -> dict[str, str]:
    return _catalogue().aliases.get(_maker(provider), {})


def _maker(provider: str) -> str:
    return "openai" if provider == "openai-responses" else provider


def own_entry(name: str, value: Any) -> CardEntry:
    """Parse a model entry of the user's settings."""
    try:
        return msgspec.convert(value, CardEntry)
    except msgspec.ValidationError as error:
        fields = ", ".join(CardEntry.__struct_fields__)
        raise SettingsError(
            f'The setting "models", "{name}" cannot be used: {error}. Known fields are {fields}.'
        ) from error


def known_models(provider: str) -> list[str]:
    """Return the ids that have their own entry, not only one for their family."""
    return [name for name in _catalogue().models.get(_maker(provider), {}) if "*" not in name]


def aliases_of(provider: str) -> Mapping[str, str]:
    return _aliases(provider)


def similar(name: str, *, own: Mapping[str, Any] | None = None) -> list[str]:
    """Return similar names that the user may have meant."""
    from difflib import get_close_matches

    rows = _catalogue().models
    names = {model for provider in rows.values() for model in provider if "*" not in model}
    bare = name.partition(":")[2] if name.partition(":")[0] in PROVIDERS else name
    known = sorted({*names, *_alias_names(), *(own or {})} - {name, bare})
    return get_close_matches(bare.lower(), known, n=3, cutoff=0.7)


def version_of(model: str) -> tuple[int, int]:
    """Return (4, 5) for claude-sonnet-4-5-20250929; (0, 0) for a name without a version."""
    words = re.split(r"[-.@/: ]", model)
    numbers = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 2]
    major, minor = (*numbers, 0, 0)[:2]
    return major, minor


def _family(model: str) -> str:
    """Return claude-sonnet for claude-sonnet-4-5-20250929 and for claude-3-7-sonnet-latest."""
    words = re.split(r"[-.@:]", _DATED.sub("", model))
    return "-".join(word for word in words if not word.isdigit())


def _alias_names() -> set[str]:
    return {alias for aliases in _catalogue().aliases.values() for alias in aliases}


def _split(name: str) -> tuple[str | None, str]:
    head, colon, rest = name.partition(":")
    return (head, rest) if colon and head in PROVIDERS else (None, name)


def _provider_of(model: str, own: Mapping[str, CardEntry]) -> str | None:
    if model in own and own[model].provider is not None:
        return own[model].provider
    if model.startswith("claude"):
        return "anthropic"
    if re.match(r"(?:gpt-|o\d|chatgpt|codex)", model) and not model.startswith("gpt-oss"):
        return "openai"
    if _LOCAL_TAG.fullmatch(model):
        return "ollama"
    return "openrouter" if re.fullmatch(r"[\w.-]+/[\w.:-]+", model) else None


def _unknown(name: str, own: Mapping[str, CardEntry]) -> UnknownModel:
    close = similar(name, own=own)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return UnknownModel(
        f"There is no model {name!r}.{hint} Write provider:name, where the provider is one of "
        f"{', '.join(PROVIDERS)}.",
        model=name,
    )


def _own_rows(provider: str, model: str, own: Mapping[str, CardEntry]) -> list[CardEntry]:
    return [own[name] for name in (model, f"{provider}:{model}") if name in own]


def _rows(provider: str, model: str) -> list[CardEntry]:
    """Return the matching entries, the closest first: the id, the id without its date, families.

    Entries of paid families have no price: their next release may cost anything.
    """
    if provider == "openrouter":  # uses vendor/name for models of others, with dots for dashes
        maker, _, model = model.partition(":")[0].rpartition("/")
        provider = maker
        model = model.replace(".", "-") if maker == "anthropic" else model
    table = _catalogue().models.get(_maker(provider), {})
    undated = _DATED.sub("", model)
    exact = [table[name] for name in dict.fromkeys((model, undated)) if name in table]
    families = [row for name, row in table.items() if "*" in name and fnmatchcase(model, name)]
    return exact + families


def _price(known: Mapping[str, Any]) -> Price | None:
    if "input" not in known or "output" not in known:
        return None
    beyond: LongEntry | None = known.get("beyond")
    return Price(
        input=known["input"],
        output=known["output"],
        cache_write=known.get("cache_write"),
        cache_read=known.get("cache_read"),
        beyond=None
        if beyond is None
        else LongPrompt(
            tokens=beyond.tokens,
            price=Price(
                input=beyond.input,
                output=beyond.output,
                cache_write=beyond.cache_write,
                cache_read=beyond.cache_read,
            ),
        ),
    )
