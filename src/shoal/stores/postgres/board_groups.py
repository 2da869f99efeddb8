"""Statements on a board that serve all handles which wait at the same time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from shoal.core.errors import TaskUpdateRefused
from shoal.core.names import AgentName, TaskId
from shoal.core.teams.tasks import Task, TaskUpdate, apply_task_update, refuse_blocked_status
from shoal.stores.postgres.database_worker import DatabaseWorker, build_channel
from shoal.stores.postgres.grouped_calls import GroupedCalls
from shoal.stores.postgres.task_rows import (
    CHANGE_SEVERAL,
    CLAIM_NEXT,
    CLAIM_SEVERAL,
    FIND_CLAIMABLE,
    RELEASED,
    TASK_COLUMNS,
    TaskRow,
    get_task_rank,
    parse_task_row,
)
from shoal.stores.store_texts import format_store_notice

_TASK_COLUMN_COUNT = len(TASK_COLUMNS.split(", "))


class Claimant(NamedTuple):
    """Handle that claims the next free task."""

    owner: AgentName
    attempt: str


class TaskChange(NamedTuple):
    """Change of one task that does not change dependencies."""

    number: int
    update: TaskUpdate


class ChangedTask(NamedTuple):
    """A task before and after a change; both are None if the change has to be made under a lock."""

    before: Task | None
    after: Task | None


NEEDS_LOCK = ChangedTask(None, None)


class BoardGroups:
    """Calls on one board in one process. All methods run in the client's thread."""

    def __init__(self, board: str) -> None:
        self._board = board
        self._channel = build_channel("board", board)
        self.may_have_more = False
        """True if there were more free tasks than the last group of claims got."""
        self.claims: GroupedCalls[Claimant, TaskRow | None] = GroupedCalls(self._claim_together)
        """Each returns None if no task is free."""
        self.reads: GroupedCalls[int, TaskRow | None] = GroupedCalls(self._read_together)
        self.changes: GroupedCalls[TaskChange, ChangedTask] = GroupedCalls(self._change_together)
        self.releases: GroupedCalls[None, bool] = GroupedCalls(self._release_abandoned)
        """Each returns True if tasks of handles that have ended were released."""
        self.searches: GroupedCalls[None, bool] = GroupedCalls(self._has_claimable)
        """Each returns True if a task is free."""

    async def _claim_together(
        self, worker: DatabaseWorker, claimants: list[Claimant]
    ) -> Sequence[TaskRow | None]:
        tries = 0

        async def claim(raw: Any) -> dict[str, Any] | None:
            """Return the rows by attempt; None if the lease is lost."""
            nonlocal tries
            tries += 1
            claimed: dict[str, Any] = {}
            if tries > 1:  # the first try may have been committed when its connection was lost
                rows = await raw.fetch(
                    f"SELECT {TASK_COLUMNS} FROM shoal.tasks WHERE board = $1 AND attempt = ANY($2::text[]) "
                    "AND lease = ANY($3::text[]) AND status = 'in_progress'",
                    self._board,
                    [claimant.attempt for claimant in claimants],
                    [claimant.attempt.partition("-")[0] for claimant in claimants],
                )
                claimed = {row["attempt"]: row for row in rows}
            rest = [claimant for claimant in claimants if claimant.attempt not in claimed]
            if rest:
                rows = await self._claim_next(raw, worker, rest)
                claimed |= {row["attempt"]: row for row in rows}
                if not rows and not await has_lease(raw, worker):
                    return None
            return claimed

        claimed = await worker.execute(claim)
        if claimed is None:
            raise worker.lose_lease()
        if claimed:
            worker.notify(self._channel, wakes=False)
        rows = [claimed.get(claimant.attempt) for claimant in claimants]
        return [None if row is None else parse_task_row(row[:_TASK_COLUMN_COUNT]) for row in rows]

    async def _claim_next(self, raw: Any, worker: DatabaseWorker, claimants: list[Claimant]) -> list[Any]:
        self.may_have_more = False
        if len(claimants) == 1:
            row = await raw.fetchrow(CLAIM_NEXT, worker.epoch, self._board, *claimants[0])
            return [] if row is None else [row]
        owners, attempts = zip(*claimants, strict=True)
        rows = await raw.fetch(
            CLAIM_SEVERAL, worker.epoch, self._board, list(owners), list(attempts), len(claimants)
        )
        self.may_have_more = bool(rows) and rows[0]["found"] > len(rows)
        return list(rows)

    async def _read_together(self, worker: DatabaseWorker, numbers: list[int]) -> Sequence[TaskRow | None]:
        rows = await worker.execute(lambda raw: fetch_task_rows(raw, self._board, numbers))
        return [rows.get(number) for number in numbers]

    async def _change_together(
        self, worker: DatabaseWorker, changes: list[TaskChange]
    ) -> Sequence[ChangedTask | Exception]:
        """Change tasks that nobody else changes meanwhile; the others need a lock."""
        results: list[ChangedTask | Exception] = [NEEDS_LOCK] * len(changes)
        prepared: list[_PreparedChange] = []

        async def change(raw: Any) -> bool:
            """Return False if the lease is lost."""
            changed: set[int] = set()
            if prepared:  # the first try may have been committed when its connection was lost
                rows = await fetch_task_rows(raw, self._board, [each.row.number for each in prepared])
                changed = {
                    each.row.number for each in prepared if each.is_written_as(rows.get(each.row.number))
                }
            else:
                prepared.extend(await self._prepare_changes(raw, changes, results))
            rest = [each for each in prepared if each.row.number not in changed]
            if rest:
                columns = zip(*(each.build_columns() for each in rest), strict=True)
                fences, written = await raw.fetchrow(
                    CHANGE_SEVERAL, worker.epoch, self._board, *(list(column) for column in columns)
                )
                if not fences:
                    return False
                changed.update(written)
            for each in prepared:
                if each.row.number in changed:
                    results[each.place] = ChangedTask(each.row.task, each.after)
            return True

        if not await worker.execute(change):
            raise worker.lose_lease()
        if prepared:
            worker.notify(self._channel)
        return results

    async def _prepare_changes(
        self, raw: Any, changes: list[TaskChange], results: list[ChangedTask | Exception]
    ) -> list[_PreparedChange]:
        """Return what to write. Refusals are put in `results`; the rest needs a lock."""
        rows = await fetch_task_rows(raw, self._board, {change.number for change in changes})
        blockers = {int(each) for row in rows.values() for each in row.task.blocked_by} - rows.keys()
        known = rows | (await fetch_task_rows(raw, self._board, blockers) if blockers else {})
        tasks = {row.task.id: row.task for row in known.values()}
        prepared: list[_PreparedChange] = []
        for place, (number, update) in enumerate(changes):
            row = rows.pop(number, None)
            if row is None:
                if TaskId(str(number)) not in tasks:
                    results[place] = build_no_task_error(TaskId(str(number)))
                continue  # a second change of the same task waits for the first
            try:
                refuse_blocked_status(row.task, update, tasks)
                after = apply_task_update(row.task, update)
            except TaskUpdateRefused as error:
                results[place] = error
                continue
            # A task that unblocks others takes the lock of the board.
            if not row.dependents or (after.status == "completed") == (row.task.status == "completed"):
                prepared.append(_PreparedChange(place, row, after))
        return prepared

    async def _release_abandoned(self, worker: DatabaseWorker, calls: list[None]) -> list[bool]:
        async def find_ended(raw: Any) -> bool:
            return bool(
                await raw.fetchval(
                    "SELECT EXISTS (SELECT FROM shoal.board_leases WHERE board = $1 AND has_ended)",
                    self._board,
                )
            )

        async def release(raw: Any) -> None:
            leases = [
                row[0]
                for row in await raw.fetch(
                    "DELETE FROM shoal.board_leases WHERE board = $1 AND has_ended RETURNING lease",
                    self._board,
                )
            ]
            await raw.execute(
                "WITH held AS (SELECT number FROM shoal.tasks WHERE board = $1 AND lease = ANY($2) "
                "AND status = 'in_progress' ORDER BY number FOR UPDATE) "
                f"UPDATE shoal.tasks SET {RELEASED} FROM held "
                "WHERE board = $1 AND tasks.number = held.number",
                self._board,
                leases,
            )

        has_ended = await worker.execute(find_ended)
        if has_ended:
            await worker.transact(release)
            worker.notify(self._channel)
        return [has_ended] * len(calls)

    async def _has_claimable(self, worker: DatabaseWorker, calls: list[None]) -> list[bool]:
        return [bool(await self.find_claimable(worker, 1))] * len(calls)

    async def find_claimable(self, worker: DatabaseWorker, limit: int) -> list[tuple[int, int]]:
        """Return the numbers and versions of the next free tasks."""

        async def find(raw: Any) -> list[tuple[int, int]]:
            return [(row[0], row[1]) for row in await raw.fetch(FIND_CLAIMABLE, self._board, limit)]

        return await worker.execute(find)


