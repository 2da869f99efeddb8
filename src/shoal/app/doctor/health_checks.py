"""Health checks of the setup: what is configured, what is missing, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import shoal
from shoal.app.isolation import machine_checks
from shoal.app.isolation.machine_checks import DoctorDiagnostic
from shoal.app.settings.provider_credentials import PROVIDER_KEYS
from shoal.app.settings.settings import Settings, load_settings, resolve_shoal_home
from shoal.core.errors import SettingsError, ShoalError
from shoal.core.text.text_format import format_count_with_noun

if TYPE_CHECKING:
    from shoal.core.budgets.usage import ModelCard

NO_MODEL_ADVICE = (
    "Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or run: shoal setup,\nor start Ollama and pull a model: "
    "ollama pull qwen3,\nor try Shoal without a model: shoal demo"
)


def run_health_checks(
    environ: Mapping[str, str], cwd: Path, *, settings: str | None = None, model: str | None = None
) -> list[DoctorDiagnostic]:
    """Run all checks in the order of display. No other machine is contacted.

    Nothing is changed, except that programs of killed runs are ended and their marks in git removed.
    """
    diagnostics = [*machine_checks.check_shoal_and_python_versions(shoal.__version__)]
    try:
        loaded = load_settings(cwd=cwd, environ=environ, given=settings)
    except SettingsError as error:
        diagnostics += machine_checks.check_home_directory(
            resolve_shoal_home(environ, cwd), "the environment or the default"
        )
        diagnostics.append(_make_broken_settings_diagnostic(error))
    else:
        diagnostics += machine_checks.check_home_directory(loaded.home, loaded.find_setting_origin("home"))
        diagnostics += _end_leftover_programs(loaded.home)
        diagnostics += _check_team_files(loaded.home, cwd, environ)
        diagnostics += _diagnose_settings_files(loaded)
        diagnostics += _check_agent_files(loaded, cwd)
        diagnostics.append(_check_sandbox(loaded, cwd))
        diagnostics += _check_mcp_servers(loaded, cwd)
        diagnostics += asyncio.run(_check_models(loaded, model))
    return [
        *diagnostics,
        *machine_checks.check_external_programs(),
        *machine_checks.check_optional_extras(),
        *machine_checks.check_terminal(environ),
    ]


def _make_broken_settings_diagnostic(error: SettingsError) -> DoctorDiagnostic:
    return DoctorDiagnostic(
        area="settings",
        name="files",
        state="bad",
        value=str(error),
        advice="Fix it, then run this again to check the models.",
    )


def _end_leftover_programs(home: Path) -> Iterator[DoctorDiagnostic]:
    from shoal.app.isolation.sandbox_policies import remove_leftover_git_marks
    from shoal.backends.guardian import end_leftover_processes
    from shoal.stores.files.home.home_paths import get_process_records_directory

    leftovers = end_leftover_processes(str(get_process_records_directory(home)))
    if leftovers:
        programs = format_count_with_noun(len(leftovers), "program")
        pids = ", ".join(map(str, leftovers))
        yield DoctorDiagnostic(
            area="home",
            name="programs",
            state="warn",
            value=f"stopped {programs} that a killed run had left running (pid {pids})",
        )
    for note in remove_leftover_git_marks(home):
        yield DoctorDiagnostic(area="home", name="git", state="warn", value=note)


def _check_team_files(home: Path, cwd: Path, environ: Mapping[str, str]) -> Iterator[DoctorDiagnostic]:
    from shoal.app.doctor.team_files import find_damaged_team_files
    from shoal.app.settings.configured_store import open_home_store

    try:
        store = open_home_store(home, cwd=cwd, environ=environ, read_only=True)
        problems = asyncio.run(find_damaged_team_files(store, home))
    except ShoalError as error:
        problems = [str(error)]
    for problem in problems:
        yield DoctorDiagnostic(area="home", name="team", state="warn", value=problem)


def _diagnose_settings_files(settings: Settings) -> Iterator[DoctorDiagnostic]:
    if not settings.documents:
        yield DoctorDiagnostic(
            area="settings", name="files", state="none", value="no settings file; defaults apply"
        )
    for document in settings.documents:
        yield DoctorDiagnostic(area="settings", name="file", state="ok", value=document.name)
    for warning in settings.findings.warnings:
        # A notice about trust ends with the commands to type.
        advice = "" if "shoal trust" in warning else "Correct or remove the key."
        yield DoctorDiagnostic(area="settings", name="problem", state="warn", value=warning, advice=advice)


def _check_agent_files(settings: Settings, cwd: Path) -> Iterator[DoctorDiagnostic]:
    from shoal.app.definitions.agent_catalog import load_agent_catalog

    for problem in load_agent_catalog(cwd=cwd, home=settings.home).problems:
        yield DoctorDiagnostic(
            area="settings",
            name="agent",
            state="warn",
            value=str(problem),
            advice="Fix the file, then check it: shoal agents validate",
        )


def _check_sandbox(settings: Settings, cwd: Path) -> DoctorDiagnostic:
    from shoal.app.isolation.sandbox_policies import check_sandbox_settings, diagnose_sandbox

    try:
        check_sandbox_settings(settings, cwd)
    except SettingsError as error:
        return DoctorDiagnostic(area="settings", name="sandbox", state="bad", value=str(error))
    state, value, advice = diagnose_sandbox(settings)
    return DoctorDiagnostic(area="settings", name="sandbox", state=state, value=value, advice=advice)


def _check_mcp_servers(settings: Settings, cwd: Path) -> Iterator[DoctorDiagnostic]:
    from shoal.app.settings.mcp_files import load_mcp_servers

    found = load_mcp_servers(settings, cwd=cwd)
    if found.servers:
        names = ", ".join(server.name for server in found.servers)
        yield DoctorDiagnostic(
            area="settings",
            name="MCP servers",
            state="ok",
            value=f"{names} (test them: shoal mcp test)",
        )
    for problem in found.problems:
        yield DoctorDiagnostic(area="settings", name="MCP server", state="warn", value=problem)


async def _check_models(settings: Settings, model: str | None) -> list[DoctorDiagnostic]:
    diagnostics = [_diagnose_provider_key(name, settings) for name, keys in PROVIDER_KEYS.items() if keys]
    diagnostics.append(await _check_ollama(settings))
    diagnostics += await _check_chosen_model(settings, model)
    return diagnostics


def _diagnose_provider_key(provider: str, settings: Settings) -> DoctorDiagnostic:
    from shoal.models.providers import PROVIDERS

    definition = PROVIDERS[provider]
    keys = [
        settings.find_setting_origin(key) for key in PROVIDER_KEYS[provider] if getattr(settings.access, key)
    ]
    base_url = getattr(settings.access, f"{provider}_base_url", None)
    address = (
        f"{base_url} ({settings.find_setting_origin(f'{provider}_base_url')})"
        if base_url
        else definition.base_url
    )
    if keys:
        value = f"key from {' and '.join(keys)}, at {address}"
        return DoctorDiagnostic(area="models", name=provider, state="ok", value=value)
    if base_url:
        value = f"no key ({definition.key_variable}), at {address}"
        return DoctorDiagnostic(area="models", name=provider, state="none", value=value)
    return DoctorDiagnostic(
        area="models", name=provider, state="none", value=f"no key ({definition.key_variable})"
    )


async def _check_ollama(settings: Settings) -> DoctorDiagnostic:
    from shoal.app.models.model_choice import resolve_ollama_url
    from shoal.models.providers import PROVIDERS, list_ollama_models

    url = resolve_ollama_url(settings) or PROVIDERS["ollama"].base_url
    names = await list_ollama_models(url)
    if not names:
        return DoctorDiagnostic(area="models", name="ollama", state="none", value=f"no model found at {url}")
    shown = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    return DoctorDiagnostic(area="models", name="ollama", state="ok", value=f"{shown} at {url}")


async def _check_chosen_model(settings: Settings, name: str | None) -> list[DoctorDiagnostic]:
    from shoal.app.models.model_choice import choose_model
    from shoal.core.clock import SystemClock
    from shoal.core.errors import NoModelConfigured, Unauthorized
    from shoal.core.ids import IdGenerator
    from shoal.models.providers import PROVIDERS

    source = "the command line" if name else settings.find_setting_origin("model")
    try:
        model = await choose_model(name, settings, SystemClock(), IdGenerator().random)
    except NoModelConfigured as error:
        return [
            DoctorDiagnostic(
                area="models", name="model", state="bad", value=str(error), advice=NO_MODEL_ADVICE
            )
        ]
    except Unauthorized as error:
        advice = f"Set {PROVIDERS[error.provider].key_variable}."
        return [DoctorDiagnostic(area="models", name="model", state="bad", value=str(error), advice=advice)]
    except ShoalError as error:
        advice = "Choose another with --model, SHOAL_MODEL or the setting model."
        return [
            DoctorDiagnostic(
                area="models", name="model", state="bad", value=f"{error} ({source})", advice=advice
            )
        ]
    await model.aclose()
    return [_check_model_key(model.card, settings, source), _check_model_price(model.card)]


def _check_model_key(card: ModelCard, settings: Settings, source: str) -> DoctorDiagnostic:
    """Report the model, and whether its provider has the key it needs."""
    from shoal.models.providers import PROVIDERS

    value = f"{card.provider}:{card.id} (from {source})"
    provider = card.provider.removesuffix("-responses")
    keys = PROVIDER_KEYS.get(provider, ())
    if not keys or any(getattr(settings.access, key) for key in keys):
        return DoctorDiagnostic(area="models", name="model", state="ok", value=value)
    variable = PROVIDERS[card.provider].key_variable
    has_own_address = bool(getattr(settings.access, f"{provider}_base_url", None))
    return DoctorDiagnostic(
        area="models",
        name="model",
        state="warn" if has_own_address else "bad",
        value=f"{value}, without a key",
        advice=f"Set {variable}{', if the server needs one' if has_own_address else ''}.",
    )


def _check_model_price(card: ModelCard) -> DoctorDiagnostic:
    window = f"window {card.window // 1000}k tokens"
    if card.price is None:
        return DoctorDiagnostic(
            area="models",
            name="price",
            state="warn",
            value=f"unknown; {window}",
            advice=(
                'Without a price, Shoal cannot enforce --max-budget-usd. Add to settings.json: {"shoal": '
                f'{{"models": {{"{card.id}": {{"input": …, "output": …}}}}}}}} in dollars per '
                "million tokens."
            ),
        )
    price = f"${card.price.input:g} in, ${card.price.output:g} out per million tokens; {window}"
    return DoctorDiagnostic(area="models", name="price", state="ok", value=price)
