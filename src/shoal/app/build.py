"""The composition root: picks the implementations and introduces them to each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

import shoal
from shoal.agent.agent import Agent, Surroundings
from shoal.agent.conversation import Conversation
from shoal.app.acceptance import Acceptance
from shoal.app.arriving import fed_queue
from shoal.app.assisting import added_prompt, assists
from shoal.app.berths import Shore
from shoal.app.choosing import chosen_or_other
from shoal.app.confines import checked
from shoal.app.coordinating import coordinates, prompt_of_lead, tools_of_lead
from shoal.app.crewing import Ground, make_crew, plans_in
from shoal.app.definitions import Definitions, definitions_for, given_definitions
from shoal.app.forming import with_form
from shoal.app.history import History, open_history
from shoal.app.hook_sources import configured_hooks
from shoal.app.hooking import SessionHooks, Whose, hook_runner
from shoal.app.knowledge import Knowledge, gathered
from shoal.app.mcp_prompts import ServedPrompts
from shoal.app.mcp_servers import McpServers
from shoal.app.mcp_session import session_servers
from shoal.app.obeying import obey
from shoal.app.occasions import Occasions
from shoal.app.options import Options
from shoal.app.plugins import Plugins, plugins_for
from shoal.app.prompt import date_line, system_prompt
from shoal.app.purse import bounds_of, carry_over, open_purse
from shoal.app.quarters import Housing
from shoal.app.reach import Reach, reach_of
from shoal.app.record import AgentsRecord
from shoal.app.recovery import LeftOver, Places, Told, left_over
from shoal.app.session_memory import SessionMemory
from shoal.app.session_record import Record, open_record
from shoal.app.settings import Settings, load_settings
from shoal.app.toolbox import all_tools, unknown_rules
from shoal.app.unattended import listed
from shoal.app.undo import Past
from shoal.core.budget import Purse
from shoal.core.errors import SettingsError
from shoal.core.identity import Identity
from shoal.core.ids import LEAD, LEAD_KIND, AgentId, Ids
from shoal.core.messages import Message
from shoal.core.ports import Journal, Model
from shoal.core.tools import Tool
from shoal.models.stand_ins import StandIns
from shoal.policy.permissions import RulePermissions
from shoal.runs.control import ControlServer
from shoal.runs.crew import AgentCrew
from shoal.runs.desk import FileDesk
from shoal.runs.queue import Queue
from shoal.runs.timetable import ClockedTimetable
from shoal.stores.files.journal import FileJournal
from shoal.stores.files.results import FileResults
from shoal.team.outpost import Outpost
from shoal.team.teams import SessionTeams
from shoal.tools.plan import plan_tools
from shoal.tools.schedules import schedule_tools
from shoal.tools.shells import Shells
from shoal.tools.structured import StructuredOutput
from shoal.wire.definitions import Parsed
from shoal.workspaces.local import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.session import Session
    from shoal.stores.files.debug import DebugLog


class Parts(Struct, kw_only=True):
    """What a session is made of, for the session and the surfaces."""

    settings: Settings
    definitions: Definitions
    plugins: Plugins
    agent: Agent
    workspace: LocalWorkspace
    permissions: RulePermissions
    desk: FileDesk
    queue: Queue
    housing: Housing
    crew: AgentCrew
    teams: SessionTeams | Outpost
    shells: Shells
    timetable: ClockedTimetable
    servers: McpServers
    between: AgentsRecord
    knowledge: Knowledge
    journal: Journal
    debug: DebugLog | None
    control: ControlServer | None
    hooks: SessionHooks
    occasions: Occasions
    past: Past | None
    """What can be undone; None where nothing is kept."""
    choose: Callable[[str | Model | None], Awaitable[Model]]
    interrupted: Message | None
    """Results for the calls an earlier process of this session left without one."""
    left_over: LeftOver | None
    """What an earlier process of this session did not come to do."""
    assistant: bool
    """Whether the session stays open when there is nothing to do."""
    turns_before: int
    notes: tuple[str, ...]
    form: StructuredOutput | None
    """Takes the answer, where it has to have a form."""
    started: float
    trace: Callable[[AgentId, str], str] = lambda _agent, _call: ""
    """Where the trace of an agent in another process goes on."""
    version: str = shoal.__version__


async def build(options: Options, session: Session, leave: AsyncExitStack) -> Parts:
    """Everything is undone by `leave`, in reverse order. Raises a `ShoalError` for what cannot be had."""
    started = options.clock.monotonic()
    (options, form), cwd = with_form(options), _project(options.cwd)
    settings = replace(
        load_settings(cwd=cwd, given=options.settings, sources=options.setting_sources),
        betas=tuple(options.betas),
    )
    remarks = checked(settings, cwd)
    coordinator, assistant = coordinates(options, settings), assists(options, settings)
    given = given_definitions(options.agents, cwd)
    (plugins, definitions), ids = _definitions(options, settings, cwd, given), Ids(options.seed)
    # Whether it is used or not: what a session draws must not depend on its model or on others before it.
    jitter = ids.branch().random
    history = open_history(options, settings.home, str(cwd), ids)
    ids = ids if history.last is None else ids.beyond(history.last)
    if history.lock is not None:
        # Only of a new session is it certain that nobody else looks for its directory.
        leave.callback(history.lock.release if history.turns else history.lock.leave_nothing)

    stand_ins = _stand_ins(options, settings, cwd, history)

    async def choose(name: str | Model | None) -> Model:
        if name is None or isinstance(name, str):
            name = await chosen_or_other(
                name, options.fallback_model, settings, options.clock, jitter, stand_ins=stand_ins
            )
        model = _recorded(name, options.record, stand_ins)
        leave.push_async_callback(model.aclose)
        return model

    model = await choose(options.model)
    record = open_record(options, settings, cwd, history, leave)
    identity = Identity(session=history.session, name=options.name, team=options.team)
    reach = await reach_of(options, settings, cwd, record, session, leave)
    hooks, between = (
        _hooks(options, settings, history, reach, session, plugins),
        _between_agents(options, settings, record, session, ids, leave),
    )
    plans = plans_in(settings, ids.branch())
    queue, timetable = await fed_queue(session, reach.shells, options.clock, ids, leave)
    tools: dict[str, Tool] = {}
    acceptance = Acceptance(tools, plans.agent)
    tools |= all_tools(
        reach.shells,
        between,
        (
            *plan_tools(plans.of),
            *schedule_tools(timetable, attended=options.attended or assistant),
            *options.tools,
        ),
        acceptance.of_task,
        nested_teams=settings.own.team_depth > 1,
    )
    servers = await leave.enter_async_context(
        session_servers(options, settings, reach, record.directory, session, tools, plugins)
    )
    reach.desk.listed = listed(settings, reach.workspace, tools, identity)
    knowledge = gathered(
        settings,
        definitions,
        reach,
        plugins=plugins,
        tools=tools,
        prompts=[ServedPrompts(servers)],
        window=model.card.window,
        note=session.note,
    )
    purse, bounds, housing = (
        _purse(options, settings, model, record, session),
        bounds_of(options, settings.own),
        _housing(options, settings, record, reach.workspace, session, leave),
    )
    crew, teams = make_crew(
        Ground(
            options=options,
            settings=settings,
            definitions=definitions,
            subagents=_subagents(history) if options.persist else None,
            directory=record.directory,
            bounds=bounds,
            purse=purse,
            queue=queue,
            ids=ids.branch(),
            choose=choose,
            tell=session.tell,
            emit=session.emit,
            between=between,
            housing=housing,
            hooks=hooks,
            plans=plans,
            coordinator=coordinator,
            assistant=assistant,
            acceptance=acceptance,
            knowledge=knowledge,
            shore=Shore(
                cwd=cwd,
                model=model,
                transcript=history.transcript,
                processes=reach.processes,
                shells=reach.shells,
                note=session.note,
                hear=session.overhear,
                trace=lambda agent, call: session.parts.trace(agent, call),  # noqa: PLW0108 - set later
            ),
            servers=servers,
        ),
        tools,
        reach.shells,
    )
    await leave.enter_async_context(crew)
    await leave.enter_async_context(teams)
    agent = Agent(
        identity=identity,
        model=model,
        system=system_prompt(
            cwd=cwd,
            clock=options.clock,
            granted=reach.granted,
            instead=prompt_of_lead(options, coordinator=coordinator),
            instructions=knowledge.instructions.text,
            also=added_prompt(options, assistant=assistant),
        ),
        tools=tools_of_lead(options, tools, coordinator=coordinator),
        conversation=Conversation(
            record.transcript, options.clock, ids, messages=history.messages, last=history.last
        ),
        surroundings=Surroundings(
            workspace=reach.workspace,
            processes=reach.processes,
            desk=reach.desk if options.link is None else options.link.desk,
            results=FileResults(record.directory / "results"),
            env=settings.tool_environment,
        ),
        permissions=reach.permissions,
        hooks=hooks.of(Whose(identity=identity, workspace=reach.workspace, permissions=reach.permissions)),
        purse=purse.account(LEAD, LEAD_KIND),
        inlet=queue.inlet(LEAD),
        remember=_memory(options, settings, record, session),
        tell=session.tell,
        clock=options.clock,
        ids=ids,
        bounds=bounds,
    )
    crew.led_by(agent)
    servers.changed = lambda: agent.give(tools_of_lead(options, tools, coordinator=coordinator))
    left = _counted(_left_over(options, settings, history, record, ids), purse, reach.shells)
    return Parts(
        settings=settings,
        definitions=definitions,
        plugins=plugins,
        agent=agent,
        workspace=reach.workspace,
        permissions=reach.permissions,
        desk=reach.desk,
        queue=queue,
        housing=housing,
        crew=crew,
        teams=teams,
        shells=reach.shells,
        timetable=timetable,
        servers=servers,
        between=between,
        knowledge=knowledge,
        journal=record.journal,
        debug=_debug(options, settings, history, leave),
        control=await _control(options, session, record, leave),
        hooks=hooks,
        occasions=await leave.enter_async_context(Occasions(agent, session, options)),
        past=_past(options, settings, history),
        choose=choose,
        interrupted=_told_first(agent, history),
        left_over=left,
        assistant=assistant,
        turns_before=max(history.turns, left.turns if left else 0),
        notes=(
            *settings.warnings,
            *remarks,
            *hooks.problems,
            *(warning for parsed in given for warning in parsed.warnings),
            *plugins.notes,
            *definitions.unusable(),
            *knowledge.remarks(),
            *servers.configured.problems,
            *unknown_rules((*options.allowed_tools, *options.disallowed_tools), tools),
            *history.notes,
        ),
        form=form,
        started=started,
    )


def _project(cwd: Path | None) -> Path:
    project = (cwd or Path.cwd()).expanduser().resolve()
    if not project.is_dir():
        raise SettingsError(f"{project} is not a directory to work in.", path=project)
    return project


def _definitions(
    options: Options, settings: Settings, cwd: Path, given: Sequence[Parsed]
) -> tuple[Plugins, Definitions]:
    plugins = plugins_for(settings, cwd, options.plugin_dirs)
    definitions = definitions_for(
        cwd=cwd,
        home=settings.home,
        given=given,
        plugins=plugins.agents(),
        complete=plugins.completed,
        sources=options.setting_sources,
    )
    return plugins, definitions


def _stand_ins(options: Options, settings: Settings, cwd: Path, history: History) -> StandIns:
    """What of the requests differs between a recorded run and its replay."""
    return StandIns(
        {
            "cwd": str(cwd),
            "home": str(settings.home),
            "session": history.session,
            "date": date_line(options.clock),
        },
        settings.secrets,
    )


def _recorded(model: Model, path: Path | None, stand_ins: StandIns) -> Model:
    if path is None:
        return model
    from shoal.models.replay import RecordingModel

    return RecordingModel(model, path, stand_ins)


def _hooks(
    options: Options,
    settings: Settings,
    history: History,
    reach: Reach,
    session: Session,
    plugins: Plugins,
) -> SessionHooks:
    project = reach.workspace.root
    configured = configured_hooks(settings, options.hooks, plugins.hooks())
    hooks = SessionHooks(
        hook_runner(settings, project, reach.processes, options.clock, session.emit),
        settings,
        session=history.session,
        transcript=str(history.transcript) if options.persist else "",
        project=project,
    )
    if options.begun is not None:
        hooks.add(configured.hooks)
    hooks.problems = configured.problems
    return hooks


def _between_agents(
    options: Options, settings: Settings, record: Record, session: Session, ids: Ids, leave: AsyncExitStack
) -> AgentsRecord:
    """Boards and mail; those of a session that keeps nothing go with its directory."""
    home = settings.home if options.persist else record.directory
    between = AgentsRecord(
        home,
        clock=options.clock,
        ids=ids.branch(),
        report=session.note,
        keeps_keys=options.persist,
        emit=session.emit,
        tells_tasks=options.link is None,
    )
    leave.push_async_callback(between.aclose)
    return between


def _housing(
    options: Options,
    settings: Settings,
    record: Record,
    workspace: LocalWorkspace,
    session: Session,
    leave: AsyncExitStack,
) -> Housing:
    housing = Housing(
        settings,
        record.directory,
        options.clock,
        emit=session.emit,
        note=session.note,
        turn=lambda: session.turn,
    )
    leave.callback(housing.close)
    workspace.guard = housing.leases.guard(LEAD)
    return housing


def _left_over(
    options: Options, settings: Settings, history: History, record: Record, ids: Ids
) -> LeftOver | None:
    if not history.turns or not options.persist:
        return None
    places = Places(
        journal=record.directory / "journal.jsonl",
        subagents=_subagents(history),
        outputs=record.directory / "tasks",
        results=record.directory / "results",
        report_tokens=settings.own.report_tokens,
    )
    told = Told(delivered=history.delivered, answered=history.answered)
    return left_over(places, told, ids.branch())


def _counted(left: LeftOver | None, purse: Purse, shells: Shells) -> LeftOver | None:
    if left is not None:
        left.count_on(purse, shells)
    return left


def _subagents(history: History) -> Path:
    return history.transcript.with_suffix("") / "subagents"


def _purse(options: Options, settings: Settings, model: Model, record: Record, session: Session) -> Purse:
    """Of the whole tree, with the account of its lead."""
    if (link := options.link) is not None:
        return link.purse
    purse = open_purse(options, settings.own, session.emit)
    if isinstance(record.journal, FileJournal):
        carry_over(purse, record.journal.path)
    purse.account(LEAD, LEAD_KIND).admit(model.card)
    return purse


def _debug(options: Options, settings: Settings, history: History, leave: AsyncExitStack) -> DebugLog | None:
    if not options.debug or options.link is not None:
        return None
    from shoal.stores.files.debug import DebugLog

    log = DebugLog(settings.home / "debug", history.session, options.clock, settings.secrets)
    leave.callback(log.close)
    return log


async def _control(
    options: Options, session: Session, record: Record, leave: AsyncExitStack
) -> ControlServer | None:
    if not options.persist or options.link is not None:
        return None
    assert isinstance(record.journal, FileJournal)
    return await leave.enter_async_context(
        ControlServer(
            record.directory / "control.sock",
            handle=partial(obey, session),
            steer=lambda message: session.steer(message.text),
            position=record.journal.position,
        )
    )


def _memory(options: Options, settings: Settings, record: Record, session: Session) -> SessionMemory | None:
    if not settings.own.session_memory or not options.persist or options.link is not None:
        return None
    return SessionMemory(record.directory / "memory.md", session.note)


def _told_first(agent: Agent, history: History) -> Message | None:
    if not isinstance(agent.remember, SessionMemory):
        return history.interrupted
    return agent.remember.resumed(history.interrupted, history.messages)


def _past(options: Options, settings: Settings, history: History) -> Past | None:
    if not options.persist:
        return None
    return Past(home=settings.home, session=history.session, transcript=history.transcript)
