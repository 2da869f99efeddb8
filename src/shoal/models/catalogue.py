"""Known models: names, prices, context windows. The data is in `catalogue.json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shoal.core.budgets.usage import LongPromptPrice, ModelCard, TokenPrice
from shoal.core.errors import SettingsError, UnknownModel
from shoal.core.text.name_suggestions import find_similar_names

PROVIDERS = ("anthropic", "openai", "openai-responses", "openrouter", "ollama")
_VERSION_SUFFIX = re.compile(r"(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-latest|-v\d+(?::\d+)?)$")
_CLOUD_ID = re.compile(r"arn:.*|.+-v\d+:\d+(?::\w+)?", re.IGNORECASE)
"""Ids of Amazon Bedrock: `us.anthropic.claude-opus-4-1-20250805-v1:0`, or an ARN."""
_CLOUD_AFFIXES = re.compile(r"^(?:arn:[^/]*/)?(?:[\w-]+\.)*anthropic\.|-v\d+:\d+(?::\w+)?$", re.IGNORECASE)
"""Parts of such an id around the name of Anthropic's model."""
_LONG_CONTEXT_SUFFIX = "[1m]"
_LONG_CONTEXT_WINDOW = 1_000_000
_PLAN_ALIAS = "opusplan"
_WORD_ALIAS = "best"
"""An alias that is like many words, such as test and beta, which are names of deployments."""
_ALIAS_SIMILARITY = 0.8
_LOCAL_TAG = re.compile(r"[^:/]+(?:/[^:]+)?:(?:latest|[ae]?\d+(?:\.\d+)?[bm]\b.*|q\d.*|\d.*)", re.IGNORECASE)


class LongPromptPriceEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens: int
    input: float
    output: float
    cache_write: float | None = None
    cache_read: float | None = None


class ModelCatalogueEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Entry of a model: prices in US dollars per million tokens. Omitted fields are unknown."""

    input: float | None = None
    output: float | None = None
    cache_write: float | None = None
    cache_read: float | None = None
    beyond: LongPromptPriceEntry | None = None
    window: int | None = None
    max_output: int | None = None
    images: bool | None = None
    tools: bool | None = None
    provider: str | None = None
    api: Literal["chat", "responses"] | None = None
    """The OpenAI API to use; in built-in entries it applies to OpenAI's own address only."""


class _ModelCatalogueData(Struct, frozen=True, kw_only=True):
    aliases: dict[str, dict[str, str]]
    models: dict[str, dict[str, ModelCatalogueEntry]]


class ResolvedModelReference(NamedTuple):
    provider: str
    id: str
    card: ModelCard
    needs_long_context_beta: bool = False
    """True if the name ends in `[1m]` and the model has a smaller window without a beta."""


@lru_cache(maxsize=1)
def _load_model_catalogue() -> _ModelCatalogueData:
    data = Path(__file__).with_name("catalogue.json").read_bytes()
    return msgspec.json.decode(data, type=_ModelCatalogueData)


