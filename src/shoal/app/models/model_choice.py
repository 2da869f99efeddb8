"""Model of a session: the named one, the configured one, or a detected one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from shoal.app.settings.foreign_variables import replace_variables
from shoal.app.settings.settings import Settings
from shoal.core.agents.agent_definitions import INHERIT_MODEL
from shoal.core.clock import Clock
from shoal.core.errors import ModelError, NoModelConfigured, Unauthorized, UnknownModel
from shoal.core.ids import JitterSource
from shoal.core.ports import Model
from shoal.core.tls_contexts import read_tls_variables

if TYPE_CHECKING:
    from shoal.app.models.key_helper import ApiKeyHelper
    from shoal.app.settings.foreign_variables import AllowedModelList, KeyHelperSettings
    from shoal.models.catalogue import ResolvedModelReference
    from shoal.models.model_endpoint import ProviderHttpTimeouts
    from shoal.models.placeholders import RecordingPlaceholderReplacer
    from shoal.models.providers import ProviderAccess
    from shoal.models.rate_limiter import RateLimiterRegistry

DEFAULT_ALIAS = "sonnet"
"""Alias used if a provider is configured and no model is named."""
DEFAULT_MODEL = "default"
"""Name that means no model is named, whatever is configured."""
MAX_FALLBACKS = 3
_LONG_CONTEXT_BETA = "context-1m-2025-08-07"
_FAMILIES = frozenset({"opus", "sonnet", "haiku", "fable"})
_NAME_PARTS = re.compile(r"[^a-z]+")

# One per process, so that agents of several sessions that use one model back off together.
_limiters: WeakKeyDictionary[Clock, RateLimiterRegistry] = WeakKeyDictionary()


async def choose_model(
    name: str | None,
    settings: Settings,
    clock: Clock,
    rng: JitterSource,
    *,
    placeholders: RecordingPlaceholderReplacer | None = None,
) -> Model:
    """Return a model; `placeholders` are for replays.

    Raises `NoModelConfigured`, `UnknownModel` or `SettingsError`.
    """
    name = _resolve_inherited_name(name, settings)
    if name is None or name.strip().lower() in (DEFAULT_MODEL, INHERIT_MODEL):
        return await _create_default_model(settings, clock, rng)
    kind, _, rest = name.partition(":")
    if kind == "scripted" and rest:
        from shoal.models.scripted_model import ScriptedModel

        return ScriptedModel.from_file(Path(rest), clock=clock)
    if kind == "replay" and rest:
        from shoal.models.placeholders import NO_PLACEHOLDERS
        from shoal.models.replay_model import ReplayModel

        return ReplayModel(Path(rest), placeholders or NO_PLACEHOLDERS)
    return _create_model(name, settings, clock, rng)


def _resolve_inherited_name(name: str | None, settings: Settings) -> str | None:
    return settings.models.main if not name or name.strip() == INHERIT_MODEL else name


async def choose_model_with_fallback(
    name: str | Model | None,
    fallback: str | None,
    settings: Settings,
    clock: Clock,
    rng: JitterSource,
    *,
    placeholders: RecordingPlaceholderReplacer | None = None,
    note: Callable[[str], None] | None = None,
) -> Model:
    """Return the model with its fallbacks for when it does not answer; `fallback` may list up to three.

    An unusable fallback of the settings is left out with a note, because it is only a convenience.
    """
    flag_names = tuple(each.strip() for each in (fallback or "").split(",") if each.strip())
    if name is None or isinstance(name, str):
        model = await choose_model(name, settings, clock, rng, placeholders=placeholders)
        names = (flag_names or settings.foreign.models.fallbacks)[:MAX_FALLBACKS]
    else:
        # Settings choose models by name; they do not know the object of a program.
        model, names = name, flag_names[:MAX_FALLBACKS]
    if not names:
        return model
    from shoal.models.fallback_model import ModelWithFallback

    fallbacks: list[Model] = []
    for each in names:
        try:
            fallbacks.append(await choose_model(each, settings, clock, rng, placeholders=placeholders))
        except ModelError as error:
            if flag_names:
                error.args = (f"--fallback-model: {error}", *error.args[1:])
                raise
            if note is not None:
                location = settings.find_setting_origin("fallbackModel")
                note(f"{location}: fallbackModel: {each} is ignored. {error}")
    if not fallbacks:
        return model
    chain = fallbacks.pop()
    while fallbacks:
        chain = ModelWithFallback(fallbacks.pop(), chain)
    return ModelWithFallback(model, chain)


class PlanModeNames(NamedTuple):
    """Names of the two models of the alias `opusplan`."""

    name: str
    planning: str
    other: str


def find_plan_mode_names(name: str | None, settings: Settings) -> PlanModeNames | None:
    """Return the two models if the name, or the configured one, depends on the permission mode."""
    name = _resolve_inherited_name(name, settings)
    if name is None or "opusplan" not in name.lower() or name in settings.model_aliases:
        return None
    from shoal.models.catalogue import split_plan_alias

    pair = split_plan_alias(name)
    return None if pair is None else PlanModeNames(name, *pair)


def find_unavailable_reason(name: str, settings: Settings) -> str | None:
    """Return why a list of available models does not permit a model; None if none forbids it."""
    if not settings.foreign.models.available:
        return None
    from shoal.models.catalogue import resolve_model

    provider, aliases = _find_alias_provider(settings), settings.model_aliases
    try:
        _check_available_models(name, resolve_model(name, provider=provider, aliases=aliases).id, settings)
    except UnknownModel as error:
        return str(error)
    return None


async def _create_default_model(settings: Settings, clock: Clock, rng: JitterSource) -> Model:
    access = settings.access
    if settings.has_anthropic_access or settings.foreign.access.cloud:
        return _create_model(_choose_available_default(settings), settings, clock, rng)
    from shoal.models.providers import list_ollama_models, list_openai_server_models

    if access.openai_base_url and not access.openai_api_key:
        # A custom server has its own models; ask it for the list.
        served_names = await list_openai_server_models(access.openai_base_url)
        if served_names:
            return _create_model(f"openai:{served_names[0]}", settings, clock, rng)
    if access.openai_api_key:
        return _create_model(f"openai:{DEFAULT_ALIAS}", settings, clock, rng)
    if access.openrouter_api_key:
        return _create_model(f"openrouter:{DEFAULT_ALIAS}", settings, clock, rng)
    local_names = await list_ollama_models(resolve_ollama_url(settings))
    if local_names:
        return _create_model(f"ollama:{local_names[0]}", settings, clock, rng)
    if settings.foreign.access.oauth_token:
        raise _build_oauth_token_error(DEFAULT_ALIAS)
    raise NoModelConfigured("No model is configured, and no local model was found.")


def refuse_unknown_model(name: str, settings: Settings) -> None:
    """Raise `UnknownModel` for a name that no provider has. Nothing is opened, and no key is needed."""
    if name.strip().lower() != DEFAULT_MODEL and name.partition(":")[0] not in ("scripted", "replay"):
        _resolve_model(_qualify_gateway_model(name, settings), settings)


def _create_model(name: str, settings: Settings, clock: Clock, rng: JitterSource) -> Model:
    from shoal.models.providers import create_model
    from shoal.models.rate_limiter import ModelRetryPolicy, RateLimiterRegistry, RetryingModel

    shoal_settings = settings.own
    name = _qualify_gateway_model(name, settings)
    provider, _, card, needs_beta = _resolve_model(name, settings)
    _refuse_cloud_provider(provider, card.id, settings)
    _check_available_models(name, card.id, settings)
    if provider == "anthropic" and card.id in settings.foreign.models.overrides:
        card = msgspec.structs.replace(card, id=settings.foreign.models.overrides[card.id])
    access = build_provider_access(provider, settings)
    if needs_beta:
        access = msgspec.structs.replace(access, betas=(*access.betas, _LONG_CONTEXT_BETA))
    _require_provider_key(provider, card.id, access, settings)
    model = create_model(provider, card, access, clock=clock)
    if clock not in _limiters:
        _limiters[clock] = RateLimiterRegistry(
            clock,
            rng,
            ModelRetryPolicy(max_outage=shoal_settings.outage_patience),
        )
    limiter = _limiters[clock].get_limiter(provider, card.id, base_url=access.base_url or "")
    return RetryingModel(model, limiter, clock, max_retries=settings.foreign.max_retries)


def _qualify_gateway_model(name: str, settings: Settings) -> str:
    """Add the provider to the name of a cloud's model if the gateway at the configured address serves it."""
    from shoal.models.catalogue import is_cloud_model_id

    return f"anthropic:{name}" if is_cloud_model_id(name) and settings.access.anthropic_base_url else name


