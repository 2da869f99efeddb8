"""Creates the agent supervisor of a session, its services, and the tools that use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import cache, lru_cache, partial
from pathlib import Path

from msgspec import Struct

from shoal.agent.agent import Agent, Bounds
from shoal.app.agents.acceptance import Acceptance
from shoal.app.agents.berths import Shore
from shoal.app.agents.files import AgentFiles
from shoal.app.agents.memory import memory_of
from shoal.app.agents.orders import FORKED, name_of
from shoal.app.agents.outfitting import Outfitting
from shoal.app.agents.stock import Stock
from shoal.app.agents.teaming import make_teams
from shoal.app.authority import authority_of
from shoal.app.basis.prompt import system_prompt
from shoal.app.definitions.definitions import Definitions
from shoal.app.hooks.hooking import SessionHooks
from shoal.app.mcp.servers import McpServers
from shoal.app.models.child_models import child_model
from shoal.app.options import Options
from shoal.app.outside.abroad import Abroad
from shoal.app.quarters.quarters import Housing
from shoal.app.settings.settings import Settings
from shoal.app.skills.knowledge import Knowledge
from shoal.app.teams.record import AgentsRecord
from shoal.core.agents import Order
from shoal.core.budget import Purse
from shoal.core.definitions import Definition
from shoal.core.events import Event, Journaled, ModeChanged
from shoal.core.identity import Identity
from shoal.core.ids import AgentId, Ids
from shoal.core.permissions import Mode
from shoal.core.ports import Model
from shoal.core.tools import Tool
from shoal.core.usage import ModelCard
from shoal.policy.permissions import RulePermissions
from shoal.runs.crew import AgentCrew
from shoal.runs.habits import Habits
from shoal.runs.queue import Queue
from shoal.stores.files.places import write_whole
from shoal.team.outpost import Outpost
from shoal.team.teams import SessionTeams
from shoal.tools.agent_list import listing
from shoal.tools.agents import Shown, agent_tools
from shoal.tools.control import control_tools
from shoal.tools.plan import Planning
from shoal.tools.schedules import SCHEDULE_TOOLS
from shoal.tools.shells import Shells
from shoal.tools.structured import STRUCTURED_OUTPUT
from shoal.tools.team import TEAM_TOOLS, team_tools


class Ground(Struct, frozen=True, kw_only=True):
    """Session services that the agent supervisor and the team use."""

    options: Options
    settings: Settings
    definitions: Definitions
    subagents: Path | None
    directory: Path
    """Directory of the run."""
    bounds: Bounds
    purse: Purse
    queue: Queue
    ids: Ids
    choose: Callable[[str], Awaitable[Model]]
    tell: Callable[[Event], Awaitable[None]]
    emit: Callable[[Journaled], None]
    between: AgentsRecord
    housing: Housing
    hooks: SessionHooks
    plans: Plans
    acceptance: Acceptance
    shore: Shore
    knowledge: Knowledge
    servers: McpServers
    coordinator: bool = False
    assistant: bool = False


def make_crew(
    ground: Ground, tools: dict[str, Tool], shells: Shells
) -> tuple[AgentCrew, SessionTeams | Outpost]:
    """Create the supervisor and the teams; their tools are added to `tools`."""
    stock = _stock(ground, tools, shells)
    outfitter = Outfitting(stock)
    crew = AgentCrew(
        outfitter=outfitter,
        queue=ground.queue,
        habits=_habits(ground),
        purse=ground.purse,
        clock=ground.options.clock,
        ids=ground.ids.branch(),
        emit=ground.emit,
    )
    ground.plans.crew = ground.knowledge.invoking.crew = crew
    ground.plans.approved = stock.files.approved
    ground.plans.emit = ground.emit
    teams = make_teams(ground, crew, outfitter)
    added = (
        *_agent_tools(ground, crew, teams),
        *team_tools(teams),
        *control_tools(crew, shells, teams),
        ground.knowledge.tool(),
    )
    tools |= {tool.schema.name: tool for tool in added}
    return crew, teams


def _stock(ground: Ground, tools: dict[str, Tool], shells: Shells) -> Stock:
    options, settings = ground.options, ground.settings
    return Stock(
        files=AgentFiles(ground.subagents, durable=settings.own.durable, clock=options.clock, ids=ground.ids),
        outputs=ground.directory / "tasks",
        definition=ground.definitions.find,
        model=_models(ground),
        system=cache(_system(ground)),
        known=ground.knowledge.for_newcomer,
        memory=partial(memory_of, home=settings.home, project=ground.shore.cwd),
        tools=tools,
        equip=ground.servers.equip,
        # An agent ends with its job, so a schedule of it would have no recipient.
        of_lead=(*SCHEDULE_TOOLS, *TEAM_TOOLS, STRUCTURED_OUTPUT),
        housing=ground.housing,
        hooks=ground.hooks,
        bounds=ground.bounds,
        purse=ground.purse,
        queue=ground.queue,
        accept=ground.acceptance.run,
        left=_cleared(ground, shells),
        tell=ground.tell,
        clock=options.clock,
        ids=ground.ids,
    )


def _habits(ground: Ground) -> Habits:
    own, attended = ground.settings.own, ground.options.attended
    # No forks unattended, where they would multiply unseen work, nor for a coordinator.
    forks = ground.settings.forks and attended and not ground.coordinator
    return Habits(
        background=own.background_agents,
        always_background=forks or ground.coordinator or ground.assistant,
        model_by_call=not ground.coordinator,
        forks=forks,
        auto_background=own.auto_background,
        report_tokens=own.report_tokens,
        # Unattended, nobody can be asked: only caps and budgets apply.
        preview=own.fan_out_preview if attended else None,
    )


def _agent_tools(ground: Ground, crew: AgentCrew, teams: SessionTeams | Outpost) -> Iterable[Tool]:
    habits = crew.habits
    shown = Shown(
        background=habits.background and not habits.always_background,
        model=habits.model_by_call,
        forks=habits.forks,
        cwd=ground.settings.own.agent_cwd,
        teams=True,
    )
    abroad = Abroad(ground.settings.home).send
    return agent_tools(crew, teams, listing=listing(ground.definitions.all()), shown=shown, abroad=abroad)


def _system(ground: Ground) -> Callable[[str, Path, bool], str]:
    def system(prompt: str, cwd: Path, instructed: bool) -> str:  # noqa: FBT001 - the port's shape
        told = ground.knowledge.instructions.text if instructed else ""
        return system_prompt(cwd=cwd, clock=ground.options.clock, instead=prompt, instructions=told)

    return system


class Plans:
    """Planning state of each agent of a session; that of the lead is never dropped."""

    def __init__(self, make: Callable[[RulePermissions], Planning]) -> None:
        self._make = make
        self._of: dict[AgentId, Planning] = {}
        self.crew: AgentCrew | None = None
        self.approved: Callable[[AgentId, Mode], None] = lambda _, __: None
        """Called with the mode in which an agent other than the lead executes its plan."""
        self.emit: Callable[[Journaled], None] = lambda _: None

    def agent(self, agent: AgentId) -> Agent:
        """Return a working agent."""
        assert self.crew is not None
        return self.crew.agent(agent)

    def of(self, agent: Identity) -> Planning:
        if agent.agent not in self._of:
            planning = self._of[agent.agent] = self._make(authority_of(self.agent(agent.agent)))
            planning.changed = lambda mode: self.emit(ModeChanged(agent=agent.agent, mode=mode))
            if not agent.is_lead:
                planning.approved = partial(self.approved, agent.agent)
            if agent.is_teammate:
                # The lead's side decides who approves: the plan is sent there in any case.
                planning.approver = lambda: "user"
        return self._of[agent.agent]

    def forget(self, agent: AgentId) -> None:
        self._of.pop(agent, None)


def plans_in(settings: Settings, ids: Ids) -> Plans:
    return Plans(
        lambda permissions: Planning(
            permissions,
            directory=settings.home / "plans",
            ids=ids,
            approver=lambda: settings.own.plan_approver,
            write=write_whole,
        )
    )


def _cleared(ground: Ground, shells: Shells) -> Callable[[AgentId], Awaitable[None]]:
    async def cleared(agent: AgentId) -> None:
        ground.plans.forget(agent)
        ground.housing.leases.release(agent)
        await shells.stop_those_of(agent)

    return cleared


def _models(ground: Ground) -> Callable[[Agent, Order, Definition], Awaitable[Model]]:
    chosen: dict[str, Model] = {}

    @lru_cache(maxsize=64)
    def named(parent: ModelCard, call: str | None, definition: str | None) -> str | None:
        return child_model(ground.settings, parent, call=call, definition=definition)

    async def model(parent: Agent, order: Order, definition: Definition) -> Model:
        if definition is FORKED:
            # A resumed fork keeps the model that it started with, whatever others get now.
            name = order.model
        else:
            name = named(parent.model.card, order.model, definition.model)
        if name in (None, parent.model.card.id, name_of(parent.model)):
            return parent.model
        if name not in chosen:
            chosen[name] = await ground.choose(name)
        return chosen[name]

    return model