def resolve_model(
    name: str,
    *,
    provider: str | None = None,
    models: Mapping[str, Any] | None = None,
    aliases: Mapping[str, str] | None = None,
    max_output: int | None = None,
) -> ResolvedModelReference:
    """Return the model for `provider:name`, an id or an alias.

    `provider` resolves a bare alias, and is the default for a name that implies no provider. `models` and
    `aliases` come from the user's settings, and so does `max_output`, the maximum length of a reply of a
    model about which nothing else is known. Raises `UnknownModel` or `SettingsError`.
    """
    overrides = {key: parse_model_settings_entry(key, value) for key, value in (models or {}).items()}
    name, is_long = split_long_context_suffix(name)
    name, is_alias_long = split_long_context_suffix(_expand_alias(name, aliases or {}))
    named_provider, model = _split_provider_prefix(name)
    if model.lower() in (_PLAN_ALIAS, *_list_model_alias_names()):
        model = model.lower()
    if model == _PLAN_ALIAS:
        model = "sonnet"
    if named_provider is None and is_cloud_model_id(model) and model not in overrides:
        raise _build_cloud_model_error(name)
    chosen_provider = named_provider or _guess_model_provider(model, overrides)
    if chosen_provider is None and (":" not in model or model in overrides):
        if provider is not None and model not in overrides and _is_misspelled_alias(model, aliases or {}):
            raise _build_unknown_model_error(name, (*overrides, *(aliases or ())))
        chosen_provider = provider
    if model in _list_model_alias_names():
        chosen_provider = named_provider or provider or "anthropic"
        model = _find_model_aliases(chosen_provider).get(model, model)
    if chosen_provider is None or not model:
        raise _build_unknown_model_error(name, overrides)
    card = get_model_card(chosen_provider, model, overrides=overrides, max_output=max_output)
    needs_beta = (is_long or is_alias_long) and chosen_provider == "anthropic"
    needs_beta = needs_beta and card.window < _LONG_CONTEXT_WINDOW
    if needs_beta:
        card = replace(card, window=_LONG_CONTEXT_WINDOW)
    return ResolvedModelReference(chosen_provider, model, card, needs_beta)


def _expand_alias(name: str, aliases: Mapping[str, str]) -> str:
    """Return the meaning of an alias; `anthropic:opus` is what `opus` means, if that is a model there."""
    provider, alias = _split_provider_prefix(name)
    meaning = aliases.get(alias, name)
    return meaning if provider is None or meaning.startswith(f"{provider}:") else name


def split_long_context_suffix(name: str) -> tuple[str, bool]:
    """Return the name without the suffix `[1m]`, and True if it had the suffix."""
    name = name.strip()
    if name.lower().endswith(_LONG_CONTEXT_SUFFIX):
        return name[: -len(_LONG_CONTEXT_SUFFIX)].rstrip(), True
    return name, False


def split_plan_alias(name: str) -> tuple[str, str] | None:
    """Return the names for plan mode and for other modes if the name is `opusplan`; None for others."""
    base, is_long = split_long_context_suffix(name)
    provider, model = _split_provider_prefix(base)
    if model.lower() != _PLAN_ALIAS:
        return None
    prefix, suffix = f"{provider}:" if provider else "", _LONG_CONTEXT_SUFFIX if is_long else ""
    return f"{prefix}opus{suffix}", f"{prefix}sonnet{suffix}"


def is_cloud_model_id(name: str) -> bool:
    """Return True for an id of Amazon Bedrock, whose colon separates no provider and no tag."""
    return _CLOUD_ID.fullmatch(name) is not None


def list_equivalent_model_names(card: ModelCard) -> set[str]:
    """Return the names that mean the current model.

    An alias does if the model belongs to its family. Every alias does if the provider has no model for it, or
    if the model is in no list: a self-hosted server does not have the vendor's other models.
    """
    aliases = _find_model_aliases(card.provider) if _find_catalogue_entries(card.provider, card.id) else {}
    other_aliases = {
        alias for alias, model in aliases.items() if _get_model_family(model) != _get_model_family(card.id)
    }
    names = {card.id, f"{card.provider}:{card.id}"} | (_list_model_alias_names() - other_aliases)
    return names if aliases else names | {_PLAN_ALIAS}


def qualify_model_alias(name: str, card: ModelCard) -> str:
    """Return the name for `resolve_model`, with a bare alias bound to the current model's provider."""
    alias = split_long_context_suffix(name)[0]
    is_alias = alias == _PLAN_ALIAS or alias in _find_model_aliases(card.provider)
    return f"{card.provider}:{name}" if is_alias else name