class _PreparedChange(NamedTuple):
    place: int
    """Place of the change in its group."""
    row: TaskRow
    after: Task

    def build_columns(self) -> tuple[object, ...]:
        after = self.after
        return (
            self.row.number,
            self.row.version,
            self.row.encode_document(after),
            after.status,
            after.owner,
            after.claim_attempt,
            get_task_rank(after),
        )

    def is_written_as(self, row: TaskRow | None) -> bool:
        return row is not None and row.version == self.row.version + 1 and row.task == self.after


async def fetch_task_rows(
    raw: Any, board: str, numbers: Collection[int], *, lock: bool = False
) -> dict[int, TaskRow]:
    """Return the rows of tasks that are not deleted, by number."""
    query = (
        f"SELECT {TASK_COLUMNS} FROM shoal.tasks WHERE board = $1 AND number = ANY($2::bigint[]) "
        f"AND status <> 'deleted' ORDER BY number {'FOR UPDATE' if lock else ''}"
    )
    rows = await raw.fetch(query, board, list(numbers))
    return {row["number"]: parse_task_row(row) for row in rows}


async def has_lease(raw: Any, worker: DatabaseWorker) -> bool:
    return bool(await raw.fetchval("SELECT true FROM shoal.holders WHERE epoch = $1", worker.epoch))


def build_no_task_error(task: TaskId) -> TaskUpdateRefused:
    return TaskUpdateRefused(format_store_notice("unknown_task", task=task))
