"""The composition root: chooses the implementations and connects them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

import shoal
from shoal.agent.agent import Agent, Surroundings
from shoal.agent.conversation import Conversation
from shoal.app.agents.berths import Shore
from shoal.app.agents.crewing import Ground, make_crew
from shoal.app.basis.assisting import added_prompt
from shoal.app.basis.basis import Basis, Choose, basis_of
from shoal.app.basis.coordinating import prompt_of_lead, tools_of_lead
from shoal.app.basis.history import History
from shoal.app.basis.prompt import system_prompt
from shoal.app.basis.recovery import LeftOver, Places, Told, left_over
from shoal.app.basis.session_memory import SessionMemory
from shoal.app.basis.session_record import Record
from shoal.app.basis.toolbox import unknown_rules
from shoal.app.basis.undo import Past
from shoal.app.definitions.definitions import Definitions
from shoal.app.definitions.plugins import Plugins
from shoal.app.hooks.hooking import SessionHooks, Whose
from shoal.app.mcp.servers import McpServers
from shoal.app.options import Options
from shoal.app.quarters.quarters import Housing
from shoal.app.session.hook_hearing import let_hear
from shoal.app.session.obeying import obey
from shoal.app.session.occasions import Occasions
from shoal.app.session.shared import Shared, share
from shoal.app.settings.settings import Settings
from shoal.app.skills.knowledge import Knowledge
from shoal.app.teams.record import AgentsRecord
from shoal.core.events import PREVIEW
from shoal.core.ids import LEAD, LEAD_KIND, AgentId
from shoal.core.messages import Message
from shoal.core.ports import Journal
from shoal.core.tools import Tool
from shoal.core.wording import one_line
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
from shoal.tools.shells import Shells
from shoal.tools.structured import StructuredOutput
from shoal.workspaces.local import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.stores.files.debug import DebugLog


class Parts(Struct, kw_only=True):
    """Services of a session, for the session and the surfaces."""

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
    """Turns that can be undone; None if nothing is stored."""
    choose: Choose
    interrupted: Message | None
    """Results for calls that an earlier process of this session left open, and its notes."""
    left_over: LeftOver | None
    """State that an earlier process of this session left unfinished."""
    assistant: bool
    """True if the session stays open when there is nothing to do."""
    turns_before: int
    notes: tuple[str, ...]
    form: StructuredOutput | None
    """Tool that receives the structured answer, if one is required."""
    started: float
    trace: Callable[[AgentId, str], str] = lambda _agent, _call: ""
    """Returns the trace parent for an agent in another process."""
    version: str = shoal.__version__


async def build(options: Options, session: Session, leave: AsyncExitStack) -> Parts:
    """Build a session; `exit_stack` closes everything in reverse order. Raises `ShoalError`."""
    basis = basis_of(options, leave)
    shared = await share(basis, session, leave)
    crew, teams = make_crew(_ground(basis, shared, session), shared.tools, shared.reach.shells)
    await leave.enter_async_context(crew)
    await leave.enter_async_context(teams)
    lead = _lead(basis, shared, session)
    crew.led_by(lead)
    let_hear(shared.hooks, crew, teams, session)
    shared.servers.changed = lambda: lead.give(_tools_of_lead(basis, shared))
    return await _parts(basis, shared, lead, crew, teams, session, leave)


def _ground(basis: Basis, shared: Shared, session: Session) -> Ground:
    """Build the services of the agent supervisor."""
    reach = shared.reach
    return Ground(
        options=basis.options,
        settings=basis.settings,
        definitions=basis.definitions,
        subagents=basis.subagents if basis.options.persist else None,
        directory=shared.record.directory,
        bounds=shared.bounds,
        purse=shared.purse,
        queue=shared.queue,
        ids=basis.ids.branch(),
        choose=shared.choose,
        tell=session.tell,
        emit=session.emit,
        between=shared.between,
        housing=shared.housing,
        hooks=shared.hooks,
        plans=shared.plans,
        coordinator=basis.coordinator,
        assistant=basis.assistant,
        acceptance=shared.acceptance,
        knowledge=shared.knowledge,
        shore=Shore(
            cwd=basis.cwd,
            model=shared.model,
            transcript=basis.history.transcript,
            processes=reach.processes,
            shells=reach.shells,
            note=session.note,
            hear=session.overhear,
            trace=lambda agent, call: session.parts.trace(agent, call),  # noqa: PLW0108 - set later
        ),
        servers=shared.servers,
    )


def _lead(basis: Basis, shared: Shared, session: Session) -> Agent:
    options, settings, reach, identity = basis.options, basis.settings, shared.reach, shared.identity
    return Agent(
        identity=identity,
        model=shared.model,
        system=system_prompt(
            cwd=basis.cwd,
            clock=options.clock,
            granted=reach.granted,
            instead=prompt_of_lead(options, coordinator=basis.coordinator),
            instructions=shared.knowledge.instructions.text,
            also=added_prompt(options, assistant=basis.assistant),
        ),
        tools=_tools_of_lead(basis, shared),
        conversation=Conversation(
            shared.record.transcript,
            options.clock,
            basis.ids,
            messages=basis.history.messages,
            last=basis.history.last,
        ),
        surroundings=Surroundings(
            workspace=reach.workspace,
            processes=reach.processes,
            desk=reach.desk if options.link is None else options.link.desk,
            results=FileResults(shared.record.directory / "results"),
            env=settings.tool_environment,
        ),
        permissions=reach.permissions,
        hooks=shared.hooks.of(
            Whose(identity=identity, workspace=reach.workspace, permissions=reach.permissions)
        ),
        purse=shared.purse.account(LEAD, LEAD_KIND),
        inlet=shared.queue.inlet(LEAD),
        remember=_memory(basis, shared.record, session),
        tell=session.tell,
        clock=options.clock,
        ids=basis.ids,
        bounds=shared.bounds,
    )


def _tools_of_lead(basis: Basis, shared: Shared) -> dict[str, Tool]:
    return tools_of_lead(basis.options, shared.tools, coordinator=basis.coordinator)


async def _parts(
    basis: Basis,
    shared: Shared,
    lead: Agent,
    crew: AgentCrew,
    teams: SessionTeams | Outpost,
    session: Session,
    leave: AsyncExitStack,
) -> Parts:
    reach = shared.reach
    left = _left_over(basis, shared)
    return Parts(
        settings=basis.settings,
        definitions=basis.definitions,
        plugins=basis.plugins,
        agent=lead,
        workspace=reach.workspace,
        permissions=reach.permissions,
        desk=reach.desk,
        queue=shared.queue,
        housing=shared.housing,
        crew=crew,
        teams=teams,
        shells=reach.shells,
        timetable=shared.timetable,
        servers=shared.servers,
        between=shared.between,
        knowledge=shared.knowledge,
        journal=shared.record.journal,
        debug=_debug(basis, leave),
        control=await _control(basis, session, shared.record, leave),
        hooks=shared.hooks,
        occasions=await leave.enter_async_context(Occasions(lead, session, basis.options)),
        past=_past(basis),
        choose=shared.choose,
        interrupted=_told_first(lead, basis.history),
        left_over=left,
        assistant=basis.assistant,
        turns_before=max(basis.history.turns, left.turns if left else 0),
        notes=(*_notes(basis, shared), *_describe_unknown_events(left)),
        form=basis.form,
        started=basis.started,
    )


def _notes(basis: Basis, shared: Shared) -> tuple[str, ...]:
    """Collect the notes for the person at the start of the session."""
    options = basis.options
    return (
        *basis.settings.warnings,
        *basis.notes,
        *shared.hooks.problems,
        *basis.plugins.notes,
        *basis.definitions.unusable(),
        *shared.knowledge.remarks(),
        *shared.servers.configured.problems,
        *shared.servers.missing_channels(),
        *unknown_rules((*options.allowed_tools, *options.disallowed_tools), shared.tools),
        *basis.history.notes,
    )


def _describe_unknown_events(left: LeftOver | None) -> tuple[str, ...]:
    """Return a sentence if the journal has events that another version wrote and this one cannot read."""
    if left is None or not left.unknown_types:
        return ()
    types = one_line(", ".join(left.unknown_types))[:PREVIEW]
    return (f"Cannot read some events of the journal ({types}). The session goes on without them.",)


def _left_over(basis: Basis, shared: Shared) -> LeftOver | None:
    """Recover the state of an earlier process and continue its counters."""
    if not basis.history.turns or not basis.options.persist:
        return None
    directory, history = shared.record.directory, basis.history
    places = Places(
        journal=directory / "journal.jsonl",
        subagents=basis.subagents,
        outputs=directory / "tasks",
        results=directory / "results",
        report_tokens=basis.settings.own.report_tokens,
    )
    told = Told(delivered=history.delivered, answered=history.answered)
    left = left_over(places, told, basis.ids.branch())
    left.count_on(shared.purse, shared.reach.shells)
    return left


def _debug(basis: Basis, leave: AsyncExitStack) -> DebugLog | None:
    options, settings = basis.options, basis.settings
    if not options.debug or options.link is not None:
        return None
    from shoal.stores.files.debug import DebugLog

    log = DebugLog(settings.home / "debug", basis.history.session, options.clock, settings.secrets)
    leave.callback(log.close)
    return log


async def _control(
    basis: Basis, session: Session, record: Record, leave: AsyncExitStack
) -> ControlServer | None:
    if not basis.options.persist or basis.options.link is not None:
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


def _memory(basis: Basis, record: Record, session: Session) -> SessionMemory | None:
    options = basis.options
    if not basis.settings.own.session_memory or not options.persist or options.link is not None:
        return None
    return SessionMemory(record.directory / "memory.md", session.note)


def _told_first(agent: Agent, history: History) -> Message | None:
    if not isinstance(agent.remember, SessionMemory):
        return history.interrupted
    return agent.remember.resumed(history.interrupted, history.messages)


def _past(basis: Basis) -> Past | None:
    if not basis.options.persist:
        return None
    history = basis.history
    return Past(home=basis.settings.home, session=history.session, transcript=history.transcript)