def _resolve_model(name: str, settings: Settings) -> ResolvedModelReference:
    from shoal.models.catalogue import resolve_model

    return resolve_model(
        name,
        provider=_find_alias_provider(settings),
        models={key: msgspec.to_builtins(value) for key, value in settings.own.models.items()},
        aliases=settings.model_aliases,
        max_output=settings.own.max_output_tokens,
    )


def _find_alias_provider(settings: Settings) -> str | None:
    """Return the provider whose aliases apply to an alias without a provider."""
    access = settings.access
    if settings.has_anthropic_access or settings.foreign.access.cloud:
        return "anthropic"
    if access.openai_api_key:
        return "openai"
    return "openrouter" if access.openrouter_api_key else None


def build_provider_access(provider: str, settings: Settings) -> ProviderAccess:
    from shoal.models.providers import PROVIDERS, ProviderAccess

    configured = settings.access
    key, token, base_url = {
        "anthropic": (
            configured.anthropic_api_key,
            configured.anthropic_auth_token,
            configured.anthropic_base_url,
        ),
        "openai": (configured.openai_api_key, None, configured.openai_base_url),
        "openai-responses": (configured.openai_api_key, None, configured.openai_base_url),
        "openrouter": (configured.openrouter_api_key, None, None),
        "ollama": (None, None, resolve_ollama_url(settings)),
    }[provider]
    is_anthropic = provider == "anthropic"
    return ProviderAccess(
        base_url=base_url,
        api_key=None if token else key,
        auth_token=token,
        key_source=_find_key_helper(settings) if is_anthropic and not (key or token) else None,
        headers=settings.foreign.access.custom_headers if is_anthropic else (),
        proxy=settings.proxies.find_proxy(base_url or PROVIDERS[provider].base_url),
        tls=read_tls_variables(settings.environ),
        deadlines=_build_http_deadlines(provider, settings),
        betas=settings.models.betas,
    )


