"""Store of one home's teams: boards, mailboxes and rosters, opened on first use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core.clock import Clock, iso
from shoal.core.identity import Identity
from shoal.core.ids import Ids
from shoal.core.names import LEAD_NAME, AgentName, TeamName, agent_name, name_from, team_name
from shoal.core.tasks import Task

if TYPE_CHECKING:
    from shoal.core.events import Journaled
    from shoal.core.mail import Mail, Receipt
    from shoal.core.record import Attempts, Mailboxes, Rosters, TaskBoard
    from shoal.core.roster import Member, Newcomer
    from shoal.stores.files.board import FileTaskBoard


class AgentsRecord:
    """Team state for a session and its agents, or for a command.

    Without `stores_keys` the keys of its teams exist only in this process. With `emit`, mail is journaled;
    with `journals_tasks`, set for the lead of a run, so are task changes.
    """

    def __init__(
        self,
        home: Path,
        *,
        clock: Clock,
        ids: Ids,
        report: Callable[[str], None] = lambda _: None,
        keeps_keys: bool = True,
        emit: Callable[[Journaled], None] | None = None,
        tells_tasks: bool = True,
    ) -> None:
        self._home = home
        self._clock = clock
        self._ids = ids
        self._report = report
        self._emit = emit
        self._tells_tasks = tells_tasks
        self._boards: dict[str, TaskBoard] = {}
        self._mailboxes: dict[str, Mailboxes] = {}
        self._rosters: Rosters | None = None
        self.attempts: Attempts = {}
        self.leading: Callable[[Identity, str], Identity | None] = lambda _, __: None
        """Returns the identity with which an agent leads a team of its own."""
        self._keys: dict[TeamName, bytes] = {}
        self._keeps_keys = keeps_keys

    @property
    def home(self) -> Path:
        return self._home

    @property
    def rosters(self) -> Rosters:
        from shoal.stores.files.rosters import FileRosters

        if self._rosters is None:
            self._rosters = FileRosters(self._home, clock=self._clock, report=self._report)
        return self._rosters

    def board(self, name: str) -> TaskBoard:
        """Return the board of a team, or of the session with that id."""
        from shoal.stores.files.board import FileTaskBoard

        name = name_from(name)
        if name not in self._boards:
            board = FileTaskBoard(self._home, name, clock=self._clock, ids=self._ids, report=self._report)
            self._boards[name] = self._told(board, name)
        return self._boards[name]

    def _told(self, board: FileTaskBoard, name: str) -> TaskBoard:
        from shoal.app.teams.told_tasks import ToldBoard

        if self._emit is None or not self._tells_tasks:
            return board
        told = ToldBoard(board, name, self._home / "tasks" / name, self._emit)
        told.follow()
        return told

    def mailboxes(self, team: str) -> Mailboxes:
        from shoal.app.teams.told_mail import ToldMailboxes
        from shoal.stores.files.mailboxes import FileMailboxes

        name = team_name(team)
        if name not in self._mailboxes:
            boxes = FileMailboxes(self._home, name, clock=self._clock, ids=self._ids, report=self._report)
            self._mailboxes[name] = boxes if self._emit is None else ToldMailboxes(boxes, name, self._emit)
        return self._mailboxes[name]

    def key(self, team: TeamName) -> bytes:
        from shoal.core.signing import KEY_SIZE
        from shoal.stores.files.keys import team_key

        if team not in self._keys:
            kept = self._keeps_keys
            self._keys[team] = team_key(self._home, team_name(team)) if kept else os.urandom(KEY_SIZE)
        return self._keys[team]

    def board_of(self, agent: Identity) -> TaskBoard:
        """Return the board of the agent's team, or of its session if it has no team."""
        return self.board(agent.team or agent.session)

    def led_as(self, agent: Identity, team: str) -> Identity | None:
        """Return the agent's identity as lead of that team; None if it does not lead it."""
        return self.leading(agent, team)

    async def join(self, team: TeamName, newcomer: Newcomer, *, foreign: bool = False) -> Member:
        """Add a member: roster entry, inbox, and its prompt as the first message."""
        from shoal.core.envelopes import enveloped
        from shoal.core.mail import Mail

        member = await self.rosters.join(team, newcomer)
        await self.mailboxes(team).open(member.name, foreign=foreign)
        now = iso(self._clock.now())
        prompt = Mail(id=self._ids.uuid(), sender=LEAD_NAME, text=newcomer.prompt, timestamp=now)
        await self.post(team, member.name, enveloped(prompt, "prompt", from_lead=True))
        return member

    async def post(self, team: TeamName, to: AgentName, mail: Mail) -> Receipt:
        """Sign and post mail to a member; the lead's inbox is created with its first message."""
        from shoal.core.signing import Seal

        mailboxes = self.mailboxes(team)
        if to == LEAD_NAME:
            await mailboxes.open(to)
        return await mailboxes.post(to, Seal(team, self.key(team)).sealed(mail, to))

    async def tell_assigned(self, by: Identity, to: AgentName, task: Task) -> None:
        """Notify a member that it owns a task now; does nothing without a team."""
        if by.team is None:
            return
        await self.assign(TeamName(by.team), agent_name(by.name), to, task)

    async def assign(self, team: TeamName, by: AgentName, to: AgentName, task: Task) -> None:
        """Post the assignment. An owner that is not a member has no inbox and is not notified."""
        from shoal.core.bodies import TaskAssignment
        from shoal.core.errors import NoSuchInbox
        from shoal.core.mail import Mail
        from shoal.wire.bodies import body_text

        now = iso(self._clock.now())
        body = TaskAssignment(
            task_id=task.id,
            subject=task.subject,
            description=task.description,
            assigned_by=by,
            timestamp=now,
        )
        mail = Mail(id=self._ids.uuid(), sender=by, text=body_text(body), timestamp=now)
        try:
            await self.post(team, to, mail)
        except NoSuchInbox:
            self._report(f"{to} owns task {task.id} now, but has no inbox in the team {team}.")

    async def forget(self, team: TeamName) -> None:
        """Close what is open of a deleted team."""
        self._keys.pop(team, None)
        mailboxes, board = self._mailboxes.pop(team, None), self._boards.pop(team, None)
        if mailboxes is not None:
            await mailboxes.aclose()
        if board is not None:
            await board.aclose()

    async def aclose(self) -> None:
        for board in self._boards.values():
            await board.aclose()
        for mailboxes in self._mailboxes.values():
            await mailboxes.aclose()
        if self._rosters is not None:
            await self._rosters.aclose()
        self._boards.clear()
        self._mailboxes.clear()
        self._rosters = None
