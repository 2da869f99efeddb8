"""Health checks of the setup: what is configured, what is missing, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import shoal
from shoal.app.quarters import machine
from shoal.app.quarters.machine import Fact
from shoal.app.settings.settings import PROVIDER_KEYS, Settings, find_home, load_settings
from shoal.core.errors import SettingsError, ShoalError

if TYPE_CHECKING:
    from shoal.core.usage import ModelCard

THREE_WAYS = (
    "Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or type: shoal setup,\n"
    "or start Ollama and fetch a model: ollama pull qwen3,\n"
    "or see Shoal work without one: shoal demo"
)


def examine(
    environ: Mapping[str, str], cwd: Path, *, settings: str | None = None, model: str | None = None
) -> list[Fact]:
    """Run all checks in the order of display. Nothing is changed, and no other machine is contacted."""
    facts = [*machine.versions(shoal.__version__)]
    try:
        loaded = load_settings(cwd=cwd, environ=environ, given=settings)
    except SettingsError as error:
        facts += machine.home_facts(find_home(environ, cwd), "the environment or the default")
        facts.append(_broken_settings(error))
    else:
        facts += machine.home_facts(loaded.home, loaded.origin("home"))
        facts += _settings_facts(loaded)
        facts.append(_sandbox_fact(loaded, cwd))
        facts += _server_facts(loaded, cwd)
        facts += asyncio.run(_model_facts(loaded, model))
    return [*facts, *machine.programs(), *machine.extras(), *machine.terminal(environ)]


def _broken_settings(error: SettingsError) -> Fact:
    return Fact(
        area="settings",
        name="files",
        state="bad",
        value=str(error),
        advice="Repair it; models are not looked at before that.",
    )


def _settings_facts(settings: Settings) -> Iterator[Fact]:
    if not settings.documents:
        yield Fact(area="settings", name="files", state="none", value="no settings file; the defaults hold")
    for document in settings.documents:
        yield Fact(area="settings", name="file", state="ok", value=document.name)
    for warning in settings.warnings:
        yield Fact(
            area="settings", name="problem", state="warn", value=warning, advice="Correct or remove the key."
        )


def _sandbox_fact(settings: Settings, cwd: Path) -> Fact:
    from shoal.app.quarters.confines import checked, examined

    try:
        checked(settings, cwd)
    except SettingsError as error:
        return Fact(area="settings", name="sandbox", state="bad", value=str(error))
    state, value, advice = examined(settings)
    return Fact(area="settings", name="sandbox", state=state, value=value, advice=advice)


def _server_facts(settings: Settings, cwd: Path) -> Iterator[Fact]:
    from shoal.app.settings.mcp_files import configured

    found = configured(settings, cwd=cwd)
    if found.servers:
        names = ", ".join(server.name for server in found.servers)
        yield Fact(
            area="settings",
            name="MCP servers",
            state="ok",
            value=f"{names} (whether they answer: shoal mcp test)",
        )
    for problem in found.problems:
        yield Fact(area="settings", name="MCP server", state="warn", value=problem)


async def _model_facts(settings: Settings, model: str | None) -> list[Fact]:
    facts = [_provider_fact(name, settings) for name, keys in PROVIDER_KEYS.items() if keys]
    facts.append(await _ollama_fact(settings))
    facts += await _chosen_facts(settings, model)
    return facts


def _provider_fact(provider: str, settings: Settings) -> Fact:
    from shoal.models.providers import PROVIDERS

    known = PROVIDERS[provider]
    keys = [settings.origin(key) for key in PROVIDER_KEYS[provider] if getattr(settings.access, key)]
    base = getattr(settings.access, f"{provider}_base_url", None)
    address = f"{base} ({settings.origin(f'{provider}_base_url')})" if base else known.base_url
    if keys:
        value = f"key from {' and '.join(keys)}, at {address}"
        return Fact(area="models", name=provider, state="ok", value=value)
    if base:
        value = f"no key ({known.key_variable}), at {address}"
        return Fact(area="models", name=provider, state="none", value=value)
    return Fact(area="models", name=provider, state="none", value=f"no key ({known.key_variable})")


async def _ollama_fact(settings: Settings) -> Fact:
    from shoal.app.models.choosing import ollama_url
    from shoal.models.providers import PROVIDERS, find_ollama

    url = ollama_url(settings) or PROVIDERS["ollama"].base_url
    names = await find_ollama(url)
    if not names:
        return Fact(area="models", name="ollama", state="none", value=f"no model found at {url}")
    shown = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    return Fact(area="models", name="ollama", state="ok", value=f"{shown} at {url}")


async def _chosen_facts(settings: Settings, named: str | None) -> list[Fact]:
    from shoal.app.models.choosing import chosen_model
    from shoal.core.clock import SystemClock
    from shoal.core.errors import NoModel, Unauthorized
    from shoal.core.ids import Ids
    from shoal.models.providers import PROVIDERS

    source = "the command line" if named else settings.origin("model")
    try:
        model = await chosen_model(named, settings, SystemClock(), Ids().random)
    except NoModel as error:
        return [Fact(area="models", name="model", state="bad", value=str(error), advice=THREE_WAYS)]
    except Unauthorized as error:
        advice = f"Set {PROVIDERS[error.provider].key_variable}."
        return [Fact(area="models", name="model", state="bad", value=str(error), advice=advice)]
    except ShoalError as error:
        advice = "Name another with --model, SHOAL_MODEL or the setting model."
        return [Fact(area="models", name="model", state="bad", value=f"{error} ({source})", advice=advice)]
    await model.aclose()
    return [_reached(model.card, settings, source), _priced(model.card)]


def _reached(card: ModelCard, settings: Settings, source: str) -> Fact:
    """Report the model, and whether its provider has the key it needs."""
    from shoal.models.providers import PROVIDERS

    value = f"{card.provider}:{card.id} (from {source})"
    whose = card.provider.removesuffix("-responses")
    keys = PROVIDER_KEYS.get(whose, ())
    if not keys or any(getattr(settings.access, key) for key in keys):
        return Fact(area="models", name="model", state="ok", value=value)
    variable = PROVIDERS[card.provider].key_variable
    own_address = bool(getattr(settings.access, f"{whose}_base_url", None))
    return Fact(
        area="models",
        name="model",
        state="warn" if own_address else "bad",
        value=f"{value}, without a key",
        advice=f"Set {variable}{', if that server asks for one' if own_address else ''}.",
    )


def _priced(card: ModelCard) -> Fact:
    window = f"window {card.window // 1000}k tokens"
    if card.price is None:
        return Fact(
            area="models",
            name="price",
            state="warn",
            value=f"not known; {window}",
            advice=f'Costs are not counted and --max-budget-usd is refused. Add to settings.json: {{"shoal": '
            f'{{"models": {{"{card.id}": {{"input": …, "output": …}}}}}}}} in dollars per million tokens.',
        )
    price = f"${card.price.input:g} in, ${card.price.output:g} out per million tokens; {window}"
    return Fact(area="models", name="price", state="ok", value=price)
