"""Configuration of a session from its options, its settings and its history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.basis.assisting import assists
from shoal.app.basis.coordinating import coordinates
from shoal.app.basis.form import with_form
from shoal.app.basis.history import History, open_history
from shoal.app.basis.prompt import date_line
from shoal.app.definitions.definitions import Definitions, definitions_for, given_definitions
from shoal.app.definitions.plugins import Plugins, plugins_for
from shoal.app.models.choosing import chosen_or_other
from shoal.app.options import Options
from shoal.app.quarters.confines import checked
from shoal.app.settings.settings import Settings, load_settings
from shoal.core.errors import SettingsError
from shoal.core.ids import Ids
from shoal.core.ports import Model
from shoal.models.stand_ins import StandIns
from shoal.stores.files.places import subagents_of
from shoal.tools.structured import StructuredOutput

Choose: TypeAlias = Callable[[str | Model | None], Awaitable[Model]]
"""Returns the model of a name, or the configured one."""


class Basis(Struct, frozen=True, kw_only=True):
    started: float
    options: Options
    cwd: Path
    """Project directory, with symlinks resolved."""
    settings: Settings
    plugins: Plugins
    definitions: Definitions
    history: History
    ids: Ids
    jitter: Random
    form: StructuredOutput | None
    """Tool that receives the structured answer, if one is required."""
    coordinator: bool
    assistant: bool
    notes: tuple[str, ...]
    """Notes for the person about the configuration."""

    @property
    def subagents(self) -> Path:
        """Directory of its agents' transcripts."""
        return subagents_of(self.history.transcript)


def basis_of(options: Options, leave: AsyncExitStack) -> Basis:
    """Load the configuration and lock the session until `exit_stack` closes. Raises `ShoalError`."""
    started = options.clock.monotonic()
    (options, form), cwd = with_form(options), _project(options.cwd)
    settings = replace(
        load_settings(cwd=cwd, given=options.settings, sources=options.setting_sources),
        betas=tuple(options.betas),
    )
    remarks = checked(settings, cwd)
    coordinator, assistant = coordinates(options, settings), assists(options, settings)
    given = given_definitions(options.agents, cwd)
    plugins = plugins_for(settings, cwd, options.plugin_dirs)
    definitions = definitions_for(
        cwd=cwd,
        home=settings.home,
        given=given,
        plugins=plugins.agents(),
        complete=plugins.completed,
        sources=options.setting_sources,
    )
    ids = Ids(options.seed)
    # Always drawn: a session's random numbers must not depend on its model or on earlier draws.
    jitter = ids.branch().random
    history = open_history(options, settings.home, str(cwd), ids)
    if history.lock is not None:
        # Only for a new session is it certain that nobody else uses its directory.
        leave.callback(history.lock.release if history.turns else history.lock.leave_nothing)
    return Basis(
        started=started,
        options=options,
        cwd=cwd,
        settings=settings,
        plugins=plugins,
        definitions=definitions,
        history=history,
        ids=ids if history.last is None else ids.beyond(history.last),
        jitter=jitter,
        form=form,
        coordinator=coordinator,
        assistant=assistant,
        notes=(*remarks, *(warning for parsed in given for warning in parsed.warnings)),
    )


def chooser(basis: Basis, leave: AsyncExitStack) -> Choose:
    """Create a model chooser; `exit_stack` closes each model."""
    options, settings = basis.options, basis.settings
    stand_ins = _stand_ins(basis)

    async def choose(name: str | Model | None) -> Model:
        if name is None or isinstance(name, str):
            name = await chosen_or_other(
                name, options.fallback_model, settings, options.clock, basis.jitter, stand_ins=stand_ins
            )
        model = _recorded(name, options.record, stand_ins)
        leave.push_async_callback(model.aclose)
        return model

    return choose


def _project(cwd: Path | None) -> Path:
    project = (cwd or Path.cwd()).expanduser().resolve()
    if not project.is_dir():
        raise SettingsError(f"{project} is not a directory to work in.", path=project)
    return project


def _stand_ins(basis: Basis) -> StandIns:
    """Build placeholders for the request parts that differ between a recording and its replay."""
    return StandIns(
        {
            "cwd": str(basis.cwd),
            "home": str(basis.settings.home),
            "session": basis.history.session,
            "date": date_line(basis.options.clock),
        },
        basis.settings.secrets,
    )


def _recorded(model: Model, path: Path | None, stand_ins: StandIns) -> Model:
    if path is None:
        return model
    from shoal.models.replay import RecordingModel

    return RecordingModel(model, path, stand_ins)
