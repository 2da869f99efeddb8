"""Team storage in memory, which fulfils the same contracts as the files."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from msgspec.structs import replace

from shoal.core.clock import Clock
from shoal.core.errors import (
    InboxNotFound,
    TaskUpdateRefused,
    TeamHasActiveMembers,
    TeamNotFound,
    TeamStoreError,
)
from shoal.core.ids import IdGenerator
from shoal.core.names import (
    LEAD_NAME,
    AgentName,
    TaskId,
    TeamName,
    find_free_name,
    parse_agent_name,
    parse_team_name,
)
from shoal.core.teams.mail import MailMessage, MailPostReceipt
from shoal.core.teams.mail_signatures import KEY_SIZE
from shoal.core.teams.roster import NewMember, RosterEntry, TeamRoster
from shoal.core.teams.tasks import (
    ATTEMPT_KEY,
    Task,
    TaskClaimResult,
    TaskDraft,
    TaskUpdate,
    apply_added_task_dependencies,
    apply_task_update,
    find_claim_refusal_reason,
    find_claimable_tasks,
    sort_tasks_by_number,
)
from shoal.core.teams.team_storage import ClaimAttempts, TeamStorage


class MemoryTeamStorage:
    """Rosters, and a board and mailboxes for each name, like a home directory."""

    def __init__(self, clock: Clock, ids: IdGenerator) -> None:
        self._ids = ids
        self._boards: dict[str, MemoryTaskBoard] = {}
        self._mailboxes: dict[str, MemoryMailboxes] = {}
        self._keys: dict[TeamName, bytes] = {}
        self.rosters = MemoryRosters(clock, on_deleted=self._drop_team)
        self.attempts: ClaimAttempts = {}

    def open_board(self, name: str) -> MemoryTaskBoard:
        if name not in self._boards:
            self._boards[name] = MemoryTaskBoard(self._ids)
        return self._boards[name]

    def open_mailboxes(self, team: str) -> MemoryMailboxes:
        if team not in self._mailboxes:
            self._mailboxes[team] = MemoryMailboxes()
        return self._mailboxes[team]

    def read_signing_key(self, team: TeamName) -> bytes:
        return self._keys.setdefault(team, os.urandom(KEY_SIZE))

    async def close_team_stores(self, team: TeamName) -> None:
        self._drop_team(team)

    def _drop_team(self, team: TeamName) -> None:
        self._boards.pop(team, None)
        self._mailboxes.pop(team, None)
        self._keys.pop(team, None)


class _MemoryInbox:
    def __init__(self) -> None:
        self.mail: dict[str, MailMessage] = {}
        """Everything ever posted, oldest first."""
        self.unread: dict[str, None] = {}
        self.posted = asyncio.Event()

    def post(self, mail: MailMessage) -> None:
        self.mail[mail.id] = replace(mail, read=False)
        self.unread[mail.id] = None
        self.posted.set()
        self.posted = asyncio.Event()

    def mark_read(self, ids: Collection[str]) -> None:
        for mail_id in ids:
            if mail_id in self.unread:
                del self.unread[mail_id]
                self.mail[mail_id] = replace(self.mail[mail_id], read=True)


class MemoryMailboxes:
    def __init__(self) -> None:
        self._inboxes: dict[AgentName, _MemoryInbox] = {}
        self._foreign: set[AgentName] = set()

    async def open_inbox(self, owner: AgentName, *, foreign: bool = False) -> None:
        self._inboxes.setdefault(parse_agent_name(owner), _MemoryInbox())
        (self._foreign.add if foreign else self._foreign.discard)(parse_agent_name(owner))

    async def post(self, to: AgentName, mail: MailMessage) -> MailPostReceipt:
        self._get_inbox(to).post(mail)
        return MailPostReceipt(id=mail.id, standing="delivered")

    async def take_unread(self, owner: AgentName, *, limit: int = 64) -> tuple[MailMessage, ...]:
        inbox = self._get_inbox(owner)
        return tuple(inbox.mail[ident] for ident in list(inbox.unread)[:limit])

    async def mark_read(self, owner: AgentName, ids: Collection[str]) -> None:
        self._get_inbox(owner).mark_read(ids)

    async def wait_for_mail(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        inbox = self._get_inbox(owner)
        while all(ident in beyond for ident in inbox.unread):
            await inbox.posted.wait()

    def find_changed_inboxes(self, owners: Iterable[AgentName]) -> list[AgentName]:
        return list(owners)

    def is_foreign_inbox(self, owner: AgentName) -> bool:
        return parse_agent_name(owner) in self._foreign

    async def read_history(self, owner: AgentName) -> tuple[MailMessage, ...]:
        return tuple(self._get_inbox(owner).mail.values())

    async def aclose(self) -> None: ...

    def _get_inbox(self, owner: AgentName) -> _MemoryInbox:
        """Return the inbox. Members have one from their start; the lead's is created by its first message."""
        name = parse_agent_name(owner)
        if name == LEAD_NAME:
            return self._inboxes.setdefault(name, _MemoryInbox())
        inbox = self._inboxes.get(name)
        if inbox is None:
            known_owners = ", ".join(sorted(self._inboxes)) or "nobody"
            raise InboxNotFound(f"{owner!r} has no inbox. There are inboxes of: {known_owners}.")
        return inbox


