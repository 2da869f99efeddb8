"""Teams of Python programs: members, tasks and mail, set up by the program instead of a model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from shoal.app.agents.agent import Agent, restore_agent
from shoal.app.agents.argument_checks import check_prompt, check_text
from shoal.app.config.session_config import resolve_environment
from shoal.app.library.library_session import LibrarySession
from shoal.app.library.session_options import SharedOptions, build_session_options
from shoal.app.library.team_definition import (
    read_team_definition,
    refuse_missing_program_options,
    select_stored_options,
    write_team_definition,
)
from shoal.app.library.team_report import (
    MemberEndings,
    TeamReport,
    explain_unfinished_tasks,
    is_startable,
)
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.configured_store import open_home_store
from shoal.app.settings.settings import resolve_shoal_home
from shoal.app.teams.board_changes import add_board_task
from shoal.app.teams.journaled_board import JournaledTaskBoard
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.errors import AgentRequestRefused, InvalidName, SettingsError, TeamNotFound
from shoal.core.events import AgentStarted, Event
from shoal.core.keyword_checks import check_keywords
from shoal.core.names import LEAD_NAME, AgentName, TaskId, TeamName, parse_team_name, parse_teammate_name
from shoal.core.teams.roster import format_agent_id
from shoal.core.teams.tasks import Task, TaskDraft
from shoal.core.teams.team_operations import TeammateStatusSnapshot
from shoal.core.text.encodable_text import find_encoding_problem
from shoal.core.text.name_suggestions import suggest_name
from shoal.runs.agent_registry import LEAD_NAMES
from shoal.runs.event_channel import EventChannel
from shoal.team.session_teams import SessionTeams
from shoal.wire.settings_codec import TeammateMode
from shoal.wire.team_definition_codec import StoredTeamDefinition

if TYPE_CHECKING:
    from typing import Unpack

    from shoal.app.session.turn import Turn
    from shoal.core.teams.roster import TeamRoster

_REMOTE_BACKENDS = ("process", "tmux", "iterm2")
_NOT_OPEN = "The team is not open. Enter it with `async with shoal.Team(...) as team:`."


class Team:
    """A team of long-lived agents with a task board and mailboxes. Enter it with `async with`.

    Members start with the first `start`, `send`, `events` or `finished`, so tasks that are added earlier
    already have their owners and blockers. A team whose block is left before all its tasks are completed
    stays on disk: `Team.resume` continues it, even after a crash.
    """

    _roster: TeamRoster | None = None
    """Roster of an earlier process, if the team is resumed."""

    @check_keywords("shoal.Team()", SharedOptions)
    def __init__(
        self,
        name: str,
        *,
        members: Sequence[Agent[Any]] | Mapping[str, Agent[Any]],
        lead: Agent[Any] | None = None,
        backend: TeammateMode | None = None,
        **options: Unpack[SharedOptions],
    ) -> None:
        """`members` are agents, or agents by the names of members. Without a `lead`, the program leads.

        Raises `SettingsError`, and `TypeError` for an unknown option.
        """
        self.name = name
        """Name of the team."""
        self._members = _check_members(name, members, lead, backend)
        self._lead = lead
        self._backend = backend
        self._given: dict[str, Any] = dict(options)
        self._session: LibrarySession[Any] | None = None
        self._is_started = False
        self._start_lock = asyncio.Lock()
        self._work: asyncio.Task[None] | None = None
        self._work_version = 0
        self._text = ""
        self._last_report: TeamReport | None = None
        self._is_hosted = False
        self._endings = MemberEndings()

    def __repr__(self) -> str:
        return f"<team {self.name}: {', '.join(self._members)}>"

    @classmethod
    @check_keywords("shoal.Team.resume()", SharedOptions)
    def resume(
        cls,
        name: str,
        *,
        members: Sequence[Agent[Any]] | Mapping[str, Agent[Any]] | None = None,
        lead: Agent[Any] | None = None,
        **options: Unpack[SharedOptions],
    ) -> TeamResumption:
        """Return a team that an earlier process left, to await or to enter with `async with`.

        Agents and options are those of the earlier process. Objects of the program, such as a model or
        Python tools, must be passed again. Raises `TeamNotFound`.
        """
        check_text("shoal.Team.resume()", "name", name)
        return TeamResumption(name, members, lead, options)

    @classmethod
    async def find(
        cls,
        name: str,
        members: Sequence[Agent[Any]] | Mapping[str, Agent[Any]] | None,
        lead: Agent[Any] | None,
        options: SharedOptions,
    ) -> Team:
        """Return a stored team without opening it. Raises `TeamNotFound`."""
        roster, stored = await _find_stored_team(name, options)
        if members is None:
            members, lead = _restore_agents(name, stored, lead)
        if stored is not None:
            refuse_missing_program_options(stored, options)
        merged: Any = {**({} if stored is None else stored.options), **options}
        backend: Any = None if stored is None else stored.backend
        return _ResumedTeam(roster, name, members=members, lead=lead, backend=backend, **merged)

    async def __aenter__(self) -> Team:
        if self._is_hosted:
            return self
        if self._session is not None:
            raise RuntimeError("The team was already opened. Create another one, or resume it.")
        session = self._session = self._create_session()
        await session.__aenter__()
        try:
            await self._prepare_team(session)
        except BaseException:
            await session.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._is_hosted:
            await self.close()
            return
        session = self._require_session()
        try:
            await self._end_team(session, failed=error is not None)
        finally:
            await session.__aexit__(kind, error, trace)

    async def close(self) -> None:
        """Close a team that `open` opened, or that was resumed by awaiting it."""
        session = self._require_session()
        if session.is_closed:
            return
        if not self._is_hosted:
            raise RuntimeError("The team was entered with `async with`. Leave the block to close it.")
        session.require_open()
        await self._end_team(session, failed=False)
        await session.close()

    @property
    def session(self) -> LibrarySession[Any]:
        """Session of the lead."""
        return self._require_session()

    @property
    def members(self) -> tuple[TeammateStatusSnapshot, ...]:
        """Members that have started and have not left."""
        return tuple(self._require_session().list_members())

    async def list_tasks(self) -> tuple[Task, ...]:
        """Return all tasks of the board by number."""
        return tuple(await self._require_open().open_board(self.name).list_tasks())

    @check_keywords("team.add_task()")
    async def add_task(
        self,
        subject: str,
        *,
        description: str = "",
        owner: str | None = None,
        blocked_by: Iterable[Task | str] = (),
        accept: str | None = None,
    ) -> Task:
        """Add a task. Without an `owner`, the first free member claims it.

        It waits for the tasks in `blocked_by`. It counts as completed only if the shell command `accept`
        succeeds. Raises `SettingsError` for an unknown owner, `TaskUpdateRefused` for an unknown task.
        """
        session = self._require_open()
        self._check_task(subject, description, owner, accept)
        draft = TaskDraft(
            subject=subject,
            description=description,
            metadata={} if accept is None else {"acceptance": accept},
            owner=None if owner is None else AgentName(owner),
        )
        blockers = [_get_task_id(each) for each in _check_blockers(blocked_by)]
        store = session.runtime.team_store
        task = await add_board_task(store, self.name, draft, blocked_by=blockers, by=LEAD_NAME)
        if self._is_started:
            if task.owner is not None and not task.blocked_by:
                await store.post_assignment(TeamName(self.name), LEAD_NAME, task.owner, task)
            self._add_work(session)
        return task

    def _check_task(self, subject: Any, description: Any, owner: Any, accept: Any) -> None:
        function = "team.add_task()"
        for name, value in (("subject", subject), ("description", description), ("accept", accept)):
            if not isinstance(value, str) and not (name == "accept" and value is None):
                raise TypeError(f"{function}: {name}: expected a string, got {value!r:.80}.")
            if value is not None and (problem := find_encoding_problem(value)):
                raise ValueError(f"{function}: {name} {problem}")
        if not subject.strip():
            raise SettingsError(f"{function}: the subject is empty. Say what to do.")
        if accept is not None and not accept.strip():
            raise SettingsError(f"{function}: accept is empty. Write a shell command, or leave it out.")
        if owner is None:
            return
        if isinstance(owner, Agent):
            raise TypeError(f"{function}: owner: expected the name of a member. Write owner={owner.name!r}.")
        if owner not in self._members:
            suggestion = suggest_name(str(owner), tuple(self._members))
            raise SettingsError(f"{function}: owner: there is no member {owner!r}.{suggestion}")

    async def start(self) -> None:
        """Start the members, if they are not running yet."""
        session = self._require_open()
        # A second caller must not find a team without members: it would have nothing left to do.
        async with self._start_lock:
            if self._is_started:
                return
            session.workflows.agents.refuse_start(f"The team {self.name!r}")
            self._is_started = True
            try:
                await self._start_members(session)
            except BaseException:
                self._is_started = False
                raise
        self._continue_work(session)

    async def _start_members(self, session: LibrarySession[Any]) -> None:
        known = _list_started_members(session, self.name)
        missing = [name for name in self._members if name not in known]
        if missing:
            tasks = await self.list_tasks()
            requests = [self._build_spawn_request(member, tasks) for member in missing]
            with session.translate_errors():
                await self._require_teams(session).add_members(requests)

    @check_keywords("team.send()")
    async def send(self, to: str, text: str) -> None:
        """Send a message to a member, or to the lead as `lead`.

        Raises `AgentRequestRefused`, for example for an unknown member.
        """
        self._require_open()
        check_text("team.send()", "text", text)
        # A lead that is an agent may have added members of its own.
        if self._lead is None and to not in self._members:
            if to in LEAD_NAMES:
                problem = "the program leads this team, so its lead reads no messages."
            else:
                problem = f"there is no member {to!r}.{suggest_name(str(to), tuple(self._members))}"
            raise AgentRequestRefused(f"team.send(): to: {problem}")
        await self.start()
        session = self._require_open()
        if to in self._members and to not in {member.name for member in self.members}:
            ending = self._endings.find_ending(format_agent_id(AgentName(to), TeamName(self.name)))
            raise AgentRequestRefused(
                f"team.send(): to: {to} {ending or 'has left the team'}, so it reads no more messages. Send "
                f"it to another member, or continue the team with shoal.Team.resume({self.name!r})."
            )
        await session.send(to, text)
        self._add_work(session)

    @check_keywords("team.run()")
    def run(self, prompt: str) -> Turn[Any]:
        """Start a turn of the lead."""
        session = self._require_open()
        check_prompt("team.run()", prompt, is_required=True)
        if self._lead is None:
            raise RuntimeError("The program leads this team. Pass lead=Agent(...) to have an agent lead it.")
        return session.run(prompt)

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events of all agents from now on, until the team has nothing left to do."""
        session, channel = self._require_open(), EventChannel()
        unsubscribe = session.subscribe(channel.force_put)
        try:
            await self.start()
            work = self._continue_work(session)
            work.add_done_callback(lambda _: channel.close())
            while (event := await channel.get()) is not None:
                yield event
        finally:
            unsubscribe()

    async def finished(self) -> TeamReport:
        """Wait until the team has nothing left to do, and return its report.

        A lead that is an agent gets a turn whenever a member reports.
        """
        session = self._require_open()
        await self.start()
        work = self._continue_work(session)
        await asyncio.shield(work)
        mailboxes = session.runtime.team_store.open_mailboxes(self.name)
        with suppress(LookupError):
            await mailboxes.open_inbox(LEAD_NAME)
        spending = session.spending
        tasks = await self.list_tasks()
        self._last_report = TeamReport(
            team=self.name,
            tasks=tasks,
            reasons=explain_unfinished_tasks(
                self.name, tasks, self.members, self._endings, session.workflows.agents.start_refusal
            ),
            messages=tuple(
                mail
                for mail in await mailboxes.read_history(LEAD_NAME)
                if not mail.text.lstrip().startswith("{")
            ),
            text=self._text,
            cost_usd=spending.usd,
            usage=spending.usage,
        )
        return self._last_report

    async def delete(self) -> None:
        """End all members and delete the team from disk; transcripts and the journal stay."""
        session = self._require_open()
        await self._require_teams(session).disband_team()

    async def open(self) -> Team:
        """Open the team if you cannot use `async with`; `close` ends it."""
        if self._session is not None:
            raise RuntimeError("The team was already opened. Create another one, or resume it.")
        session = self._session = self._create_session()
        await session.open()
        try:
            await self._prepare_team(session)
        except BaseException:
            await session.close()
            raise
        self._is_hosted = True
        return self

    def _create_session(self) -> LibrarySession[Any]:
        agents = list({agent.name: agent for agent in self._members.values()}.values())
        given: dict[str, Any] = {**self._given, "agents": agents, "name": LEAD_NAME}
        if self._lead is not None:
            given["agent"] = self._lead
        if self._backend is not None:
            given["teammate_mode"] = self._backend
        if self._roster is not None:
            given["resume"] = self._roster.lead_session_id
            given.setdefault("cwd", self._roster.members[0].cwd)
        origin = f"shoal.Team({self.name!r})"
        built, agents_of_session = build_session_options(origin, given, None)
        return LibrarySession(built, agents_of_session, opened_by=origin)

    async def _prepare_team(self, session: LibrarySession[Any]) -> None:
        session.subscribe(self._endings.on_event)
        if self._roster is not None:
            if session.led_team_name != self.name:
                raise TeamNotFound(f"The team {self.name} could not be resumed.")
            return
        if self.name in await session.runtime.team_store.rosters.list_teams():
            raise SettingsError(
                f"shoal.Team({self.name!r}): a team with this name exists. Continue it with "
                f"shoal.Team.resume({self.name!r}), delete it with `shoal team rm {self.name}`, or choose "
                "another name."
            )
        # The definition first: a team without one could not be resumed.
        session.workflows.agents.make_resumable()
        options, required = select_stored_options(self._given)
        write_team_definition(
            session.store,
            session.config.history.store,
            StoredTeamDefinition(
                team=self.name,
                agents={agent.name: dict(agent.fields) for agent in self._list_agents()},
                members={name: agent.name for name, agent in self._members.items()},
                lead=None if self._lead is None else self._lead.name,
                backend=self._backend,
                options=options,
                required=required,
                python_tools=tuple(agent.name for agent in self._list_agents() if agent.extras.tools),
            ),
        )
        await self._require_teams(session).create_led_team(self.name, description=None)

    def _list_agents(self) -> list[Agent[Any]]:
        return [*self._members.values(), *(() if self._lead is None else (self._lead,))]

    def _build_spawn_request(self, member: str, tasks: Sequence[Task]) -> SpawnRequest:
        agent = self._members[member]
        owned = [task for task in tasks if task.owner == member and task.status != "completed"]
        own = [f"- #{task.id} {task.subject}" for task in owned]
        listing = (
            format_session_notice("member_tasks", tasks="\n".join(own))
            if own
            else format_session_notice("member_no_tasks")
        )
        return SpawnRequest(
            name=member,
            kind=agent.name,
            description=agent.description,
            prompt=f"{format_session_notice('member_start')}\n\n{listing}",
            # No request for a member that has nothing to do yet: a message or a task wakes it.
            waits_for_work=not any(is_startable(task, tasks) for task in owned),
        )

    def _add_work(self, session: LibrarySession[Any]) -> None:
        """Continue the work, even if the task that waits for its end is about to return."""
        self._work_version += 1
        self._continue_work(session)

    def _continue_work(self, session: LibrarySession[Any]) -> asyncio.Task[None]:
        """Return the task that runs until the team has nothing left to do; a new one if it has ended."""
        if self._work is None or self._work.done():
            self._work = session.create_background_task(self._run_until_idle(session))
        return self._work

    async def _run_until_idle(self, session: LibrarySession[Any]) -> None:
        version = -1
        while version != self._work_version:
            version = self._work_version
            await self._run_lead_until_idle(session)
            if isinstance(board := session.open_board(self.name), JournaledTaskBoard):
                # Members in other processes changed tasks that the lead's board has not noticed yet.
                await board.emit_changes_now()

    async def _run_lead_until_idle(self, session: LibrarySession[Any]) -> None:
        if self._lead is None:
            await session.wait_agents_idle()
            return
        while (turn := await session.next_turn()) is not None:
            result = await turn.wait()
            self._text = result.text or self._text
            if not result.ok:
                await session.wait_agents_idle()
                return

    async def _end_team(self, session: LibrarySession[Any], *, failed: bool) -> None:
        """Delete a team whose work is done; any other team can be resumed."""
        report = self._last_report
        if self._work is not None:
            self._work.cancel()
        if failed or report is None or not report.ok or session.led_team_name != self.name:
            return
        # Tasks may have been added after the report.
        if all(task.status == "completed" for task in await self.list_tasks()):
            await self._require_teams(session).disband_team()

    def _require_session(self) -> LibrarySession[Any]:
        if self._session is None:
            raise RuntimeError(_NOT_OPEN)
        return self._session

    def _require_open(self) -> LibrarySession[Any]:
        """Return the session. Raises `RuntimeError` unless it is open and belongs to this event loop."""
        session = self._require_session()
        if session.is_closed:
            raise RuntimeError(
                "The team is closed. Create another one, or continue it with "
                f"shoal.Team.resume({self.name!r})."
            )
        session.require_open()
        return session

    def _require_teams(self, session: LibrarySession[Any]) -> SessionTeams:
        teams = session.led_teams
        assert teams is not None
        return teams


