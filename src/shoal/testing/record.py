"""Team storage in memory, which fulfils the same contracts as the files."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from msgspec.structs import replace

from shoal.core.clock import Clock
from shoal.core.errors import NoSuchInbox, NoSuchTeam, RecordError, TaskRefused, TeamBusy
from shoal.core.ids import Ids
from shoal.core.mail import Mail, Receipt
from shoal.core.names import (
    LEAD_NAME,
    AgentName,
    TaskId,
    TeamName,
    agent_name,
    free_name,
    team_name,
)
from shoal.core.record import Attempts, Record
from shoal.core.roster import Member, Newcomer, Team
from shoal.core.signing import KEY_SIZE
from shoal.core.tasks import (
    ATTEMPT,
    Change,
    Claim,
    Draft,
    Task,
    by_number,
    changed,
    claim_refusal,
    claimable,
    with_dependencies,
)


class MemoryRecord:
    """Rosters, and a board and mailboxes for each name, like a home directory."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._ids = ids
        self._boards: dict[str, MemoryTaskBoard] = {}
        self._mailboxes: dict[str, MemoryMailboxes] = {}
        self._keys: dict[TeamName, bytes] = {}
        self.rosters = MemoryRosters(clock, forget=self._forget)
        self.attempts: Attempts = {}

    def board(self, name: str) -> MemoryTaskBoard:
        if name not in self._boards:
            self._boards[name] = MemoryTaskBoard(self._ids)
        return self._boards[name]

    def mailboxes(self, team: str) -> MemoryMailboxes:
        if team not in self._mailboxes:
            self._mailboxes[team] = MemoryMailboxes()
        return self._mailboxes[team]

    def key(self, team: TeamName) -> bytes:
        return self._keys.setdefault(team, os.urandom(KEY_SIZE))

    async def forget(self, team: TeamName) -> None:
        self._forget(team)

    def _forget(self, team: TeamName) -> None:
        self._boards.pop(team, None)
        self._mailboxes.pop(team, None)
        self._keys.pop(team, None)


class _Inbox:
    def __init__(self) -> None:
        self.mail: dict[str, Mail] = {}
        """Everything ever posted, oldest first."""
        self.unread: dict[str, None] = {}
        self.posted = asyncio.Event()

    def post(self, mail: Mail) -> None:
        self.mail[mail.id] = replace(mail, read=False)
        self.unread[mail.id] = None
        self.posted.set()
        self.posted = asyncio.Event()

    def mark(self, ids: Collection[str]) -> None:
        for ident in ids:
            if ident in self.unread:
                del self.unread[ident]
                self.mail[ident] = replace(self.mail[ident], read=True)