_key_helpers: dict[KeyHelperSettings, ApiKeyHelper] = {}


def _find_key_helper(settings: Settings) -> ApiKeyHelper | None:
    """Return the helper of a command, one for all models of the process, so that it runs rarely."""
    configured = settings.foreign.access.key_helper
    if configured is None:
        return None
    from shoal.app.models.key_helper import ApiKeyHelper

    if configured not in _key_helpers:
        _key_helpers[configured] = ApiKeyHelper(configured, replace_variables(settings.environ, settings.env))
    return _key_helpers[configured]


def _refuse_cloud_provider(provider: str, model: str, settings: Settings) -> None:
    """Raise `Unauthorized` if a variable sends Anthropic's models to a cloud that Shoal cannot use."""
    if provider == "anthropic" and (cloud := settings.foreign.access.cloud):
        raise Unauthorized(
            f"{cloud} is set, but Shoal does not support this cloud. Unset the variable, and use a gateway "
            "to this cloud that speaks Anthropic's API (ANTHROPIC_BASE_URL and ANTHROPIC_AUTH_TOKEN), or "
            "Anthropic itself (ANTHROPIC_API_KEY). Or keep the variable, and choose another provider's "
            "model, such as --model openai:NAME or --model ollama:NAME.",
            provider=provider,
            model=model,
        )


def _check_available_models(name: str, model: str, settings: Settings) -> None:
    """Raise `UnknownModel` if a list of available models does not name the model, or what replaces it."""
    override = settings.foreign.models.overrides.get(model)
    for allowed in settings.foreign.models.available:
        if not _is_in_list(allowed, name, model, settings):
            what = repr(name) if model in name else f"{model}, which {name!r} stands for"
            raise _build_unavailable_error(allowed, what, model)
        if override and not _is_override_permitted(allowed, model, override, settings):
            raise _build_unavailable_error(allowed, f"{override!r}, which replaces {model}", model)


def _build_unavailable_error(allowed: AllowedModelList, what: str, model: str) -> UnknownModel:
    return UnknownModel(
        f"{allowed.location}: availableModels does not include {what}. Choose one of: "
        f"{', '.join(allowed.names) or DEFAULT_MODEL}.",
        model=model,
    )