def _check_blockers(blocked_by: Any) -> Iterable[Any]:
    if isinstance(blocked_by, str | Task) or not isinstance(blocked_by, Iterable):
        raise TypeError(
            f"team.add_task(): blocked_by: expected a list of tasks, got {blocked_by!r:.80}. "
            "Write blocked_by=[task]."
        )
    return blocked_by


def _get_task_id(task: Any) -> TaskId:
    if not isinstance(task, str | Task):
        raise TypeError(f"team.add_task(): blocked_by: expected tasks or their ids, got {task!r:.80}.")
    return TaskId(task if isinstance(task, str) else task.id)


def _check_members(
    team: str,
    members: Sequence[Agent[Any]] | Mapping[str, Agent[Any]],
    lead: Agent[Any] | None,
    backend: Any,
) -> dict[str, Agent[Any]]:
    """Return the members by name. Raises `SettingsError`."""
    origin = f"shoal.Team({team!r})"
    given_name: Any = team
    if not isinstance(given_name, str):
        raise SettingsError(f"{origin}: expected a string as the name of the team, got {given_name!r:.80}.")
    try:
        parse_team_name(team)
    except InvalidName as error:
        raise SettingsError(f"{origin}: {error}") from None
    by_name = _name_members(origin, members)
    if backend is not None and backend not in get_args(TeammateMode):
        suggestion = suggest_name(str(backend), get_args(TeammateMode))
        raise SettingsError(f"{origin}: backend: unknown value {backend!r}.{suggestion}")
    if lead is not None and not isinstance(lead, Agent):
        raise SettingsError(f"{origin}: lead: expected an Agent, got {lead!r}.")
    for name, agent in by_name.items():
        if name in LEAD_NAMES:
            raise SettingsError(f"{origin}: members: {name!r} is reserved for the lead. Choose another name.")
        try:
            parse_teammate_name(name)
        except InvalidName as error:
            raise SettingsError(f"{origin}: members: {error}") from None
        if agent.output is not None:
            raise SettingsError(
                f"{origin}: members: {name} sets output=, but members report through tasks and mail. "
                "Remove output=."
            )
        if backend in _REMOTE_BACKENDS and agent.extras.tools:
            raise SettingsError(
                f"{origin}: members: {name} has Python tools, which only exist in this process. Use "
                "backend='in-process'."
            )
    return by_name


