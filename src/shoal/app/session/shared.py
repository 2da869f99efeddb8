"""Services shared by all agents of a session: store, lead resources, tools and budget."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.agent.agent import Bounds
from shoal.app.agents.acceptance import Acceptance
from shoal.app.agents.crewing import Plans, plans_in
from shoal.app.basis.basis import Basis, Choose, chooser
from shoal.app.basis.purse import bounds_of, carry_over, open_purse
from shoal.app.basis.session_record import Record, open_record
from shoal.app.basis.toolbox import all_tools
from shoal.app.basis.unattended import listed
from shoal.app.hooks.hooking import SessionHooks, hook_runner
from shoal.app.hooks.sources import configured_hooks
from shoal.app.mcp.prompts import ServedPrompts
from shoal.app.mcp.servers import McpServers
from shoal.app.quarters.quarters import Housing
from shoal.app.session.arriving import fed_queue
from shoal.app.session.gathering import gathered
from shoal.app.session.mcp_session import session_servers
from shoal.app.session.reach import Reach, reach_of
from shoal.app.skills.knowledge import Knowledge
from shoal.app.teams.record import AgentsRecord
from shoal.core.budget import Purse
from shoal.core.identity import Identity
from shoal.core.ids import LEAD, LEAD_KIND
from shoal.core.ports import Model
from shoal.core.tools import Tool
from shoal.runs.queue import Queue
from shoal.runs.timetable import ClockedTimetable
from shoal.stores.files.journal import FileJournal
from shoal.tools.plan import plan_tools
from shoal.tools.schedules import schedule_tools

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class Shared(Struct, frozen=True, kw_only=True):
    identity: Identity
    """Identity of the lead."""
    choose: Choose
    model: Model
    """Model of the lead when the session is opened."""
    record: Record
    reach: Reach
    hooks: SessionHooks
    between: AgentsRecord
    plans: Plans
    queue: Queue
    timetable: ClockedTimetable
    tools: dict[str, Tool]
    """Tools from which agents get their own."""
    acceptance: Acceptance
    servers: McpServers
    knowledge: Knowledge
    purse: Purse
    bounds: Bounds
    housing: Housing


async def share(basis: Basis, session: Session, leave: AsyncExitStack) -> Shared:
    """Open the services; `exit_stack` closes them in reverse order. Raises `ShoalError`."""
    options, settings, ids = basis.options, basis.settings, basis.ids
    choose = chooser(basis, leave)
    model = await choose(options.model)
    record = open_record(basis, leave)
    identity = Identity(session=basis.history.session, name=options.name, team=options.team)
    reach = await reach_of(basis, record, session, leave)
    hooks = _hooks(basis, reach, session)
    between = _between_agents(basis, record, session, leave)
    plans = plans_in(settings, ids.branch())
    queue, timetable = await fed_queue(session, reach.shells, hooks, options.clock, ids, leave)
    tools: dict[str, Tool] = {}
    acceptance = Acceptance(tools, plans.agent)
    own = (
        *plan_tools(plans.of),
        *schedule_tools(timetable, attended=options.attended or basis.assistant),
        *options.tools,
    )
    nested = settings.own.team_depth > 1
    tools |= all_tools(reach.shells, between, own, acceptance.of_task, nested_teams=nested)
    servers = await leave.enter_async_context(session_servers(basis, reach, record.directory, session, tools))
    reach.desk.listed = listed(settings, reach.workspace, tools, identity)
    return Shared(
        identity=identity,
        choose=choose,
        model=model,
        record=record,
        reach=reach,
        hooks=hooks,
        between=between,
        plans=plans,
        queue=queue,
        timetable=timetable,
        tools=tools,
        acceptance=acceptance,
        servers=servers,
        knowledge=gathered(
            basis,
            reach,
            tools=tools,
            prompts=[ServedPrompts(servers)],
            window=model.card.window,
            note=session.note,
        ),
        purse=_purse(basis, model, record, session),
        bounds=bounds_of(options, settings.own),
        housing=_housing(basis, record, reach, session, leave),
    )


def _hooks(basis: Basis, reach: Reach, session: Session) -> SessionHooks:
    options, settings, history = basis.options, basis.settings, basis.history
    project = reach.workspace.root
    configured = configured_hooks(settings, options.hooks, basis.plugins.hooks())
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


def _between_agents(basis: Basis, record: Record, session: Session, leave: AsyncExitStack) -> AgentsRecord:
    """Open boards and mail; without persistence they are in the session's temporary directory."""
    options = basis.options
    between = AgentsRecord(
        basis.settings.home if options.persist else record.directory,
        clock=options.clock,
        ids=basis.ids.branch(),
        report=session.note,
        keeps_keys=options.persist,
        emit=session.emit,
        tells_tasks=options.link is None,
    )
    leave.push_async_callback(between.aclose)
    return between


def _purse(basis: Basis, model: Model, record: Record, session: Session) -> Purse:
    """Open the budget of the whole tree, with the agent budget of its lead."""
    if (link := basis.options.link) is not None:
        return link.purse
    purse = open_purse(basis.options, basis.settings.own, session.emit)
    if isinstance(record.journal, FileJournal):
        carry_over(purse, record.journal.path)
    purse.account(LEAD, LEAD_KIND).admit(model.card)
    return purse


def _housing(basis: Basis, record: Record, reach: Reach, session: Session, leave: AsyncExitStack) -> Housing:
    housing = Housing(
        basis.settings,
        record.directory,
        basis.options.clock,
        emit=session.emit,
        note=session.note,
        turn=lambda: session.turn,
    )
    leave.callback(housing.close)
    reach.workspace.guard = housing.leases.guard(LEAD)
    return housing
