"""Model of a session: the one named, the one configured, or one that is detected."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from shoal.app.settings.settings import Settings
from shoal.core.clock import Clock
from shoal.core.errors import NoModel, Unauthorized
from shoal.core.ports import Model

if TYPE_CHECKING:
    from shoal.models.http import Deadlines
    from shoal.models.limiter import Limiters
    from shoal.models.providers import Access
    from shoal.models.stand_ins import StandIns

USUAL = "sonnet"
"""Alias used if a provider is configured and no model is named."""

# One per process, so that agents of several sessions that use one model back off together.
_limiters: WeakKeyDictionary[Clock, Limiters] = WeakKeyDictionary()


async def chosen_model(
    name: str | None, settings: Settings, clock: Clock, rng: Random, *, stand_ins: StandIns | None = None
) -> Model:
    """Return a model; `placeholders` are for replays.

    Raises `NoModelConfigured`, `UnknownModel` or `SettingsError`.
    """
    name = name or settings.model
    if name is None:
        return await _found(settings, clock, rng)
    kind, _, rest = name.partition(":")
    if kind == "scripted" and rest:
        from shoal.models.scripted import ScriptedModel

        return ScriptedModel.from_file(Path(rest), clock=clock)
    if kind == "replay" and rest:
        from shoal.models.replay import ReplayModel
        from shoal.models.stand_ins import NONE

        return ReplayModel(Path(rest), stand_ins or NONE)
    return _asked(name, settings, clock, rng)


async def chosen_or_other(
    name: str | None,
    other: str | None,
    settings: Settings,
    clock: Clock,
    rng: Random,
    *,
    stand_ins: StandIns | None = None,
) -> Model:
    """Return the model, with a fallback for when it does not answer, if one is named."""
    first = await chosen_model(name, settings, clock, rng, stand_ins=stand_ins)
    if other is None:
        return first
    from shoal.models.fallback import FallbackModel

    second = await chosen_model(other, settings, clock, rng, stand_ins=stand_ins)
    return FallbackModel(first, second)


async def _found(settings: Settings, clock: Clock, rng: Random) -> Model:
    access = settings.access
    if access.anthropic_api_key or access.anthropic_auth_token:
        return _asked(f"anthropic:{USUAL}", settings, clock, rng)
    from shoal.models.providers import find_ollama, find_served

    if access.openai_base_url and not access.openai_api_key:
        # A custom server has its own models; ask it for the list.
        served = await find_served(access.openai_base_url)
        if served:
            return _asked(f"openai:{served[0]}", settings, clock, rng)
    if access.openai_api_key:
        return _asked(f"openai:{USUAL}", settings, clock, rng)
    if access.openrouter_api_key:
        return _asked(f"openrouter:{USUAL}", settings, clock, rng)
    local = await find_ollama(ollama_url(settings))
    if local:
        return _asked(f"ollama:{local[0]}", settings, clock, rng)
    raise NoModel("No model is configured, and no local one was found.")


def _asked(name: str, settings: Settings, clock: Clock, rng: Random) -> Model:
    from shoal.models.catalogue import resolve
    from shoal.models.limiter import Limiters, Patience, PatientModel
    from shoal.models.providers import make_model

    own = settings.own
    facts = {key: msgspec.to_builtins(value) for key, value in own.models.items()}
    provider, _, card = resolve(name, provider=_configured(settings), models=facts, aliases=own.aliases)
    access = access_to(provider, settings)
    _refuse_without_key(provider, card.id, access)
    model = make_model(provider, card, access, clock=clock)
    if clock not in _limiters:
        _limiters[clock] = Limiters(clock, rng, Patience(outage=own.outage_patience))
    limiter = _limiters[clock].of(provider, card.id, base_url=access.base_url or "")
    return PatientModel(model, limiter, clock)


def _configured(settings: Settings) -> str | None:
    """Return the provider whose aliases apply to an alias without a provider."""
    access = settings.access
    if access.anthropic_api_key or access.anthropic_auth_token:
        return "anthropic"
    if access.openai_api_key:
        return "openai"
    return "openrouter" if access.openrouter_api_key else None


def access_to(provider: str, settings: Settings) -> Access:
    from shoal.models.providers import PROVIDERS, Access

    given = settings.access
    key, token, base = {
        "anthropic": (given.anthropic_api_key, given.anthropic_auth_token, given.anthropic_base_url),
        "openai": (given.openai_api_key, None, given.openai_base_url),
        "openai-responses": (given.openai_api_key, None, given.openai_base_url),
        "openrouter": (given.openrouter_api_key, None, None),
        "ollama": (None, None, ollama_url(settings)),
    }[provider]
    return Access(
        base_url=base,
        api_key=key,
        auth_token=token,
        proxy=settings.proxy_for(base or PROVIDERS[provider].base_url),
        deadlines=_deadlines(provider, settings),
        betas=settings.betas,
    )


def _refuse_without_key(provider: str, model: str, access: Access) -> None:
    """Raise `Unauthorized` if a hosted provider has no key, instead of retrying for a long time."""
    from shoal.models.providers import PROVIDERS

    variable = PROVIDERS[provider].key_variable
    if variable and access.base_url is None and not (access.api_key or access.auth_token):
        raise Unauthorized(
            f"There is no key to ask {provider} for {model}. Set {variable}, type `shoal setup`, or name "
            "another model.",
            provider=provider,
            model=model,
        )


def _deadlines(provider: str, settings: Settings) -> Deadlines:
    from shoal.models.providers import usual_deadlines

    usual = usual_deadlines(provider)
    total, gap = settings.own.request_deadline, settings.own.stream_gap
    return msgspec.structs.replace(usual, total=total or usual.total, gap=gap or usual.gap)


def ollama_url(settings: Settings) -> str | None:
    """Return the configured URL of Ollama; its variable may lack the scheme."""
    host = settings.access.ollama_host
    if not host:
        return None
    base = (host if "://" in host else f"http://{host}").rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"