def _name_members(origin: str, members: Any) -> dict[str, Agent[Any]]:
    if isinstance(members, Mapping):
        pairs = list(members.items())
    elif isinstance(members, Sequence) and not isinstance(members, str):
        pairs = [(getattr(each, "name", ""), each) for each in members]
    else:
        raise SettingsError(f"{origin}: members: expected a list of agents, got {members!r}.")
    by_name: dict[str, Agent[Any]] = {}
    for name, agent in pairs:
        if not isinstance(agent, Agent):
            raise SettingsError(f"{origin}: members: expected agents, got {agent!r}.")
        if name in by_name:
            raise SettingsError(
                f"{origin}: members: two members have the name {name!r}. Pass a mapping of names to agents."
            )
        by_name[name] = agent
    if not by_name:
        raise SettingsError(f"{origin}: members: a team needs at least one member.")
    return by_name


async def _find_stored_team(
    name: str, options: SharedOptions
) -> tuple[TeamRoster, StoredTeamDefinition | None]:
    """Return the roster and the stored definition of a team. Raises `TeamNotFound`."""
    # Rules may name tools of members, who are not known yet; they are checked with the team's session.
    given = {option: value for option, value in options.items() if option != "allowed_tools"}
    built, _ = build_session_options(f"shoal.Team.resume({name!r})", given, None)
    cwd = Path.cwd() if built.cwd is None else built.cwd
    environ = resolve_environment(built, cwd)
    home = resolve_shoal_home(os.environ if environ is None else environ, cwd)
    store = open_home_store(home, built.store, cwd=cwd, environ=environ)
    try:
        team = parse_team_name(name)
    except InvalidName as error:
        raise TeamNotFound(str(error)) from None
    rosters = store.open_rosters(clock=built.clock, report=lambda _: None)
    try:
        roster = await rosters.read_team_roster(team)
        others = await rosters.list_teams()
    finally:
        await rosters.aclose()
    if roster is None:
        listing = suggest_name(name, others) if others else " There are no teams."
        raise TeamNotFound(f"There is no team {name!r} in {home}.{listing}")
    return roster, read_team_definition(store, store.find_session(roster.lead_session_id))


