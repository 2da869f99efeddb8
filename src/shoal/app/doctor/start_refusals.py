"""Items of settings files with which no session starts, found without a start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.app.definitions.agent_catalog import load_agent_catalog
from shoal.app.definitions.plugin_set import PluginSet
from shoal.app.isolation.sandbox_policies import check_sandbox_settings
from shoal.app.settings.managed_switches import is_plugin_only
from shoal.app.settings.settings import Settings
from shoal.core.budgets.usage import ModelCard
from shoal.core.clock import SystemClock
from shoal.core.errors import (
    InvalidAgentDefinition,
    ModelError,
    SettingsError,
    ShoalError,
    Unauthorized,
    UnknownAgentType,
    UnknownModel,
)
from shoal.core.ids import IdGenerator
from shoal.core.names import TOOL_NAMES
from shoal.policy.rule_names import refuse_misspelled_rules
from shoal.wire.settings_codec import has_settings_key

_MODEL_KEYS = (
    ("shoal", "model"),
    ("env", "SHOAL_MODEL"),
    ("env", "ANTHROPIC_MODEL"),
    ("model",),
)


class StartRefusal(NamedTuple):
    file: str
    item: str
    reason: str


def find_start_refusals(settings: Settings, cwd: Path, plugins: PluginSet) -> dict[tuple[str, str], str]:
    """Return the reason for each file and item that a start refuses."""
    found: dict[tuple[str, str], str] = {}
    for refusal in (
        *_find_refused_agent(settings, cwd, plugins),
        *_find_refused_rules(settings),
        *_find_refused_model(settings),
        *_find_refused_cloud(settings),
        *_find_refused_sandbox(settings, cwd),
    ):
        place = (refusal.file, refusal.item)
        found[place] = f"{found[place]} {refusal.reason}" if place in found else refusal.reason
    return found


def _find_refused_agent(settings: Settings, cwd: Path, plugins: PluginSet) -> Iterator[StartRefusal]:
    if settings.agent is None:
        return
    catalog = load_agent_catalog(
        cwd=cwd,
        home=settings.home,
        plugins=plugins.list_agent_dirs(),
        sources=() if is_plugin_only(settings.documents, "agents") else None,
    )
    try:
        catalog.find(settings.agent)
    except (UnknownAgentType, InvalidAgentDefinition) as error:
        file = settings.find_setting_origin("agent").rpartition(":")[0]
        yield StartRefusal(file, "agent", str(error))


def _find_refused_rules(settings: Settings) -> Iterator[StartRefusal]:
    rules = settings.permissions.rules
    for behavior, each in (("deny", rules.deny), ("ask", rules.ask)):
        for rule in each:
            try:
                refuse_misspelled_rules(rule.source, (str(rule),), TOOL_NAMES)
            except SettingsError as error:
                file = rule.source.rpartition(":")[0]
                yield StartRefusal(file, f"permissions.{behavior}", str(error))


def _find_refused_model(settings: Settings) -> Iterator[StartRefusal]:
    from shoal.app.models.model_choice import find_plan_mode_names, find_unavailable_reason

    if (name := settings.models.main) is None:
        return
    pair = find_plan_mode_names(name, settings)
    names = [name if pair is None else pair.other]
    if pair is not None and find_unavailable_reason(pair.planning, settings) is None:
        names.append(pair.planning)
    try:
        asyncio.run(_choose_models(names, settings))
    except UnknownModel as error:
        origin = settings.find_setting_origin("model")
        for document in settings.documents:
            for keys in _MODEL_KEYS:
                if has_settings_key(document, keys) and document.locate_key(keys) == origin:
                    yield StartRefusal(document.name, ".".join(keys), str(error))


async def _choose_models(names: Sequence[str], settings: Settings) -> None:
    for name in names:
        try:
            await _choose_and_close(name, settings)
        except UnknownModel:
            raise
        except (ModelError, SettingsError):  # about keys and servers, which no item of a file is to blame for
            continue


async def _choose_and_close(name: str | None, settings: Settings) -> ModelCard:
    from shoal.app.models.model_choice import choose_model

    model = await choose_model(name, settings, SystemClock(), IdGenerator().random)
    await model.aclose()
    return model.card


def find_unknown_model(name: str, settings: Settings) -> str:
    """Return why there is no such model; empty if there is one."""
    try:
        asyncio.run(_choose_models([name], settings))
    except UnknownModel as error:
        return str(error)
    return ""


def find_lead_card(settings: Settings) -> ModelCard | None:
    """Return what is known about the model of a session; None if none can be used."""
    from shoal.app.models.model_choice import find_plan_mode_names

    name = settings.models.main
    pair = None if name is None else find_plan_mode_names(name, settings)
    try:
        return asyncio.run(_choose_and_close(name if pair is None else pair.other, settings))
    except ShoalError:  # reported elsewhere
        return None


def _find_refused_cloud(settings: Settings) -> Iterator[StartRefusal]:
    """Yield the variable of a file that sends the session's model to a cloud that Shoal cannot use."""
    from shoal.app.models.model_choice import find_plan_mode_names

    variable = settings.foreign.access.cloud.partition(" ")[0]
    if not variable:
        return
    name = settings.models.main
    pair = None if name is None else find_plan_mode_names(name, settings)
    try:
        asyncio.run(_choose_and_close(name if pair is None else pair.other, settings))
    except Unauthorized as error:
        if not str(error).startswith(variable):
            return
        for document in settings.documents:
            if has_settings_key(document, ("env", variable)):
                yield StartRefusal(document.name, f"env.{variable}", str(error))
                return
    except (ModelError, SettingsError):  # reported elsewhere
        return


def _find_refused_sandbox(settings: Settings, cwd: Path) -> Iterator[StartRefusal]:
    try:
        check_sandbox_settings(settings, cwd)
    except SettingsError as error:
        for document in settings.documents:
            if has_settings_key(document, ("sandbox",)) or has_settings_key(document, ("shoal", "sandbox")):
                yield StartRefusal(document.name, "sandbox", str(error))
