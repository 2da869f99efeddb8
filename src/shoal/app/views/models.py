"""Report on models: providers with their keys, known models, and models that servers offer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from shoal.app.models.choosing import access_to
from shoal.app.settings.settings import PROVIDER_KEYS, Settings
from shoal.core.usage import ModelCard

LISTED_WITHIN = 2.0
"""Seconds a server has to list its models."""


class ProviderRow(Struct, frozen=True, kw_only=True):
    name: str
    address: str
    key: str | None
    """Origin of the key, never the key itself."""
    key_variable: str
    configured: bool
    offered: tuple[str, ...] | None
    """Models it lists; None if it was not asked or did not answer in time."""


class ModelRow(Struct, frozen=True, kw_only=True):
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


class ModelsView(Struct, frozen=True, kw_only=True):
    default: str | None
    """Configured model; None if the model is detected."""
    default_origin: str
    providers: tuple[ProviderRow, ...]
    models: tuple[ModelRow, ...]


async def models_view(settings: Settings, *, within: float = LISTED_WITHIN) -> ModelsView:
    """Build the report. Usable providers are asked for their lists at once, the others not at all."""
    async with asyncio.TaskGroup() as asking:
        tasks = [asking.create_task(_provider(name, settings, within)) for name in PROVIDER_KEYS]
    providers = tuple(task.result() for task in tasks)
    return ModelsView(
        default=settings.model,
        default_origin=settings.origin("model"),
        providers=providers,
        models=tuple(_models(settings, providers)),
    )


async def _provider(name: str, settings: Settings, within: float) -> ProviderRow:
    from shoal.models.providers import PROVIDERS, find_offered, find_ollama

    known, access = PROVIDERS[name], access_to(name, settings)
    keys = [settings.origin(key) for key in PROVIDER_KEYS[name] if getattr(settings.access, key)]
    can_be_asked = bool(keys or access.base_url)
    offered: list[str] | None = None
    if name == "ollama":
        offered = await find_ollama(access.base_url, within=within) or None
        can_be_asked = offered is not None
    elif can_be_asked:
        offered = await find_offered(name, access, within=within)
    return ProviderRow(
        name=name,
        address=access.base_url or known.base_url,
        key=" and ".join(keys) or None,
        key_variable=known.key_variable,
        configured=can_be_asked,
        offered=None if offered is None else tuple(offered),
    )


def _models(settings: Settings, providers: Sequence[ProviderRow]) -> Iterator[ModelRow]:
    from shoal.models.catalogue import aliases_of, known_models

    own = dict(_own_models(settings))
    chosen = _resolved(settings.model, settings)
    for row in providers:
        theirs = [name for name, provider in own.items() if provider == row.name]
        names = dict.fromkeys((*known_models(row.name), *theirs, *_worth_listing(row)))
        if chosen is not None and chosen.provider.removesuffix("-responses") == row.name:
            names |= {chosen.id: None}
        meant: dict[str, tuple[str, ...]] = {}
        for alias, name in (*aliases_of(row.name).items(), *_own_aliases(settings, row.name)):
            meant[name] = (*meant.get(name, ()), alias)
        for name in names:
            card = _resolved(f"{row.name}:{name}", settings)
            if card is not None:
                is_default = chosen is not None and chosen.id == card.id and name == chosen.id
                yield _row(card, row, meant.get(name, ()), is_default=is_default)


def _worth_listing(row: ProviderRow) -> tuple[str, ...]:
    """Return all models of a custom server, and none of a hosted provider, which has hundreds of others."""
    from shoal.models.providers import PROVIDERS

    hosted = row.address == PROVIDERS[row.name].base_url and row.name != "ollama"
    return () if hosted or row.offered is None else row.offered


def _row(card: ModelCard, provider: ProviderRow, aliases: tuple[str, ...], *, is_default: bool) -> ModelRow:
    price = card.price
    return ModelRow(
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


def _resolved(name: str | None, settings: Settings) -> ModelCard | None:
    from shoal.core.errors import ShoalError
    from shoal.models.catalogue import resolve

    if name is None or name.partition(":")[0] in ("scripted", "replay"):
        return None
    facts: dict[str, Any] = {key: msgspec.to_builtins(value) for key, value in settings.own.models.items()}
    try:
        return resolve(name, models=facts, aliases=settings.own.aliases).card
    except ShoalError:
        return None


def _own_models(settings: Settings) -> Iterator[tuple[str, str]]:
    for name in settings.own.models:
        card = _resolved(name, settings)
        if card is not None:
            yield card.id, card.provider.removesuffix("-responses")


def _own_aliases(settings: Settings, provider: str) -> Iterator[tuple[str, str]]:
    for alias, name in settings.own.aliases.items():
        card = _resolved(name, settings)
        if card is not None and card.provider.removesuffix("-responses") == provider:
            yield alias, card.id
