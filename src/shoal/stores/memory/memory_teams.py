"""Rosters, task boards and mailboxes in memory, which fulfill the same contracts as the files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

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
from shoal.core.teams.roster import NewMember, RosterEntry, TeamRoster
from shoal.core.teams.tasks import (
    ATTEMPT_KEY,
    Task,
    TaskClaimResult,
    TaskDraft,
    TaskUpdate,
    apply_added_task_dependencies,
    apply_task_update,
    extract_stable_claim_attempt_part,
    find_claim_refusal_reason,
    find_claimable_tasks,
    has_claimable_task,
    refuse_blank_subject,
    refuse_blocked_status,
    sort_tasks_by_number,
)
from shoal.stores.board_waiters import TaskClaimWaiters
from shoal.stores.store_texts import format_store_notice


class _MemoryInbox:
    def __init__(self) -> None:
        self.mail: dict[str, MailMessage] = {}
        """Everything ever posted, oldest first."""
        self.unread: dict[str, None] = {}
        self.waiters: list[asyncio.Future[None]] = []
        """Futures and not an event, which belongs to the event loop that first waits for it."""

    def post(self, mail: MailMessage) -> None:
        self.mail[mail.id] = replace(mail, read=False)
        self.unread[mail.id] = None
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

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

    async def take_unread(
        self, owner: AgentName, *, limit: int = 64, beyond: Container[str] = ()
    ) -> tuple[MailMessage, ...]:
        inbox = self._get_inbox(owner)
        found = [inbox.mail[ident] for ident in inbox.unread if ident not in beyond]
        return tuple(found[:limit])

    async def mark_read(self, owner: AgentName, ids: Collection[str]) -> None:
        self._get_inbox(owner).mark_read(ids)

    async def wait_for_mail(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        inbox = self._get_inbox(owner)
        while all(ident in beyond for ident in inbox.unread):
            inbox.waiters.append(waiter := asyncio.get_running_loop().create_future())
            try:
                await waiter
            finally:
                if waiter in inbox.waiters:
                    inbox.waiters.remove(waiter)

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
            raise InboxNotFound(format_store_notice("unknown_inbox", owner=repr(owner), owners=known_owners))
        return inbox


class MemoryWatch:
    """Calls `on_change` soon in the loop that created it, as a watch of files does."""

    def __init__(self, watches: list[MemoryWatch], on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._watches = watches
        self._loop = asyncio.get_running_loop()
        watches.append(self)

    def notify(self) -> None:
        if self._loop.is_closed():
            self.close()
        else:
            self._loop.call_soon(self._call_unless_closed)

    def _call_unless_closed(self) -> None:
        if self in self._watches:
            self._on_change()

    def close(self) -> None:
        if self in self._watches:
            self._watches.remove(self)


class MemoryBoardState:
    """Tasks of one board, shared by all its handles."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self.highest = 0
        self.leases: set[str] = set()
        """Leases of the open handles: a claim lasts as long as the handle that made it."""
        self.has_ended_leases = False
        """True if there may be claims of a handle that was closed."""
        self.waiters = TaskClaimWaiters()
        self.changed_ids: WeakKeyDictionary[MemoryTaskBoard, set[TaskId]] = WeakKeyDictionary()
        """Tasks that changed since each handle last asked for them."""
        self.watches: list[MemoryWatch] = []

    def record_changes(self, tasks: Iterable[TaskId]) -> None:
        for changed_ids in self.changed_ids.values():
            changed_ids.update(tasks)
        for watch in tuple(self.watches):
            watch.notify()


