"""Gives a session its crew: where the agents it starts come from, and the tools that reach them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from msgspec import Struct

from shoal.agent.agent import Agent, Bounds
from shoal.app.child_models import child_model
from shoal.app.definitions import Definitions
from shoal.app.options import Options
from shoal.app.outfitting import Outfitting, Stock
from shoal.app.prompt import system_prompt
from shoal.app.settings import Settings
from shoal.core.agents import Order
from shoal.core.budget import Purse
from shoal.core.definitions import Definition
from shoal.core.events import Event, FileChanged, Journaled
from shoal.core.filenames import shown
from shoal.core.identity import Identity
from shoal.core.ids import AgentId, Ids
from shoal.core.ports import Model
from shoal.core.tools import Tool
from shoal.policy.permissions import RulePermissions
from shoal.runs.crew import AgentCrew, Habits
from shoal.runs.queue import Queue
from shoal.runs.witness import Witness
from shoal.tools.agent_list import listing
from shoal.tools.agents import Shown, agent_tools
from shoal.tools.control import control_tools
from shoal.tools.plan import Planning
from shoal.tools.schedules import SCHEDULE_TOOLS
from shoal.tools.shells import Shells
from shoal.workspaces.local import LocalWorkspace


class Ground(Struct, frozen=True, kw_only=True):
    """What of a session its crew stands on."""

    options: Options
    settings: Settings
    definitions: Definitions
    subagents: Path | None
    directory: Path
    """Of the run's own record."""
    bounds: Bounds
    purse: Purse
    queue: Queue
    ids: Ids
    choose: Callable[[str], Awaitable[Model]]
    tell: Callable[[Event], Awaitable[None]]
    emit: Callable[[Journaled], None]
    turn: Callable[[], int]
    plans: Plans
    coordinator: bool = False


def make_crew(ground: Ground, tools: dict[str, Tool], shells: Shells) -> AgentCrew:
    """`tools` is what agents choose from, but for schedules; the tools of the crew are added to it."""
    options, own = ground.options, ground.settings.own
    # An agent ends with its job, and a schedule would have nobody to come to.
    theirs = {name: tool for name, tool in tools.items() if name not in SCHEDULE_TOOLS}
    stock = Stock(
        subagents=ground.subagents,
        outputs=ground.directory / "tasks",
        durable=own.durable,
        definition=ground.definitions.find,
        model=_models(ground),
        system=cache(lambda prompt, cwd: system_prompt(cwd=cwd, clock=options.clock, instead=prompt)),
        tools=theirs,
        workspace=_workspaces(ground),
        bounds=ground.bounds,
        purse=ground.purse,
        queue=ground.queue,
        left=_cleared(ground, shells),
        tell=ground.tell,
        clock=options.clock,
        ids=ground.ids,
    )
    crew = AgentCrew(
        outfitter=Outfitting(stock),
        queue=ground.queue,
        habits=Habits(
            background=own.background_agents,
            always_background=ground.coordinator,
            model_by_call=not ground.coordinator,
            auto_background=own.auto_background,
            report_tokens=own.report_tokens,
            # Where nobody can be asked, caps and budgets hold alone.
            preview=own.fan_out_preview if options.attended else None,
        ),
        purse=ground.purse,
        clock=options.clock,
        ids=ground.ids.branch(),
        emit=ground.emit,
    )
    ground.plans.crew = crew
    known = listing(ground.definitions.all())
    choice = not ground.coordinator
    shown_inputs = Shown(background=own.background_agents and choice, model=choice)
    for tool in (*agent_tools(crew, listing=known, shown=shown_inputs), *control_tools(crew, shells)):
        tools[tool.schema.name] = theirs[tool.schema.name] = tool
    return crew


class Plans:
    """The plans of the agents of a session; those of the lead are always there."""

    def __init__(self, make: Callable[[RulePermissions], Planning]) -> None:
        self._make = make
        self._of: dict[AgentId, Planning] = {}
        self.crew: AgentCrew | None = None

    def of(self, agent: Identity) -> Planning:
        if agent.agent not in self._of:
            assert self.crew is not None
            permissions = self.crew.agent(agent.agent).permissions
            assert isinstance(permissions, RulePermissions)
            self._of[agent.agent] = self._make(permissions)
        return self._of[agent.agent]

    def forget(self, agent: AgentId) -> None:
        self._of.pop(agent, None)


def _cleared(ground: Ground, shells: Shells) -> Callable[[AgentId], Awaitable[None]]:
    async def cleared(agent: AgentId) -> None:
        ground.plans.forget(agent)
        await shells.stop_those_of(agent)

    return cleared


def _models(ground: Ground) -> Callable[[Agent, Order, Definition], Awaitable[Model]]:
    chosen: dict[str, Model] = {}

    async def model(parent: Agent, order: Order, definition: Definition) -> Model:
        name = child_model(ground.settings, parent.model.card, call=order.model, definition=definition.model)
        if name is None or name == parent.model.card.id:
            return parent.model
        if name not in chosen:
            chosen[name] = await ground.choose(name)
        return chosen[name]

    return model


def _workspaces(ground: Ground) -> Callable[[Agent, AgentId, Witness], LocalWorkspace]:
    """Agents that share the files of their parent have a view of their own of what they have read."""

    def workspace(parent: Agent, agent: AgentId, witness: Witness) -> LocalWorkspace:
        theirs = parent.surroundings.workspace
        assert isinstance(theirs, LocalWorkspace)

        def changed(turn: int, path: Path) -> None:
            witness.changed(shown(path))
            ground.emit(FileChanged(agent=agent, turn=turn, path=shown(path)))

        own = theirs.beside(changed)
        own.begin_turn(ground.turn())
        return own

    return workspace
