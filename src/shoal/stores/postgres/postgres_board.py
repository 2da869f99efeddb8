"""Task board in the database.

A row has the document that the task's file would contain. The columns status, owner and attempt override it,
so that a claim is one statement. `open_blockers` counts the blockers that are not completed; a change of it
locks the whole board, while claims and other changes of one task lock only its row.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from shoal.core.errors import InvalidName
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TaskId, parse_task_id
from shoal.core.teams.tasks import (
    Task,
    TaskClaimResult,
    TaskDraft,
    TaskUpdate,
    apply_added_task_dependencies,
    apply_task_update,
    refuse_blank_subject,
    refuse_blocked_status,
    sort_tasks_by_number,
)
from shoal.stores.board_waiters import TaskClaimWaiters
from shoal.stores.postgres.board_groups import (
    BoardGroups,
    Claimant,
    TaskChange,
    build_no_task_error,
    fetch_task_rows,
    has_lease,
)
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.database_worker import DatabaseWorker, build_channel
from shoal.stores.postgres.postgres_hints import HintSubscription, PostgresWatch
from shoal.stores.postgres.shared_parts import SharedPart
from shoal.stores.postgres.task_rows import (
    CLAIM_TASK,
    RELEASED,
    TASK_COLUMNS,
    TaskRow,
    count_open_blockers,
    insert_task,
    parse_task_row,
    write_task,
)

T = TypeVar("T")
_GUESS_SECONDS = 1.0
"""Seconds after which abandoned tasks are looked for, even on a board with many free tasks."""
_CHANGED_TASKS = f"SELECT {TASK_COLUMNS} FROM shoal.tasks WHERE board = $1 AND changed_in >= $2::text::xid8"


class TaskMirror:
    """Copy of a board, refreshed with the changes since the last refresh."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self.cursor = "0"
        """Transactions from this one on may have changed tasks that the copy has not seen."""
        self.change_sets: list[set[TaskId]] = []
        """Sets that collect the tasks that changed, one for each handle that asked for them."""
        self._versions: dict[TaskId, int] = {}

    def apply_rows(self, cursor: str, rows: Iterable[Any]) -> None:
        self.cursor = max(self.cursor, cursor, key=int)
        for row in sorted(rows, key=lambda each: int(each["number"])):
            task_id = TaskId(str(row["number"]))
            if row["version"] <= self._versions.get(task_id, -1):
                continue
            self._versions[task_id] = row["version"]
            for changed_ids in self.change_sets:
                changed_ids.add(task_id)
            if row["status"] == "deleted":
                self.tasks.pop(task_id, None)
            else:
                self.tasks[task_id] = parse_task_row(row).task