class MemoryTaskBoard:
    """No call awaits between its check and its change, so each call is atomic."""

    def __init__(self, ids: IdGenerator) -> None:
        self._ids = ids
        self._tasks: dict[TaskId, Task] = {}
        self._highest = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._seen_claimable: set[TaskId] = set()

    async def create(self, draft: TaskDraft) -> Task:
        self._highest += 1
        task = Task(
            id=TaskId(str(self._highest)),
            subject=draft.subject,
            description=draft.description,
            active_form=draft.active_form,
            metadata=draft.metadata,
        )
        self._store_tasks(task)
        return task

    async def get(self, task: TaskId) -> Task | None:
        return self._tasks.get(task)

    async def list_tasks(self) -> Sequence[Task]:
        return sort_tasks_by_number(self._tasks.values())

    async def list_unfinished(self) -> Sequence[Task]:
        return sort_tasks_by_number(task for task in self._tasks.values() if task.status != "completed")

    async def get_live_task_mapping(self) -> Mapping[TaskId, Task]:
        return self._tasks

    async def update(self, task: TaskId, change: TaskUpdate, *, by: AgentName) -> tuple[Task, Task]:
        before = self._require_task(task)
        if change.status == "deleted":
            self._remove_task(task)
            return before, before
        after = apply_task_update(before, change)
        others = apply_added_task_dependencies({**self._tasks, task: after}, task, change)
        self._store_tasks(after, *others.values())
        return before, self._tasks[task]

    async def claim(self, task: TaskId, *, by: AgentName) -> TaskClaimResult:
        current_task = self._tasks.get(task)
        refusal = find_claim_refusal_reason(current_task, self._tasks, by=by)
        if refusal is not None or current_task is None:
            return TaskClaimResult(success=False, reason=refusal, task=current_task)
        was_held = current_task.owner == by and current_task.status == "in_progress"
        attempt = (current_task.claim_attempt if was_held else None) or f"here-{self._ids.new_short_id()}"
        metadata = {**current_task.metadata, ATTEMPT_KEY: attempt}
        claimed_task = replace(current_task, status="in_progress", owner=by, metadata=metadata)
        self._store_tasks(claimed_task)
        return TaskClaimResult(success=True, task=claimed_task, attempt=attempt)

    async def claim_next(self, *, by: AgentName) -> TaskClaimResult | None:
        first = next(iter(find_claimable_tasks(self._tasks)), None)
        return None if first is None else await self.claim(first.id, by=by)

    async def reclaim_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        held_tasks = [
            task for task in await self.list_tasks() if task.owner == owner and task.status == "in_progress"
        ]
        return tuple([task.id for task in held_tasks if (await self.claim(task.id, by=owner)).success])

    async def release(self, task: TaskId, *, attempt: str) -> bool:
        current_task = self._tasks.get(task)
        if (
            current_task is None
            or current_task.claim_attempt != attempt
            or current_task.status == "completed"
        ):
            return False
        self._store_tasks(apply_task_update(current_task, TaskUpdate(status="pending", owner=None)))
        return True

    async def release_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        held_tasks = [
            task for task in await self.list_tasks() if task.owner == owner and task.status != "completed"
        ]
        self._store_tasks(
            *(apply_task_update(task, TaskUpdate(status="pending", owner=None)) for task in held_tasks)
        )
        return tuple(task.id for task in held_tasks)

    async def delete(self, task: TaskId) -> None:
        self._require_task(task)
        self._remove_task(task)

    async def wait_for_claimable(self) -> None:
        while not find_claimable_tasks(self._tasks):
            wake_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(wake_future)
            try:
                await wake_future
            except asyncio.CancelledError:
                if wake_future.done() and not wake_future.cancelled():
                    self._wake_waiters(1)  # it was woken for a task that it will not claim now
                raise
            finally:
                if wake_future in self._waiters:
                    self._waiters.remove(wake_future)

    async def aclose(self) -> None: ...

    def _require_task(self, task: TaskId) -> Task:
        current_task = self._tasks.get(task)
        if current_task is None:
            raise TaskUpdateRefused(f"There is no task {task!r}: it was deleted, or never was.")
        return current_task

    def _store_tasks(self, *tasks: Task) -> None:
        self._tasks.update({task.id: task for task in tasks})
        self._wake_waiters_for_claimable()

    def _remove_task(self, removed_id: TaskId) -> None:
        del self._tasks[removed_id]
        for task in list(self._tasks.values()):
            if removed_id in task.blocks or removed_id in task.blocked_by:
                blocks = tuple(other for other in task.blocks if other != removed_id)
                blocked_by = tuple(other for other in task.blocked_by if other != removed_id)
                self._tasks[task.id] = replace(task, blocks=blocks, blocked_by=blocked_by)
        self._wake_waiters_for_claimable()

    def _wake_waiters_for_claimable(self) -> None:
        """Wake one waiter for each task that became claimable, once."""
        if not self._waiters:
            # A new waiter found nothing claimable.
            self._seen_claimable.clear()
            return
        now = {task.id for task in find_claimable_tasks(self._tasks)}
        self._wake_waiters(len(now - self._seen_claimable))
        self._seen_claimable = now

    def _wake_waiters(self, count: int) -> None:
        while count and self._waiters:
            wake_future = self._waiters.popleft()
            if not wake_future.done():
                wake_future.set_result(None)
                count -= 1