class MemoryMailboxes:
    def __init__(self) -> None:
        self._inboxes: dict[AgentName, _Inbox] = {}
        self._foreign: set[AgentName] = set()

    async def open(self, owner: AgentName, *, foreign: bool = False) -> None:
        self._inboxes.setdefault(agent_name(owner), _Inbox())
        (self._foreign.add if foreign else self._foreign.discard)(agent_name(owner))

    async def post(self, to: AgentName, mail: Mail) -> Receipt:
        self._inbox(to).post(mail)
        return Receipt(id=mail.id, standing="delivered")

    async def take(self, owner: AgentName, *, limit: int = 64) -> tuple[Mail, ...]:
        inbox = self._inbox(owner)
        return tuple(inbox.mail[ident] for ident in list(inbox.unread)[:limit])

    async def mark(self, owner: AgentName, ids: Collection[str]) -> None:
        self._inbox(owner).mark(ids)

    async def wait(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        inbox = self._inbox(owner)
        while all(ident in beyond for ident in inbox.unread):
            await inbox.posted.wait()

    def stirred(self, owners: Iterable[AgentName]) -> list[AgentName]:
        return list(owners)

    def is_foreign(self, owner: AgentName) -> bool:
        return agent_name(owner) in self._foreign

    async def history(self, owner: AgentName) -> tuple[Mail, ...]:
        return tuple(self._inbox(owner).mail.values())

    async def aclose(self) -> None: ...

    def _inbox(self, owner: AgentName) -> _Inbox:
        """Return the inbox. Members have one from their start; the lead's is created by its first message."""
        name = agent_name(owner)
        if name == LEAD_NAME:
            return self._inboxes.setdefault(name, _Inbox())
        inbox = self._inboxes.get(name)
        if inbox is None:
            there = ", ".join(sorted(self._inboxes)) or "nobody"
            raise NoSuchInbox(f"{owner!r} has no inbox. There are inboxes of: {there}.")
        return inbox


class MemoryTaskBoard:
    """No call awaits between its check and its change, so each call is atomic."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._tasks: dict[TaskId, Task] = {}
        self._highest = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._seen_claimable: set[TaskId] = set()

    async def create(self, draft: Draft) -> Task:
        self._highest += 1
        task = Task(
            id=TaskId(str(self._highest)),
            subject=draft.subject,
            description=draft.description,
            active_form=draft.active_form,
            metadata=draft.metadata,
        )
        self._keep(task)
        return task

    async def get(self, task: TaskId) -> Task | None:
        return self._tasks.get(task)

    async def list(self) -> Sequence[Task]:
        return by_number(self._tasks.values())

    async def unfinished(self) -> Sequence[Task]:
        return by_number(task for task in self._tasks.values() if task.status != "completed")

    async def look(self) -> Mapping[TaskId, Task]:
        return self._tasks

    async def update(self, task: TaskId, change: Change, *, by: AgentName) -> tuple[Task, Task]:
        before = self._known(task)
        if change.status == "deleted":
            self._remove(task)
            return before, before
        after = changed(before, change)
        others = with_dependencies({**self._tasks, task: after}, task, change)
        self._keep(after, *others.values())
        return before, self._tasks[task]

    async def claim(self, task: TaskId, *, by: AgentName) -> Claim:
        found = self._tasks.get(task)
        refusal = claim_refusal(found, self._tasks, by=by)
        if refusal is not None or found is None:
            return Claim(success=False, reason=refusal, task=found)
        held = found.owner == by and found.status == "in_progress"
        attempt = (found.attempt if held else None) or f"here-{self._ids.short()}"
        metadata = {**found.metadata, ATTEMPT: attempt}
        claimed = replace(found, status="in_progress", owner=by, metadata=metadata)
        self._keep(claimed)
        return Claim(success=True, task=claimed, attempt=attempt)

    async def claim_next(self, *, by: AgentName) -> Claim | None:
        first = next(iter(claimable(self._tasks)), None)
        return None if first is None else await self.claim(first.id, by=by)

    async def reclaim(self, owner: AgentName) -> tuple[TaskId, ...]:
        held = [task for task in await self.list() if task.owner == owner and task.status == "in_progress"]
        return tuple([task.id for task in held if (await self.claim(task.id, by=owner)).success])

    async def release(self, task: TaskId, *, attempt: str) -> bool:
        found = self._tasks.get(task)
        if found is None or found.attempt != attempt or found.status == "completed":
            return False
        self._keep(changed(found, Change(status="pending", owner=None)))
        return True

    async def release_all(self, owner: AgentName) -> tuple[TaskId, ...]:
        held = [task for task in await self.list() if task.owner == owner and task.status != "completed"]
        self._keep(*(changed(task, Change(status="pending", owner=None)) for task in held))
        return tuple(task.id for task in held)

    async def delete(self, task: TaskId) -> None:
        self._known(task)
        self._remove(task)

    async def wait_claimable(self) -> None:
        while not claimable(self._tasks):
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            try:
                await woken
            except asyncio.CancelledError:
                if woken.done() and not woken.cancelled():
                    self._wake(1)  # it was woken for a task that it will not claim now
                raise
            finally:
                if woken in self._waiting:
                    self._waiting.remove(woken)

    async def aclose(self) -> None: ...

    def _known(self, task: TaskId) -> Task:
        found = self._tasks.get(task)
        if found is None:
            raise TaskRefused(f"There is no task {task!r}: it was deleted, or never was.")
        return found

    def _keep(self, *tasks: Task) -> None:
        self._tasks.update({task.id: task for task in tasks})
        self._announce()

    def _remove(self, gone: TaskId) -> None:
        del self._tasks[gone]
        for task in list(self._tasks.values()):
            if gone in task.blocks or gone in task.blocked_by:
                blocks = tuple(other for other in task.blocks if other != gone)
                blocked_by = tuple(other for other in task.blocked_by if other != gone)
                self._tasks[task.id] = replace(task, blocks=blocks, blocked_by=blocked_by)
        self._announce()

    def _announce(self) -> None:
        """Wake one waiter for each task that became claimable, once."""
        if not self._waiting:
            # A new waiter found nothing claimable.
            self._seen_claimable.clear()
            return
        now = {task.id for task in claimable(self._tasks)}
        self._wake(len(now - self._seen_claimable))
        self._seen_claimable = now

    def _wake(self, count: int) -> None:
        while count and self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                count -= 1


class MemoryRosters:
    def __init__(self, clock: Clock, *, forget: Callable[[TeamName], None] = lambda _: None) -> None:
        self._clock = clock
        self._forget = forget
        self._teams: dict[TeamName, Team] = {}
        self._spawned: dict[TeamName, int] = {}

    async def create(
        self,
        name: TeamName,
        *,
        lead: Newcomer,
        session: str,
        description: str | None,
        leader: str | None = None,
    ) -> Team:
        free = TeamName(free_name(team_name(name), set(self._teams)))
        now = self._clock.now()
        first = lead.as_lead(free, at=now)
        team = Team(
            name=free,
            description=description,
            created_at=now,
            lead_agent_id=leader or first.agent_id,
            lead_session_id=session,
            members=(first,),
        )
        self._teams[free] = team
        self._spawned[free] = 0
        return team

    async def read(self, team: TeamName) -> Team | None:
        return self._teams.get(team)

    async def list(self) -> Sequence[TeamName]:
        return sorted(self._teams)

    async def join(self, team: TeamName, newcomer: Newcomer) -> Member:
        there = self._known(team)
        member = newcomer.as_teammate(
            there.name_for(newcomer), team, at=self._clock.now(), spawned_before=self._spawned[team]
        )
        self._spawned[team] += 1
        self._teams[team] = replace(there, members=(*there.members, member))
        return member

    async def change(self, team: TeamName, name: AgentName, **fields: object) -> Member:
        if refused := {"agent_id", "joined_at"} & fields.keys():
            raise RecordError(f"A member's {', '.join(sorted(refused))} cannot be changed.")
        there = self._known(team)
        member = there.member(name)
        if member is None:
            names = ", ".join(each.name for each in there.members)
            raise RecordError(f"Nobody in team {team!r} is called {name!r}. There are: {names}.")
        after = replace(member, **fields)
        members = tuple(after if each.name == name else each for each in there.members)
        self._teams[team] = replace(there, members=members)
        return after

    async def show_active(self, team: TeamName, active: Mapping[AgentName, bool]) -> None:
        there = self._known(team)
        members = tuple(
            replace(each, is_active=active.get(each.name, each.is_active)) for each in there.members
        )
        self._teams[team] = replace(there, members=members)

    async def leave(self, team: TeamName, name: AgentName) -> bool:
        there = self._known(team)
        members = tuple(member for member in there.members if member.name != name)
        self._teams[team] = replace(there, members=members)
        return len(members) < len(there.members)

    async def delete(self, team: TeamName) -> None:
        members = self._known(team).members
        active = [member.name for member in members if member.is_active and member.name != LEAD_NAME]
        if active:
            raise TeamBusy(f"Team {team!r} is still at work: {', '.join(active)}. Shut them down first.")
        del self._teams[team], self._spawned[team]
        self._forget(team)

    async def aclose(self) -> None: ...

    def _known(self, team: TeamName) -> Team:
        found = self._teams.get(team)
        if found is None:
            raise NoSuchTeam(f"There is no team {team!r}.")
        return found


_CONFORMS: Callable[[Clock, Ids], Record] = MemoryRecord
"""For the type checker: a missing member of the port is an error here."""