class BoardView:
    """Shared state of the handles of a board in one event loop: its tasks, and waiters.

    A process may have thousands of handles, one for each of its members. They share one copy of the tasks,
    and a hint costs one query for all of them.
    """

    def __init__(self, client: DatabaseClient, name: str) -> None:
        self._client = client
        self._name = name
        self._channel = build_channel("board", name)
        self.mirror = TaskMirror()
        self.groups = BoardGroups(name)
        self._subscription: HintSubscription | None = None
        self._subscribing = asyncio.Lock()
        self._waiters = TaskClaimWaiters()
        self._hint_count = 0
        self._checked_at = float("-inf")
        self._is_finding = False

    async def read_changes(self, worker: DatabaseWorker) -> tuple[str, list[Any]]:
        cursor = self.mirror.cursor

        async def read(raw: Any) -> tuple[str, list[Any]]:
            # The snapshot first: what it does not see is read again next time.
            next_cursor = await raw.fetchval("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
            return next_cursor, list(await raw.fetch(_CHANGED_TASKS, self._name, cursor))

        return await worker.execute(read)

    def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def take_guess(self) -> bool:
        """Return True if there are probably more tasks. At times, nobody guesses, and it is looked up."""
        now = asyncio.get_running_loop().time()
        if not self.groups.may_have_more or now > self._checked_at + _GUESS_SECONDS:
            self._checked_at = now
            return False
        return True

    async def wait_for_claimable(self) -> None:
        await self._subscribe()
        while not await self._has_claimable_task():
            await self._waiters.wait()

    async def _has_claimable_task(self) -> bool:
        while True:
            hint_count = self._hint_count
            if await self._client.call(lambda worker: self.groups.searches.call(worker, None)):
                return True
            if hint_count == self._hint_count:
                return False

    async def _subscribe(self) -> None:
        async with self._subscribing:
            if self._subscription is None:
                subscription = HintSubscription(self._client, self._channel, self._on_hint)
                await subscription.start()
                self._subscription = subscription

    def _on_hint(self, _payload: str | None) -> None:
        self._hint_count += 1
        # A new waiter finds what is claimable by itself. A running query starts again after a hint.
        if not self._waiters or self._is_finding:
            return
        self._is_finding = True
        limit, loop = self._waiters.max_announced, asyncio.get_running_loop()
        hint_count = self._hint_count

        async def find_and_wake(worker: DatabaseWorker) -> None:
            found: list[tuple[int, int]] | None = None
            try:
                found = await self.groups.find_claimable(worker, limit)
            finally:
                with suppress(RuntimeError):  # the event loop was closed
                    loop.call_soon_threadsafe(self._wake_waiters_for, found, hint_count)

        self._client.send(lambda worker: worker.start_task(find_and_wake(worker)))

    def _wake_waiters_for(self, claimable: list[tuple[int, int]] | None, hint_count: int) -> None:
        """Wake one waiter for each task that became claimable, once. None if the query failed."""
        self._is_finding = False
        if claimable is not None:
            self._waiters.notify_claimable(claimable)
        if hint_count != self._hint_count:
            self._on_hint(None)


class PostgresTaskBoard:
    """Handle of a board; its claims last until it is closed or its process loses its lease."""

    def __init__(self, client: DatabaseClient, name: str, ids: IdGenerator) -> None:
        self._client = client
        self._name = name
        self._ids = ids
        self._channel = build_channel("board", name)
        self._lease = ""
        self._leasing = asyncio.Lock()
        self._shared_view: SharedPart[BoardView] | None = None
        self._changed_ids: set[TaskId] | None = None

    # --- reading

    async def get(self, task: TaskId) -> Task | None:
        number = _parse_task_number(task)
        if number is None:
            return None
        reads = self._view.groups.reads
        row = await self._client.call(lambda worker: reads.call(worker, number))
        if row is not None and row.task.status == "in_progress" and await self._release_abandoned_tasks():
            row = await self._client.call(lambda worker: reads.call(worker, number))
        return None if row is None else row.task

    async def list_tasks(self) -> Sequence[Task]:
        return sort_tasks_by_number((await self.get_live_task_mapping()).values())

    async def list_unfinished(self) -> Sequence[Task]:
        return [task for task in await self.list_tasks() if task.status != "completed"]

    async def list_abandoned(self) -> frozenset[TaskId]:
        return frozenset()  # every reader releases them

    async def get_live_task_mapping(self) -> Mapping[TaskId, Task]:
        await self._release_abandoned_tasks()
        view = self._view
        view.mirror.apply_rows(*await self._client.call(view.read_changes))
        return view.mirror.tasks

    def peek_tasks(self) -> Mapping[TaskId, Task]:
        view = self._view
        view.mirror.apply_rows(*self._client.run(view.read_changes))
        return view.mirror.tasks

    def take_changed_ids(self) -> Collection[TaskId] | None:
        if self._changed_ids is None:
            self._changed_ids = set()
            self._view.mirror.change_sets.append(self._changed_ids)
            return None
        changed_ids = set(self._changed_ids)
        self._changed_ids.clear()
        return changed_ids

    @property
    def _view(self) -> BoardView:
        if self._shared_view is None:
            self._shared_view = self._client.shared_parts.acquire(
                ("board", self._name), lambda: BoardView(self._client, self._name)
            )
        return self._shared_view.part

    def watch_changes(self, on_change: Callable[[], None]) -> PostgresWatch:
        watch = PostgresWatch(self._client, self._channel, on_change)
        watch.start_and_wait()
        return watch

    async def _fetch_row(self, raw: Any, number: int, *, lock: bool = False) -> TaskRow | None:
        rows = await self._fetch_rows(raw, (number,), lock=lock)
        return rows.get(number)

    async def _fetch_rows(
        self, raw: Any, numbers: Collection[int], *, lock: bool = False
    ) -> dict[int, TaskRow]:
        return await fetch_task_rows(raw, self._name, numbers, lock=lock)

    # --- changes

    async def create(self, draft: TaskDraft) -> Task:
        refuse_blank_subject(draft.subject)

        async def create_task(raw: Any) -> Task:
            number = await raw.fetchval(
                "INSERT INTO shoal.boards VALUES ($1, 1) ON CONFLICT (name) "
                "DO UPDATE SET highest = boards.highest + 1 RETURNING highest",
                self._name,
            )
            task = draft.to_task(TaskId(str(number)))
            await insert_task(raw, self._name, task)
            return task

        return await self._change(create_task)

    async def update(self, task: TaskId, change: TaskUpdate, *, by: AgentName) -> tuple[Task, Task]:
        if change.status == "deleted":
            before = await self._delete(task)
            return before, before
        number = _require_task_number(task)

        async def update_one_task(raw: Any) -> tuple[Task, Task] | None:
            row = _require_row(await self._fetch_row(raw, number, lock=True), task)
            blockers = {int(each) for each in row.task.blocked_by}
            rows = await self._fetch_rows(raw, blockers, lock=False) if blockers else {}
            refuse_blocked_status(row.task, change, {each.task.id: each.task for each in rows.values()})
            after = apply_task_update(row.task, change)
            if row.dependents and (after.status == "completed") != (row.task.status == "completed"):
                return None  # it unblocks others, which takes the lock of the board
            await write_task(raw, self._name, row, after)
            return row.task, after

        if not change.add_blocks and not change.add_blocked_by:
            groups, request = self._view.groups, TaskChange(number, change)
            changed = await self._client.call(lambda worker: groups.changes.call(worker, request))
            if changed.before is not None and changed.after is not None:
                return changed.before, changed.after
            updated = await self._change(update_one_task)
            if updated is not None:
                return updated
        return await self._change(lambda raw: self._update_with_dependencies(raw, number, change))

    async def _update_with_dependencies(self, raw: Any, number: int, change: TaskUpdate) -> tuple[Task, Task]:
        await self._lock_board(raw)
        blocked = [each for task in change.add_blocks if (each := _parse_task_number(task)) is not None]
        blockers = [each for task in change.add_blocked_by if (each := _parse_task_number(task)) is not None]
        found = await raw.fetch(
            "WITH RECURSIVE involved (number) AS (SELECT unnest($2::bigint[]) UNION "
            "SELECT unnest(blocked_by) FROM shoal.tasks JOIN involved USING (number) WHERE board = $1) "
            "SELECT number FROM involved",
            self._name,
            [number, *blocked, *blockers],
        )
        rows = await self._fetch_rows(raw, {row[0] for row in found}, lock=True)
        row = _require_row(rows.get(number), TaskId(str(number)))
        tasks = {each.task.id: each.task for each in rows.values()}
        refuse_blocked_status(row.task, change, tasks)
        after = apply_task_update(row.task, change)
        changed = apply_added_task_dependencies({**tasks, after.id: after}, after.id, change)
        changed.setdefault(after.id, after)
        for task in changed.values():
            added = blocked if task.id == after.id else [number] if int(task.id) in blockers else []
            old = rows[int(task.id)]
            await write_task(raw, self._name, old, task, dependents=dict.fromkeys((*old.dependents, *added)))
        await count_open_blockers(
            raw, self._name, {number, *blocked, *row.dependents, *(int(each) for each in changed)}
        )
        return row.task, changed[after.id]

    async def delete(self, task: TaskId) -> None:
        await self._delete(task)

    async def _delete(self, task: TaskId) -> Task:
        number = _require_task_number(task)

        async def delete_task(raw: Any) -> Task:
            await self._lock_board(raw)
            row = _require_row(await self._fetch_row(raw, number, lock=True), task)
            neighbours = {int(each) for each in (*row.task.blocks, *row.task.blocked_by)} | {*row.dependents}
            for other in (await self._fetch_rows(raw, neighbours, lock=True)).values():
                blocks = tuple(each for each in other.task.blocks if each != row.task.id)
                blocked_by = tuple(each for each in other.task.blocked_by if each != row.task.id)
                await write_task(
                    raw,
                    self._name,
                    other,
                    replace(other.task, blocks=blocks, blocked_by=blocked_by),
                    dependents=[each for each in other.dependents if each != number],
                )
            await raw.execute(
                "UPDATE shoal.tasks SET status = 'deleted', document = '', owner = NULL, attempt = NULL, "
                "version = version + 1, changed_in = pg_current_xact_id() WHERE board = $1 AND number = $2",
                self._name,
                number,
            )
            await count_open_blockers(raw, self._name, neighbours)
            return row.task

        return await self._change(delete_task)

    async def _lock_board(self, raw: Any) -> None:
        await raw.execute("SELECT FROM shoal.boards WHERE name = $1 FOR UPDATE", self._name)

    async def _change(self, operation: Callable[[Any], Awaitable[T]]) -> T:
        async def change_and_notify(worker: DatabaseWorker) -> T:
            result = await worker.transact(operation)
            worker.notify(self._channel)
            return result

        return await self._client.call(change_and_notify)

    # --- claims

    async def claim(self, task: TaskId, *, by: AgentName) -> TaskClaimResult:
        number = _parse_task_number(task)
        if number is None:
            return TaskClaimResult(success=False, reason="task_not_found")
        claim = await self._claim_task(number, by)
        if claim.reason == "already_claimed" and await self._release_abandoned_tasks():
            claim = await self._claim_task(number, by)
        return claim

    async def _claim_task(self, number: int, by: AgentName) -> TaskClaimResult:
        await self._ensure_lease()
        mark = self._ids.new_short_id()

        async def claim_task(worker: DatabaseWorker) -> TaskClaimResult:
            async def execute(raw: Any) -> TaskClaimResult | None:
                claimed = await raw.fetchrow(
                    CLAIM_TASK, worker.epoch, self._name, number, by, self._lease, mark
                )
                if claimed is not None:
                    return _build_claim(parse_task_row(claimed))
                if not await has_lease(raw, worker):
                    return None
                return _build_claim_refusal(await self._fetch_row(raw, number), by)

            claim = await worker.execute(execute)
            return self._finish_claim(worker, claim)

        return await self._client.call(claim_task, undo=self._undo_claim)

    async def claim_next(self, *, by: AgentName) -> TaskClaimResult | None:
        claim = await self._claim_next(by)
        if claim is None and await self._release_abandoned_tasks():
            claim = await self._claim_next(by)
        return claim

    async def _claim_next(self, by: AgentName) -> TaskClaimResult | None:
        await self._ensure_lease()
        claimant = Claimant(by, f"{self._lease}-{self._ids.new_short_id()}")
        claims = self._view.groups.claims

        async def claim_next(worker: DatabaseWorker) -> TaskClaimResult | None:
            row = await claims.call(worker, claimant)
            return None if row is None else _build_claim(row)

        return await self._client.call(claim_next, undo=self._undo_claim)

    def _finish_claim(self, worker: DatabaseWorker, claim: TaskClaimResult | None) -> TaskClaimResult:
        if claim is None:
            raise worker.lose_lease()
        if claim.success:
            worker.notify(self._channel, wakes=False)
        return claim

    def _undo_claim(self, claim: TaskClaimResult | None) -> None:
        """Release a task whose claimant was canceled and does not know that it holds it."""
        if claim is not None and claim.task is not None and claim.attempt is not None:
            number, attempt = int(claim.task.id), claim.attempt
            self._client.send(lambda worker: worker.start_task(self._release(worker, number, attempt)))

    async def reclaim_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        async def list_held(raw: Any) -> list[int]:
            rows = await raw.fetch(
                "SELECT number FROM shoal.tasks WHERE board = $1 AND owner = $2 AND status = 'in_progress' "
                "ORDER BY number",
                self._name,
                owner,
            )
            return [row[0] for row in rows]

        numbers = await self._client.call(lambda worker: worker.execute(list_held))
        return tuple(
            [TaskId(str(number)) for number in numbers if (await self._claim_task(number, owner)).success]
        )

    async def release(self, task: TaskId, *, attempt: str) -> bool:
        number = _parse_task_number(task)
        if number is None:
            return False
        return await self._client.call(lambda worker: self._release(worker, number, attempt))

    async def _release(self, worker: DatabaseWorker, number: int, attempt: str) -> bool:
        async def release_task(raw: Any) -> bool:
            return bool(
                await raw.fetchval(
                    f"UPDATE shoal.tasks SET {RELEASED} WHERE board = $1 AND number = $2 AND attempt = $3 "
                    "AND status NOT IN ('completed', 'deleted') RETURNING true",
                    self._name,
                    number,
                    attempt,
                )
            )

        is_released = await worker.transact(release_task)
        worker.notify(self._channel)
        return is_released

    async def release_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        await self._release_abandoned_tasks()

        async def release_tasks(raw: Any) -> list[int]:
            rows = await raw.fetch(
                "WITH held AS (SELECT number FROM shoal.tasks WHERE board = $1 AND owner = $2 "
                "AND status NOT IN ('completed', 'deleted') ORDER BY number FOR UPDATE) "
                f"UPDATE shoal.tasks SET {RELEASED} FROM held WHERE board = $1 "
                "AND tasks.number = held.number RETURNING tasks.number",
                self._name,
                owner,
            )
            return sorted(row[0] for row in rows)

        return tuple(TaskId(str(number)) for number in await self._change(release_tasks))

    # --- leases

    async def _ensure_lease(self) -> None:
        if not self._lease:
            async with self._leasing:
                if not self._lease:
                    self._lease = await self._create_lease()

    async def _create_lease(self) -> str:
        lease = os.urandom(8).hex()

        async def create_lease(worker: DatabaseWorker) -> None:
            async def insert(raw: Any) -> None:
                await raw.execute(
                    "INSERT INTO shoal.board_leases (lease, board, holder) VALUES ($1, $2, $3)",
                    lease,
                    self._name,
                    worker.epoch,
                )

            await worker.transact(insert)

        await self._client.call(create_lease)
        return lease

    async def _release_abandoned_tasks(self) -> bool:
        """Release the tasks of handles that have ended; return True if there were any."""
        releases = self._view.groups.releases
        return await self._client.call(lambda worker: releases.call(worker, None))

    async def aclose(self) -> None:
        """Close this handle. Its unfinished claims end, and return to pending when somebody looks."""
        shared_view, self._shared_view = self._shared_view, None
        if shared_view is not None:
            # By identity: the sets of two handles may be equal.
            sets = shared_view.part.mirror.change_sets
            sets[:] = [each for each in sets if each is not self._changed_ids]
            shared_view.release()
        self._changed_ids = None
        lease, self._lease = self._lease, ""
        if not lease or not self._client.is_usable:
            return

        async def end_lease(raw: Any) -> None:
            await raw.execute("UPDATE shoal.board_leases SET has_ended = true WHERE lease = $1", lease)
            await raw.execute(
                "DELETE FROM shoal.board_leases WHERE lease = $1 AND NOT EXISTS (SELECT FROM shoal.tasks "
                "WHERE board = $2 AND tasks.lease = $1 AND status = 'in_progress')",
                lease,
                self._name,
            )

        await self._change(end_lease)

    # --- waiting

    def is_task_claimable_now(self) -> bool:
        return False  # only the database knows

    async def wait_for_claimable(self) -> None:
        view = self._view
        # Somebody who claims without success waits; then it is looked up.
        if not view.take_guess():
            await self._release_abandoned_tasks()
            await view.wait_for_claimable()


def _build_claim(row: TaskRow) -> TaskClaimResult:
    return TaskClaimResult(success=True, task=row.task, attempt=row.task.claim_attempt)


def _build_claim_refusal(row: TaskRow | None, by: AgentName) -> TaskClaimResult:
    if row is None:
        return TaskClaimResult(success=False, reason="task_not_found")
    if row.task.owner not in (None, by):
        return TaskClaimResult(success=False, reason="already_claimed", task=row.task)
    is_completed = row.task.status == "completed"
    return TaskClaimResult(
        success=False, reason="already_resolved" if is_completed else "blocked", task=row.task
    )


def _parse_task_number(task: TaskId) -> int | None:
    try:
        return int(parse_task_id(task))
    except InvalidName:
        return None


def _require_task_number(task: TaskId) -> int:
    number = _parse_task_number(task)
    if number is None:
        raise build_no_task_error(task)
    return number


def _require_row(row: TaskRow | None, task: TaskId) -> TaskRow:
    if row is None:
        raise build_no_task_error(task)
    return row