class MemoryRosters:
    def __init__(self, clock: Clock, *, on_deleted: Callable[[TeamName], None] = lambda _: None) -> None:
        self._clock = clock
        self._on_deleted = on_deleted
        self._teams: dict[TeamName, TeamRoster] = {}
        self._spawned: dict[TeamName, int] = {}

    async def create_team(
        self,
        name: TeamName,
        *,
        lead: NewMember,
        session: str,
        description: str | None,
        leader: str | None = None,
    ) -> TeamRoster:
        free_name = TeamName(find_free_name(parse_team_name(name), set(self._teams)))
        now = self._clock.now()
        first = lead.to_lead_entry(free_name, at=now)
        team = TeamRoster(
            name=free_name,
            description=description,
            created_at=now,
            lead_agent_id=leader or first.agent_id,
            lead_session_id=session,
            members=(first,),
        )
        self._teams[free_name] = team
        self._spawned[free_name] = 0
        return team

    async def read_team_roster(self, team: TeamName) -> TeamRoster | None:
        return self._teams.get(team)

    async def list_teams(self) -> Sequence[TeamName]:
        return sorted(self._teams)

    async def add_member(self, team: TeamName, new_member: NewMember) -> RosterEntry:
        roster = self._require_team(team)
        member = new_member.to_teammate_entry(
            roster.choose_member_name(new_member),
            team,
            at=self._clock.now(),
            spawned_before=self._spawned[team],
        )
        self._spawned[team] += 1
        self._teams[team] = replace(roster, members=(*roster.members, member))
        return member

    async def update_member(self, team: TeamName, name: AgentName, **fields: object) -> RosterEntry:
        if refused_fields := {"agent_id", "joined_at"} & fields.keys():
            raise TeamStoreError(f"A member's {', '.join(sorted(refused_fields))} cannot be changed.")
        roster = self._require_team(team)
        member = roster.find_member(name)
        if member is None:
            names = ", ".join(each.name for each in roster.members)
            raise TeamStoreError(f"Nobody in team {team!r} is called {name!r}. There are: {names}.")
        updated_member = replace(member, **fields)
        members = tuple(updated_member if each.name == name else each for each in roster.members)
        self._teams[team] = replace(roster, members=members)
        return updated_member

    async def set_active_members(self, team: TeamName, active: Mapping[AgentName, bool]) -> None:
        roster = self._require_team(team)
        members = tuple(
            replace(each, is_active=active.get(each.name, each.is_active)) for each in roster.members
        )
        self._teams[team] = replace(roster, members=members)

    async def remove_member(self, team: TeamName, name: AgentName) -> bool:
        roster = self._require_team(team)
        members = tuple(member for member in roster.members if member.name != name)
        self._teams[team] = replace(roster, members=members)
        return len(members) < len(roster.members)

    async def delete_team(self, team: TeamName) -> None:
        members = self._require_team(team).members
        active_names = [member.name for member in members if member.is_active and member.name != LEAD_NAME]
        if active_names:
            raise TeamHasActiveMembers(
                f"Team {team!r} still has working members: {', '.join(active_names)}. Shut them down first."
            )
        del self._teams[team], self._spawned[team]
        self._on_deleted(team)

    async def aclose(self) -> None: ...

    def _require_team(self, team: TeamName) -> TeamRoster:
        roster = self._teams.get(team)
        if roster is None:
            raise TeamNotFound(f"There is no team {team!r}.")
        return roster


_CONFORMS: Callable[[Clock, IdGenerator], TeamStorage] = MemoryTeamStorage
"""For the type checker: a missing member of the port is an error here."""
