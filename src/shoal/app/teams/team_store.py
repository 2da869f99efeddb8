"""Teams of a store: boards, mailboxes and rosters, opened on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.app.settings.configured_store import open_given_store
from shoal.core.agents.identity import AgentIdentity
from shoal.core.clock import Clock, format_iso_time
from shoal.core.ids import IdGenerator
from shoal.core.names import (
    LEAD_NAME,
    AgentName,
    TeamName,
    map_to_inbox_name,
    parse_agent_name,
    parse_safe_name,
    parse_team_name,
)
from shoal.core.teams.tasks import Task
from shoal.stores.store_choice import get_shared_address, to_shared_store

if TYPE_CHECKING:
    from shoal.core.events import JournaledEvent, TaskChanged
    from shoal.core.store import Store
    from shoal.core.teams.mail import MailMessage, MailPostReceipt
    from shoal.core.teams.packed_task_map import PackedTaskMap
    from shoal.core.teams.roster import NewMember, RosterEntry
    from shoal.core.teams.team_storage import (
        ClaimAttempts,
        MailboxStore,
        RosterStore,
        StoredTaskBoard,
        TaskBoard,
    )


class TeamStore:
    """Team state for a session and its agents, or for a command.

    `store` is a store or a home directory. With `emit_all`, mail is journaled; with `journals_tasks`, set for
    the lead of a run, so are task changes.
    """

    def __init__(
        self,
        store: Store | Path,
        *,
        clock: Clock,
        ids: IdGenerator,
        report: Callable[[str], None] = lambda _: None,
        emit_all: Callable[[Sequence[JournaledEvent]], None] | None = None,
        journals_tasks: bool = False,
        shared_list: str | None = None,
    ) -> None:
        self._store = open_given_store(store)
        self._clock = clock
        self._ids = ids
        self.report_problem = report
        self._emit_all = emit_all
        self._journals_tasks = journals_tasks
        self._shared_list = shared_list
        """Name of the board for agents without a team, if sessions share one."""
        self._journaled_tasks: dict[str, PackedTaskMap[TaskChanged]] = {}
        """Tasks of boards that are not open yet, as they are in the journal of the run."""
        self._boards: dict[str, TaskBoard] = {}
        self._mailboxes: dict[str, MailboxStore] = {}
        self._rosters: RosterStore | None = None
        self.attempts: ClaimAttempts = {}
        self._keys: dict[TeamName, bytes] = {}

    def list_opened_teams(self) -> tuple[str, ...]:
        """Return the names of the boards and teams that were opened."""
        return tuple({*self._boards, *self._mailboxes})

    def restore_journaled_tasks(self, tasks: dict[str, PackedTaskMap[TaskChanged]]) -> None:
        """Journal only changes since these events, by board."""
        self._journaled_tasks = dict(tasks)

    @property
    def rosters(self) -> RosterStore:
        """Rosters of all teams."""
        if self._rosters is None:
            self._rosters = self._store.open_rosters(clock=self._clock, report=self.report_problem)
        return self._rosters

    def open_board(self, name: str) -> TaskBoard:
        """Return the board of a team, or of the session with that id."""

        name = parse_safe_name(name)
        if name not in self._boards:
            board = self._store.open_board(name, clock=self._clock, ids=self._ids, report=self.report_problem)
            self._boards[name] = self._wrap_board_with_journaling(board, name)
        return self._boards[name]

    def _wrap_board_with_journaling(self, board: StoredTaskBoard, name: str) -> TaskBoard:
        from shoal.app.teams.journaled_board import JournaledTaskBoard

        if self._emit_all is None or not self._journals_tasks:
            return board
        journaled = JournaledTaskBoard(board, name, self._emit_all, self._journaled_tasks.pop(name, None))
        journaled.start_watching()
        return journaled

    def open_mailboxes(self, team: str) -> MailboxStore:
        """Return the mailboxes of a team."""
        from shoal.app.teams.journaled_mailboxes import JournaledMailboxes

        name = parse_team_name(team)
        if name not in self._mailboxes:
            mailboxes = self._store.open_mailboxes(
                name, clock=self._clock, ids=self._ids, report=self.report_problem
            )
            self._mailboxes[name] = (
                mailboxes if self._emit_all is None else JournaledMailboxes(mailboxes, name, self._emit_all)
            )
        return self._mailboxes[name]

    def read_signing_key(self, team: TeamName) -> bytes:
        if team not in self._keys:
            self._keys[team] = self._store.load_signing_key(parse_team_name(team), report=self.report_problem)
        return self._keys[team]

    def open_agent_board(self, agent: AgentIdentity) -> TaskBoard:
        """Return the board of the agent's team; without a team the shared one, or that of its session."""
        return self.open_board(agent.team or self._shared_list or agent.session)

    async def add_member(
        self, team: TeamName, new_member: NewMember, *, foreign: bool = False
    ) -> RosterEntry:
        """Add a member: roster entry, inbox, and its prompt as the first message."""
        from shoal.core.teams.mail import MailMessage
        from shoal.core.teams.mail_envelopes import fit_mail_to_kind

        member = await self.rosters.add_member(team, new_member)
        await self.open_mailboxes(team).open_inbox(member.name, foreign=foreign)
        now = format_iso_time(self._clock.now())
        prompt = MailMessage(id=self._ids.new_uuid(), sender=LEAD_NAME, text=new_member.prompt, timestamp=now)
        await self.post_mail(team, member.name, fit_mail_to_kind(prompt, "prompt", from_lead=True))
        return member

    async def post_mail(self, team: TeamName, to: AgentName, mail: MailMessage) -> MailPostReceipt:
        """Sign and post mail to a member; the lead's inbox is created with its first message."""
        from shoal.core.teams.mail_signatures import MailSigner

        mailboxes, to = self.open_mailboxes(team), map_to_inbox_name(to)
        if to == LEAD_NAME:
            await mailboxes.open_inbox(to)
        elif to in map(map_to_inbox_name, await self.rosters.list_members_of_other_programs(team)):
            # The other program may not have created it, and a former member of Shoal may have had the name.
            await mailboxes.open_inbox(to, foreign=True)
        signed = MailSigner(team, self.read_signing_key(team)).sign_mail(mail, to)
        return await mailboxes.post(to, signed)

    async def notify_assigned(self, by: AgentIdentity, to: AgentName, task: Task) -> None:
        """Notify a member that it owns a task now; does nothing without a team."""
        if by.team is None:
            return
        await self.post_assignment(TeamName(by.team), parse_agent_name(by.name), to, task)

    async def post_assignment(self, team: TeamName, by: AgentName, to: AgentName, task: Task) -> None:
        """Post the assignment. An owner that is not a member has no inbox and is not notified."""
        from shoal.core.errors import InboxNotFound
        from shoal.core.teams.mail import MailMessage
        from shoal.core.teams.mail_bodies import TaskAssignmentMail
        from shoal.wire.mail_body_codec import encode_mail_body

        now = format_iso_time(self._clock.now())
        body = TaskAssignmentMail(
            task_id=task.id,
            subject=task.subject,
            description=task.description,
            assigned_by=by,
            timestamp=now,
        )
        mail = MailMessage(id=self._ids.new_uuid(), sender=by, text=encode_mail_body(body), timestamp=now)
        try:
            await self.post_mail(team, to, mail)
        except InboxNotFound:
            self.report_problem(
                f"{to} now owns task {task.id}, but was not notified: {to} has no inbox in the team {team}."
            )

    async def wait_until_available(self) -> None:
        if get_shared_address(self._store) is not None:
            await to_shared_store(self._store).wait_until_available()

    async def close_team_stores(self, team: TeamName) -> None:
        """Close everything that is open for a deleted team."""
        self._keys.pop(team, None)
        mailboxes, board = self._mailboxes.pop(team, None), self._boards.pop(team, None)
        if mailboxes is not None:
            await mailboxes.aclose()
        if board is not None:
            await board.aclose()

    async def aclose(self) -> None:
        """Close all boards, mailboxes and rosters."""
        for board in self._boards.values():
            await board.aclose()
        for mailboxes in self._mailboxes.values():
            await mailboxes.aclose()
        if self._rosters is not None:
            await self._rosters.aclose()
        self._boards.clear()
        self._mailboxes.clear()
        self._rosters = None
