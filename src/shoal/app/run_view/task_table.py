"""Task boards of a run: each task with its owner, blockers and cost."""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern
from typing import TypeAlias

from msgspec.structs import replace

from shoal.app.run_view.change_table import ChangeTrackingRowMap
from shoal.app.run_view.view_rows import RunViewTaskRow
from shoal.core.events import TaskChanged
from shoal.core.names import LEAD_NAME

_MAX_MOVES = 64
"""Maximum number of moves kept per task."""


_Key: TypeAlias = tuple[str, str]
"""Board and number."""


class RunViewTasksState:
    def __init__(self) -> None:
        self._table: ChangeTrackingRowMap[_Key, RunViewTaskRow] = ChangeTrackingRowMap()
        self._in_progress: dict[str, dict[_Key, None]] = {}
        """Tasks in progress by owner, in the order of their start."""
        self._owned: dict[str, set[_Key]] = {}
        self._waiting_tasks: dict[_Key, set[_Key]] = {}
        """Waiting tasks by blocker."""

    def __len__(self) -> int:
        return sum(1 for _ in self.values())

    def values(self) -> Iterator[RunViewTaskRow]:
        return (row for row in self._table.values() if row.status != "deleted")

    def get(self, board: str, task: str) -> RunViewTaskRow | None:
        return self._table.get((board, task))

    def list_rows_changed_since(self, offset: int) -> tuple[RunViewTaskRow, ...]:
        return tuple(self._table.get_row(key) for key in self._table.list_keys_changed_since(offset))

    def find_current_task(self, owner: str, board: str = "") -> RunViewTaskRow | None:
        """Return the owner's task in progress, the latest if several; on one board, or on any."""
        started = reversed(self._in_progress.get(_resolve_lead_alias(owner), {}))
        return next((self._table.get_row(key) for key in started if board in ("", key[0])), None)

    def list_blocking_owners(self, owner: str, board: str = "") -> list[str]:
        """Return the owners of the tasks that block the owner's tasks."""
        owner = _resolve_lead_alias(owner)
        owned = (self._table.get_row(key) for key in self._owned.get(owner, ()) if board in ("", key[0]))
        waiting = (row for row in owned if row.status == "pending")
        owners = {each.owner for row in waiting for each in self.list_open_blockers(row)} - {"", owner}
        return sorted("lead" if each == LEAD_NAME else each for each in owners)

    def list_open_blockers(self, row: RunViewTaskRow) -> list[RunViewTaskRow]:
        blockers = (self._table.get((row.board, each)) for each in row.blocked_by)
        return [each for each in blockers if each is not None and each.status not in ("completed", "deleted")]

    def apply_task_change(self, event: TaskChanged, at: int, offset: int) -> set[str]:
        """Apply a change and return the owners it affects."""
        # One string for all tasks of a board, a status or an owner.
        board, status, owner = intern(event.board), intern(event.status), intern(event.owner)
        key = (board, event.task)
        old = self._table.get(key)
        row = RunViewTaskRow(
            board=board,
            id=event.task if old is None else old.id,
            subject=event.subject,
            status=status,
            owner=owner,
            blocked_by=event.blocked_by,
            rank=event.rank,
            changed=at,
            usd=old.usd if old else 0.0,
            tokens=old.tokens if old else 0,
            moves=_append_status_change(old, event, at),
        )
        self._table.put(key, row, offset)
        self._update_owner_index(key, old, row)
        for blocker in row.blocked_by:
            self._waiting_tasks.setdefault((event.board, blocker), set()).add(key)
        affected = {
            row.owner,
            *(self._table.get_row(each).owner for each in self._waiting_tasks.get(key, ())),
        }
        return (affected | ({old.owner} if old else set())) - {""}

    def add_task_cost(self, row: RunViewTaskRow, usd: float, tokens: int, offset: int) -> None:
        updated = replace(row, usd=row.usd + usd, tokens=row.tokens + tokens)
        self._table.put((row.board, row.id), updated, offset)

    def _update_owner_index(self, key: _Key, old: RunViewTaskRow | None, row: RunViewTaskRow) -> None:
        is_in_progress = row.status == "in_progress"
        if old is not None and old.owner:
            self._owned.get(old.owner, set()).discard(key)
            if old.owner != row.owner or not is_in_progress:
                self._in_progress.get(old.owner, {}).pop(key, None)
        if row.owner and row.status != "deleted":
            self._owned.setdefault(row.owner, set()).add(key)
            if is_in_progress:
                self._in_progress.setdefault(row.owner, {})[key] = None


def _resolve_lead_alias(owner: str) -> str:
    return LEAD_NAME if owner == "lead" else owner


def _append_status_change(
    old: RunViewTaskRow | None, event: TaskChanged, at: int
) -> tuple[tuple[int, str, str], ...]:
    moves = () if old is None else old.moves
    if old is not None and (old.status, old.owner) == (event.status, event.owner):
        return moves
    return (*moves, (at, intern(event.status), intern(event.owner)))[-_MAX_MOVES:]