class MemoryTaskBoard:
    """Handle of a board. No call awaits between its check and its change, so each call is atomic."""

    def __init__(self, ids: IdGenerator, state: MemoryBoardState | None = None) -> None:
        self._ids = ids
        self._state = state or MemoryBoardState()
        self._lease = ""

    @property
    def _tasks(self) -> dict[TaskId, Task]:
        return self._state.tasks

    async def create(self, draft: TaskDraft) -> Task:
        refuse_blank_subject(draft.subject)
        self._state.highest += 1
        task = draft.to_task(TaskId(str(self._state.highest)))
        self._store_tasks(task)
        return task

    async def get(self, task: TaskId) -> Task | None:
        self._release_abandoned_tasks()
        return self._tasks.get(task)

    async def list_tasks(self) -> Sequence[Task]:
        self._release_abandoned_tasks()
        return sort_tasks_by_number(self._tasks.values())

    async def list_unfinished(self) -> Sequence[Task]:
        self._release_abandoned_tasks()
        return sort_tasks_by_number(task for task in self._tasks.values() if task.status != "completed")

    async def list_abandoned(self) -> frozenset[TaskId]:
        return frozenset()  # every reader releases them

    async def get_live_task_mapping(self) -> Mapping[TaskId, Task]:
        self._release_abandoned_tasks()
        return self._tasks

    def peek_tasks(self) -> Mapping[TaskId, Task]:
        return self._tasks

    def take_changed_ids(self) -> Collection[TaskId] | None:
        changed_ids = self._state.changed_ids.get(self)
        self._state.changed_ids[self] = set()
        return changed_ids

    def watch_changes(self, on_change: Callable[[], None]) -> MemoryWatch:
        return MemoryWatch(self._state.watches, on_change)

    async def update(self, task: TaskId, change: TaskUpdate, *, by: AgentName) -> tuple[Task, Task]:
        before = self._require_task(task)
        if change.status == "deleted":
            self._remove_task(task)
            return before, before
        refuse_blocked_status(before, change, self._tasks)
        after = apply_task_update(before, change)
        others = apply_added_task_dependencies({**self._tasks, task: after}, task, change)
        self._store_tasks(after, *others.values())
        return before, self._tasks[task]

    async def claim(self, task: TaskId, *, by: AgentName) -> TaskClaimResult:
        self._release_abandoned_tasks()
        return self._claim_task(task, by)

    def _claim_task(self, task: TaskId, by: AgentName) -> TaskClaimResult:
        current_task = self._tasks.get(task)
        refusal = find_claim_refusal_reason(current_task, self._tasks, by=by)
        if refusal is not None or current_task is None:
            return TaskClaimResult(success=False, reason=refusal, task=current_task)
        was_held = current_task.owner == by and current_task.status == "in_progress"
        attempt_mark = extract_stable_claim_attempt_part(current_task.claim_attempt) if was_held else ""
        attempt = f"{self._ensure_lease()}-{attempt_mark or self._ids.new_short_id()}"
        metadata = {**current_task.metadata, ATTEMPT_KEY: attempt}
        claimed_task = replace(current_task, status="in_progress", owner=by, metadata=metadata)
        self._store_tasks(claimed_task)
        return TaskClaimResult(success=True, task=claimed_task, attempt=attempt)

    async def claim_next(self, *, by: AgentName) -> TaskClaimResult | None:
        self._release_abandoned_tasks()
        first = next(iter(find_claimable_tasks(self._tasks)), None)
        return None if first is None else await self.claim(first.id, by=by)

    async def reclaim_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        # Not by `list_tasks`, which releases the tasks of handles that are closed.
        held_tasks = [
            task
            for task in sort_tasks_by_number(self._tasks.values())
            if task.owner == owner and task.status == "in_progress"
        ]
        return tuple([task.id for task in held_tasks if self._claim_task(task.id, owner).success])

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

    def is_task_claimable_now(self) -> bool:
        self._release_abandoned_tasks()
        return has_claimable_task(self._tasks)

    async def wait_for_claimable(self) -> None:
        self._release_abandoned_tasks()
        while not has_claimable_task(self._tasks):
            await self._state.waiters.wait()

    async def aclose(self) -> None:
        """Close this handle; its lease ends, so unfinished claims return to pending."""
        lease, self._lease = self._lease, ""
        if lease:
            self._state.leases.discard(lease)
            self._state.has_ended_leases = True
            if self._state.waiters:
                self._release_abandoned_tasks()

    def _ensure_lease(self) -> str:
        if not self._lease:
            self._lease = os.urandom(8).hex()
            self._state.leases.add(self._lease)
        return self._lease

    def _release_abandoned_tasks(self) -> None:
        if not self._state.has_ended_leases:
            return
        self._state.has_ended_leases = False
        abandoned_tasks = [
            task
            for task in self._tasks.values()
            if task.status == "in_progress"
            and task.claim_attempt is not None
            and task.claim_attempt.partition("-")[0] not in self._state.leases
        ]
        if abandoned_tasks:
            released = TaskUpdate(status="pending", owner=None)
            self._store_tasks(*(apply_task_update(task, released) for task in abandoned_tasks))

    def _require_task(self, task: TaskId) -> Task:
        current_task = self._tasks.get(task)
        if current_task is None:
            raise TaskUpdateRefused(format_store_notice("unknown_task", task=task))
        return current_task

    def _store_tasks(self, *tasks: Task) -> None:
        self._tasks.update({task.id: task for task in tasks})
        self._state.record_changes([task.id for task in tasks])
        self._wake_waiters_for_claimable()

    def _remove_task(self, removed_id: TaskId) -> None:
        del self._tasks[removed_id]
        changed_ids = [removed_id]
        for task in list(self._tasks.values()):
            if removed_id in task.blocks or removed_id in task.blocked_by:
                changed_ids.append(task.id)
                blocks = tuple(other for other in task.blocks if other != removed_id)
                blocked_by = tuple(other for other in task.blocked_by if other != removed_id)
                self._tasks[task.id] = replace(task, blocks=blocks, blocked_by=blocked_by)
        self._state.record_changes(changed_ids)
        self._wake_waiters_for_claimable()

    def _wake_waiters_for_claimable(self) -> None:
        """Wake one waiter for each task that became claimable, once."""
        if self._state.waiters:
            self._state.waiters.notify_claimable(task.id for task in find_claimable_tasks(self._tasks))