def get_model_card(
    provider: str,
    model: str,
    *,
    overrides: Mapping[str, ModelCatalogueEntry] | None = None,
    max_output: int | None = None,
) -> ModelCard:
    """Return the known facts about the model; user entries override built-in ones.

    `max_output` applies if the length of a reply is unknown, unless the default is larger.
    """
    values: dict[str, Any] = {}
    for row in (
        *reversed(_find_catalogue_entries(provider, model)),
        *_find_model_override_entries(provider, model, overrides or {}),
    ):
        fields = ((field, getattr(row, field)) for field in row.__struct_fields__)
        values |= {field: value for field, value in fields if value is not None}
    card: dict[str, Any] = {
        field: values[field] for field in ("window", "max_output", "images", "tools") if field in values
    }
    api = next(
        (row.api for row in _find_model_override_entries(provider, model, overrides or {}) if row.api), None
    )
    found = ModelCard(id=model, provider=provider, price=_build_token_price(values), api=api, **card)
    is_longer = "max_output" not in values and (max_output or 0) > found.max_output
    return replace(found, max_output=max_output) if is_longer else found


def select_openai_api(provider: str, card: ModelCard, base_url: str) -> Literal["chat", "responses"] | None:
    """Return which of OpenAI's two APIs the model uses; None if the provider has only one."""
    if provider != "openai":
        return None
    if card.api is not None:
        return card.api
    if not is_openai_url(base_url):
        return None
    return next((row.api for row in _find_catalogue_entries(provider, card.id) if row.api is not None), None)


def is_openai_url(base_url: str) -> bool:
    """Return True if this is OpenAI itself, not a compatible server."""
    return f".{urlsplit(base_url).hostname}".endswith((".openai.com", ".azure.com"))


def is_local_url(base_url: str) -> bool:
    return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")


def _find_model_aliases(provider: str) -> dict[str, str]:
    return _load_model_catalogue().aliases.get(_get_catalogue_provider(provider), {})


def _get_catalogue_provider(provider: str) -> str:
    return "openai" if provider == "openai-responses" else provider


def parse_model_settings_entry(name: str, value: Any) -> ModelCatalogueEntry:
    """Parse a model entry of the user's settings."""
    try:
        return msgspec.convert(value, ModelCatalogueEntry)
    except msgspec.ValidationError as error:
        fields = ", ".join(ModelCatalogueEntry.__struct_fields__)
        raise SettingsError(
            f'The setting "models", "{name}" is not valid: {error}. Known fields: {fields}.'
        ) from error


def list_catalogue_model_ids(provider: str) -> list[str]:
    """Return the ids that have their own entry, not only one for their family."""
    return [
        name
        for name in _load_model_catalogue().models.get(_get_catalogue_provider(provider), {})
        if "*" not in name
    ]


def get_model_aliases(provider: str) -> Mapping[str, str]:
    return _find_model_aliases(provider)


def suggest_similar_model_names(name: str, configured: Iterable[str] = ()) -> list[str]:
    """Return similar names that the user may have meant. `configured` are names from their settings."""
    from difflib import get_close_matches

    by_provider = _load_model_catalogue().models
    names = {model for provider in by_provider.values() for model in provider if "*" not in model}
    model_name = name.partition(":")[2] if name.partition(":")[0] in PROVIDERS else name
    candidates = sorted({*names, *_list_model_alias_names(), _PLAN_ALIAS, *configured} - {name, model_name})
    return get_close_matches(model_name.lower(), candidates, n=3, cutoff=0.7)


def parse_model_version(model: str) -> tuple[int, int]:
    """Return (4, 5) for claude-sonnet-4-5-20250929; (0, 0) for a name without a version."""
    words = re.split(r"[-.@/: ]", model)
    numbers = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 2]
    major, minor = (*numbers, 0, 0)[:2]
    return major, minor


def _get_model_family(model: str) -> str:
    """Return claude-sonnet for claude-sonnet-4-5-20250929 and for claude-3-7-sonnet-latest."""
    words = re.split(r"[-.@:]", _VERSION_SUFFIX.sub("", model))
    return "-".join(word for word in words if not word.isdigit())