def _restore_agents(
    name: str, stored: StoredTeamDefinition | None, lead: Agent[Any] | None
) -> tuple[dict[str, Agent[Any]], Agent[Any] | None]:
    """Return the members and the lead as they were stored. Raises `SettingsError`."""
    origin = f"shoal.Team.resume({name!r})"
    if stored is None:
        raise SettingsError(f"{origin}: its agents are not stored. Pass members= again.")
    if stored.python_tools:
        names = ", ".join(stored.python_tools)
        raise SettingsError(f"{origin}: {names} had Python tools, which cannot be stored. Pass members=.")
    agents = {each: restore_agent(each, fields) for each, fields in stored.agents.items()}
    if lead is None and stored.lead is not None:
        lead = agents[stored.lead]
    return {member: agents[agent] for member, agent in stored.members.items()}, lead


def _list_started_members(session: LibrarySession[Any], team: str) -> set[str]:
    """Return the names of all members that ever started: a member that left must not come back."""
    return {
        record.event.name
        for record in session.journal.read_records()
        if isinstance(record.event, AgentStarted) and record.event.team == team
    }


class _ResumedTeam(Team):
    def __init__(self, roster: TeamRoster, name: str, **given: Any) -> None:
        super().__init__(name, **given)
        self._roster = roster


class TeamResumption:
    """A team to resume: await it, or enter it with `async with`."""

    def __init__(
        self,
        name: str,
        members: Sequence[Agent[Any]] | Mapping[str, Agent[Any]] | None,
        lead: Agent[Any] | None,
        options: SharedOptions,
    ) -> None:
        self._name = name
        self._members = members
        self._lead = lead
        self._options = options
        self._team: Team | None = None

    def __await__(self) -> Generator[Any, None, Team]:
        return self._open_team().__await__()

    async def __aenter__(self) -> Team:
        self._team = await Team.find(self._name, self._members, self._lead, self._options)
        return await self._team.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        assert self._team is not None
        await self._team.__aexit__(kind, error, trace)

    async def _open_team(self) -> Team:
        return await (await Team.find(self._name, self._members, self._lead, self._options)).open()
