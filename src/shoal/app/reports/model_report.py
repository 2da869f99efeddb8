"""Report on models: providers with their keys, known models, and models that servers offer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from shoal.app.models.model_choice import build_provider_access
from shoal.app.settings.provider_credentials import PROVIDER_KEYS
from shoal.app.settings.settings import Settings
from shoal.core.budgets.usage import ModelCard

LISTING_TIMEOUT = 2.0
"""Seconds a server has to list its models."""


class ModelProviderReportRow(Struct, frozen=True, kw_only=True):
    name: str
    address: str
    key: str | None
    """Origin of the key, never the key itself."""
    key_variable: str
    configured: bool
    offered: tuple[str, ...] | None
    """Models it lists; None if it was not asked or did not answer in time."""


class ModelReportRow(Struct, frozen=True, kw_only=True):
    provider: str
    id: str
    aliases: tuple[str, ...]
    default: bool
    configured: bool
    """True if its provider can be asked."""
    offered: bool | None
    """True if its provider lists it; None if the provider gave no list."""
    window: int
    max_output: int
    input: float | None
    """Dollars per million tokens; None if unknown."""
    output: float | None
    cache_write: float | None
    cache_read: float | None


class ModelReport(Struct, frozen=True, kw_only=True):
    default: str | None
    """Configured model; None if the model is detected."""
    default_origin: str
    providers: tuple[ModelProviderReportRow, ...]
    models: tuple[ModelReportRow, ...]


async def build_model_report(settings: Settings, *, within: float = LISTING_TIMEOUT) -> ModelReport:
    """Build the report. Usable providers are asked for their lists concurrently; the others are not asked."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_query_provider_models(name, settings, within)) for name in PROVIDER_KEYS]
    providers = tuple(task.result() for task in tasks)
    return ModelReport(
        default=settings.models.main,
        default_origin=settings.find_setting_origin("model"),
        providers=providers,
        models=tuple(_iter_model_rows(settings, providers)),
    )


async def _query_provider_models(name: str, settings: Settings, timeout: float) -> ModelProviderReportRow:
    from shoal.models.providers import PROVIDERS, list_ollama_models, list_provider_models

    definition, access = PROVIDERS[name], build_provider_access(name, settings)
    keys = [settings.find_setting_origin(key) for key in PROVIDER_KEYS[name] if getattr(settings.access, key)]
    is_usable = bool(keys or access.base_url)
    offered: list[str] | None = None
    if name == "ollama":
        offered = await list_ollama_models(access.base_url, timeout=timeout) or None
        is_usable = offered is not None
    elif is_usable:
        offered = await list_provider_models(name, access, timeout=timeout)
    return ModelProviderReportRow(
        name=name,
        address=access.base_url or definition.base_url,
        key=" and ".join(keys) or None,
        key_variable=definition.key_variable,
        configured=is_usable,
        offered=None if offered is None else tuple(offered),
    )


def _iter_model_rows(
    settings: Settings, providers: Sequence[ModelProviderReportRow]
) -> Iterator[ModelReportRow]:
    from shoal.models.catalogue import get_model_aliases, list_catalogue_model_ids

    custom_models = dict(_iter_custom_models(settings))
    chosen = _resolve_model_card(settings.models.main, settings)
    for row in providers:
        custom_names = [name for name, provider in custom_models.items() if provider == row.name]
        names = dict.fromkeys(
            (*list_catalogue_model_ids(row.name), *custom_names, *_list_custom_server_models(row))
        )
        if chosen is not None and chosen.provider.removesuffix("-responses") == row.name:
            names |= {chosen.id: None}
        aliases: dict[str, tuple[str, ...]] = {}
        for alias, name in (*get_model_aliases(row.name).items(), *_iter_custom_aliases(settings, row.name)):
            aliases[name] = (*aliases.get(name, ()), alias)
        for name in names:
            card = _resolve_model_card(f"{row.name}:{name}", settings)
            if card is not None:
                is_default = chosen is not None and chosen.id == card.id and name == chosen.id
                yield _make_model_row(card, row, aliases.get(name, ()), is_default=is_default)


def _list_custom_server_models(row: ModelProviderReportRow) -> tuple[str, ...]:
    """Return all models of a custom server, and none of a hosted provider, which has hundreds of others."""
    from shoal.models.providers import PROVIDERS

    is_hosted = row.address == PROVIDERS[row.name].base_url and row.name != "ollama"
    return () if is_hosted or row.offered is None else row.offered


def _make_model_row(
    card: ModelCard, provider: ModelProviderReportRow, aliases: tuple[str, ...], *, is_default: bool
) -> ModelReportRow:
    price = card.price
    return ModelReportRow(
        provider=provider.name,
        id=card.id,
        aliases=aliases,
        default=is_default,
        configured=provider.configured,
        offered=None if provider.offered is None else card.id in provider.offered,
        window=card.window,
        max_output=card.max_output,
        input=None if price is None else price.input,
        output=None if price is None else price.output,
        cache_write=None if price is None else price.cache_write,
        cache_read=None if price is None else price.cache_read,
    )


def _resolve_model_card(name: str | None, settings: Settings) -> ModelCard | None:
    from shoal.core.errors import ShoalError
    from shoal.models.catalogue import resolve_model

    if name is None or name.partition(":")[0] in ("scripted", "replay"):
        return None
    model_settings: dict[str, Any] = {
        key: msgspec.to_builtins(value) for key, value in settings.own.models.items()
    }
    try:
        return resolve_model(name, models=model_settings, aliases=settings.model_aliases).card
    except ShoalError:
        return None


def _iter_custom_models(settings: Settings) -> Iterator[tuple[str, str]]:
    for name in settings.own.models:
        card = _resolve_model_card(name, settings)
        if card is not None:
            yield card.id, card.provider.removesuffix("-responses")


def _iter_custom_aliases(settings: Settings, provider: str) -> Iterator[tuple[str, str]]:
    for alias, name in settings.model_aliases.items():
        card = _resolve_model_card(name, settings)
        if card is not None and card.provider.removesuffix("-responses") == provider:
            yield alias, card.id