def _list_model_alias_names() -> set[str]:
    return {alias for aliases in _load_model_catalogue().aliases.values() for alias in aliases}


def _is_misspelled_alias(model: str, aliases: Mapping[str, str]) -> bool:
    """Return True if a name is probably meant to be an alias.

    Ids of models nearly always have a digit or a separator, such as `my-deployment` or `gpt-6`. For one that
    looks like an alias, a person can write `provider:name`.
    """
    known = {*_list_model_alias_names(), *aliases, _PLAN_ALIAS} - {_WORD_ALIAS}
    return (
        model.isalpha()
        and model not in (*known, _WORD_ALIAS)
        and bool(find_similar_names(model, known, _ALIAS_SIMILARITY))
    )


def _split_provider_prefix(name: str) -> tuple[str | None, str]:
    head, colon, rest = name.partition(":")
    return (head, rest) if colon and head in PROVIDERS else (None, name)


def _guess_model_provider(model: str, overrides: Mapping[str, ModelCatalogueEntry]) -> str | None:
    if model in overrides and overrides[model].provider is not None:
        return overrides[model].provider
    if model.startswith("claude"):
        return "anthropic"
    if re.match(r"(?:gpt-|o\d|chatgpt|codex|ft:gpt-)", model) and not model.startswith("gpt-oss"):
        return "openai"
    if _LOCAL_TAG.fullmatch(model):
        return "ollama"
    return "openrouter" if re.fullmatch(r"[\w.-]+/[\w.:-]+", model) else None


def _build_unknown_model_error(name: str, configured: Iterable[str]) -> UnknownModel:
    close = suggest_similar_model_names(name, configured)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return UnknownModel(
        f"There is no model {name!r}.{hint} Write provider:name with one of these providers: "
        f"{', '.join(PROVIDERS)}.",
        model=name,
    )


def _build_cloud_model_error(name: str) -> UnknownModel:
    return UnknownModel(
        f"{name} is an Amazon Bedrock model id, which Shoal cannot use. Choose a model of one of these "
        f"providers: {', '.join(PROVIDERS)}. If a gateway serves this id, set ANTHROPIC_BASE_URL.",
        model=name,
    )


def _find_model_override_entries(
    provider: str, model: str, overrides: Mapping[str, ModelCatalogueEntry]
) -> list[ModelCatalogueEntry]:
    return [overrides[name] for name in (model, f"{provider}:{model}") if name in overrides]


def _find_catalogue_entries(provider: str, model: str) -> list[ModelCatalogueEntry]:
    """Return the matching entries, the closest first: the id, the id without its date, families.

    Entries of paid families have no price: their next release may cost anything.
    """
    if provider == "openrouter":  # uses vendor/name for models of others, with dots for dashes
        maker, _, model = model.partition(":")[0].rpartition("/")
        provider = maker
        model = model.replace(".", "-") if maker == "anthropic" else model
    table = _load_model_catalogue().models.get(_get_catalogue_provider(provider), {})
    if is_cloud_model_id(model):
        model = _CLOUD_AFFIXES.sub("", model)
    base_name = _VERSION_SUFFIX.sub("", model)
    exact = [table[name] for name in dict.fromkeys((model, base_name)) if name in table]
    families = [row for name, row in table.items() if "*" in name and fnmatchcase(model, name)]
    return exact + families


def _build_token_price(values: Mapping[str, Any]) -> TokenPrice | None:
    if "input" not in values or "output" not in values:
        return None
    beyond: LongPromptPriceEntry | None = values.get("beyond")
    return TokenPrice(
        input=values["input"],
        output=values["output"],
        cache_write=values.get("cache_write"),
        cache_read=values.get("cache_read"),
        beyond=None
        if beyond is None
        else LongPromptPrice(
            tokens=beyond.tokens,
            price=TokenPrice(
                input=beyond.input,
                output=beyond.output,
                cache_write=beyond.cache_write,
                cache_read=beyond.cache_read,
            ),
        ),
    )