class MemoryRosterState:
    """Rosters of all teams, shared by all handles."""

    def __init__(self) -> None:
        self.teams: dict[TeamName, TeamRoster] = {}
        self.spawned: dict[TeamName, int] = {}


class MemoryRosters:
    def __init__(
        self,
        clock: Clock,
        state: MemoryRosterState | None = None,
        *,
        on_deleted: Callable[[TeamName], None] | None = None,
    ) -> None:
        self._clock = clock
        self._on_deleted = on_deleted
        state = state or MemoryRosterState()
        self._teams, self._spawned = state.teams, state.spawned

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
            raise TeamStoreError(
                format_store_notice("immutable_fields", fields=", ".join(sorted(refused_fields)))
            )
        roster = self._require_team(team)
        member = roster.find_member(name)
        if member is None:
            names = ", ".join(each.name for each in roster.members)
            raise TeamStoreError(format_store_notice("unknown_member", team=team, name=name, names=names))
        updated_member = replace(member, **fields)
        members = tuple(updated_member if each.name == name else each for each in roster.members)
        self._teams[team] = replace(roster, members=members)
        return updated_member

    async def list_members_of_other_programs(self, team: TeamName) -> frozenset[AgentName]:
        return frozenset()

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
                format_store_notice("active_members", team=team, names=", ".join(active_names))
            )
        del self._teams[team], self._spawned[team]
        if self._on_deleted is not None:
            self._on_deleted(team)

    async def aclose(self) -> None: ...

    def _require_team(self, team: TeamName) -> TeamRoster:
        roster = self._teams.get(team)
        if roster is None:
            raise TeamNotFound(format_store_notice("unknown_team", team=team))
        return roster