def _is_in_list(allowed: AllowedModelList, name: str, model: str, settings: Settings) -> bool:
    aliases = _select_aliases_for_list(allowed, settings)
    is_redefined = settings.model_aliases.get(name) != aliases.get(name)
    if not allowed.names and name == DEFAULT_ALIAS and not is_redefined:
        return True  # an empty list allows the default model only
    return any(
        (entry == name and not is_redefined) or _is_model_named(entry, model, aliases, settings)
        for entry in allowed.names
    )


def _select_aliases_for_list(allowed: AllowedModelList, settings: Settings) -> Mapping[str, str]:
    """Return the aliases that count for a list: a user must not change what a managed list means."""
    if allowed.meanings is None:
        return settings.model_aliases
    return {
        alias: model
        for alias, model in settings.model_aliases.items()
        if (alias, model) in allowed.meanings or (alias, model.removeprefix("anthropic:")) in allowed.meanings
    }


def _is_override_permitted(allowed: AllowedModelList, model: str, override: str, settings: Settings) -> bool:
    """Return False if a user's override sends another known family than a managed list permits.

    A gateway's own id does not show the model, so the list applies to the id that it replaces.
    """
    if allowed.meanings is None or (model, override) in allowed.meanings:
        return True
    if _FAMILIES.isdisjoint(_NAME_PARTS.split(override.lower())):
        return True
    aliases = _select_aliases_for_list(allowed, settings)
    return any(_is_model_named(entry, override, aliases, settings) for entry in allowed.names)


def _is_model_named(entry: str, model: str, aliases: Mapping[str, str], settings: Settings) -> bool:
    """Return True if the entry is this id, the start of the id, or the alias of its family."""
    from shoal.models.catalogue import resolve_model

    if (
        entry == model
        or model.startswith(f"{entry}-")
        or model.rsplit("/", maxsplit=1)[-1].startswith(f"{entry}-")
    ):
        return True
    if entry in _FAMILIES and entry in model.split("-"):
        return True
    try:
        return resolve_model(entry, provider=_find_alias_provider(settings), aliases=aliases).id == model
    except ModelError:
        return False


def _choose_available_default(settings: Settings) -> str:
    """Return the default alias, or the first available model if a list does not include it."""
    from shoal.models.catalogue import resolve_model

    model = resolve_model(DEFAULT_ALIAS, provider="anthropic", aliases=settings.model_aliases).id
    for allowed in settings.foreign.models.available:
        if allowed.names and not _is_in_list(allowed, DEFAULT_ALIAS, model, settings):
            return allowed.names[0]
    return DEFAULT_ALIAS


def _build_oauth_token_error(model: str) -> Unauthorized:
    return Unauthorized(
        "CLAUDE_CODE_OAUTH_TOKEN belongs to a Claude subscription, which Shoal cannot use. Set "
        "ANTHROPIC_API_KEY to an Anthropic API key, run `shoal setup`, or choose another provider's model.",
        provider="anthropic",
        model=model,
    )


def _require_provider_key(provider: str, model: str, access: ProviderAccess, settings: Settings) -> None:
    """Raise `Unauthorized` if a hosted provider has no key, instead of retrying for a long time."""
    from shoal.models.providers import PROVIDERS

    variable = PROVIDERS[provider].key_variable
    has_key = access.api_key or access.auth_token or access.key_source
    if variable and access.base_url is None and not has_key:
        if provider == "anthropic" and settings.foreign.access.oauth_token:
            raise _build_oauth_token_error(model)
        raise Unauthorized(
            f"There is no {provider} key for {model}. Set {variable}, run `shoal setup`, or choose another "
            "model.",
            provider=provider,
            model=model,
        )


def _build_http_deadlines(provider: str, settings: Settings) -> ProviderHttpTimeouts:
    from shoal.models.providers import get_default_http_deadlines

    defaults = get_default_http_deadlines(provider)
    total, gap = settings.own.request_deadline, settings.own.stream_gap
    return msgspec.structs.replace(defaults, total=total or defaults.total, gap=gap or defaults.gap)


def resolve_ollama_url(settings: Settings) -> str | None:
    """Return the configured URL of Ollama; its variable may lack the scheme."""
    host = settings.access.ollama_host
    if not host:
        return None
    base = (host if "://" in host else f"http://{host}").rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"
