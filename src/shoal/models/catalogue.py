"""What is known about models: names, prices, windows. The facts are data, in `catalogue.json`."""

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
    """A model's row: prices in US dollars per million tokens. What is left out is not known."""

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
    """Of OpenAI's two, the one to ask over; in a row of ours it holds at OpenAI itself alone."""


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
    """The model a person means by `provider:name`, an id or an alias.

    `provider` is whose aliases a bare one is, and who is asked for a name that tells nothing. `models` and
    `aliases` are the person's own, from settings. Raises `UnknownModel` or `SettingsError`.
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
    """The names that mean the model that runs already, to somebody who runs on it.

    An alias does where the model is of its family. So does every alias where the provider has no model for
    it, and where no list has the model: on a server of one's own, a maker's other models are not to be had.
    """
    aliases = _aliases(card.provider) if _rows(card.provider, card.id) else {}
    others = {alias for alias, model in aliases.items() if _family(model) != _family(card.id)}
    return {card.id, f"{card.provider}:{card.id}"} | (_alias_names() - others)


def beside(name: str, card: ModelCard) -> str:
    """The name, for `resolve`: a bare alias is one of the provider of the model that runs already."""
    return f"{card.provider}:{name}" if name in _aliases(card.provider) else name


def card_of(provider: str, model: str, *, own: Mapping[str, CardEntry] | None = None) -> ModelCard:
    """What is known about the model; the person's own rows come before ours."""
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
    """The one of OpenAI's two ways to ask this model; None where the provider has but one."""
    if provider != "openai":
        return None
    if card.api is not None:
        return card.api
    if not is_openai(base_url):
        return None
    return next((row.api for row in _rows(provider, card.id) if row.api is not None), None)


def is_openai(base_url: str) -> bool:
    """Whether this is OpenAI itself, and not a server that imitates it."""
    return f".{urlsplit(base_url).hostname}".endswith((".openai.com", ".azure.com"))


def is_own_machine(base_url: str) -> bool:
    return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")


def _aliases(provider: str) -> dict[str, str]:
    return _catalogue().aliases.get(_maker(provider), {})


def _maker(provider: str) -> str:
    return "openai" if provider == "openai-responses" else provider


def own_entry(name: str, value: Any) -> CardEntry:
    """A row of the person's settings."""
    try:
        return msgspec.convert(value, CardEntry)
    except msgspec.ValidationError as error:
        fields = ", ".join(CardEntry.__struct_fields__)
        raise SettingsError(
            f'The setting "models", "{name}" cannot be used: {error}. Known fields are {fields}.'
        ) from error


def known_models(provider: str) -> list[str]:
    """The ids we have rows of; what has a row for its family alone is not among them."""
    return [name for name in _catalogue().models.get(_maker(provider), {}) if "*" not in name]


def aliases_of(provider: str) -> Mapping[str, str]:
    return _aliases(provider)


def similar(name: str, *, own: Mapping[str, Any] | None = None) -> list[str]:
    """Names a person may have meant."""
    from difflib import get_close_matches

    rows = _catalogue().models
    names = {model for provider in rows.values() for model in provider if "*" not in model}
    bare = name.partition(":")[2] if name.partition(":")[0] in PROVIDERS else name
    known = sorted({*names, *_alias_names(), *(own or {})} - {name, bare})
    return get_close_matches(bare.lower(), known, n=3, cutoff=0.7)


def version_of(model: str) -> tuple[int, int]:
    """(4, 5) for claude-sonnet-4-5-20250929; (0, 0) for a name without a version."""
    words = re.split(r"[-.@/: ]", model)
    numbers = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 2]
    major, minor = (*numbers, 0, 0)[:2]
    return major, minor


def _family(model: str) -> str:
    """claude-sonnet for claude-sonnet-4-5-20250929 and for claude-3-7-sonnet-latest."""
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
    """The rows that fit, the closest first: the id, the id without its date, families.

    A paid family's row has no price: its next release may cost anything.
    """
    if provider == "openrouter":  # names others' models vendor/name, with dots for dashes
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
