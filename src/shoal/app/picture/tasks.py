"""The board of a run: each task, whose it is, what it waits for, and what was spent on it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from shoal.app.picture.rows import TaskRow
from shoal.app.picture.table import Table
from shoal.core.events import TaskChanged
from shoal.core.names import LEAD_NAME

_MOVES = 64
"""The latest moves of a task that are kept."""


class Tasks:
    def __init__(self) -> None:
        self._table: Table[tuple[str, str], TaskRow] = Table()
        self._at_work: dict[str, TaskRow] = {}
        """By owner."""
        self._owned: dict[str, set[tuple[str, str]]] = {}
        self._waiting: dict[tuple[str, str], set[tuple[str, str]]] = {}
        """By the task that they wait for."""

    def __len__(self) -> int:
        return sum(1 for _ in self.values())

    def values(self) -> Iterator[TaskRow]:
        return (row for row in self._table.values() if row.status != "deleted")

    def get(self, board: str, task: str) -> TaskRow | None:
        return self._table.get((board, task))

    def since(self, offset: int) -> tuple[TaskRow, ...]:
        return tuple(self._table.row(key) for key in self._table.since(offset))

    def at_work(self, owner: str) -> TaskRow | None:
        """The task that the owner has in progress, the latest if several."""
        return self._at_work.get(_called(owner))

    def holding_up(self, owner: str) -> list[str]:
        """The owners of what the owner's tasks wait for."""
        owner = _called(owner)
        theirs = (self._table.row(key) for key in self._owned.get(owner, ()))
        waiting = (row for row in theirs if row.status == "pending")
        others = {each.owner for row in waiting for each in self.open_blockers(row)} - {"", owner}
        return sorted("lead" if each == LEAD_NAME else each for each in others)

    def open_blockers(self, row: TaskRow) -> list[TaskRow]:
        blockers = (self._table.get((row.board, each)) for each in row.blocked_by)
        return [each for each in blockers if each is not None and each.status not in ("completed", "deleted")]

    def hear(self, event: TaskChanged, at: int, offset: int) -> set[str]:
        """The owners of whom something is different now."""
        key = (event.board, event.task)
        old = self._table.get(key)
        row = TaskRow(
            board=event.board,
            id=event.task,
            subject=event.subject,
            status=event.status,
            owner=event.owner,
            blocked_by=event.blocked_by,
            rank=event.rank,
            changed=at,
            usd=old.usd if old else 0.0,
            tokens=old.tokens if old else 0,
            moves=_moved(old, event, at),
        )
        self._table.put(key, row, offset)
        self._own(key, old, row)
        for blocker in row.blocked_by:
            self._waiting.setdefault((event.board, blocker), set()).add(key)
        touched = {row.owner, *(self._table.row(each).owner for each in self._waiting.get(key, ()))}
        return (touched | ({old.owner} if old else set())) - {""}

    def charge(self, row: TaskRow, usd: float, tokens: int, offset: int) -> None:
        charged = replace(row, usd=row.usd + usd, tokens=row.tokens + tokens)
        self._table.put((row.board, row.id), charged, offset)
        if (at_work := self._at_work.get(row.owner)) is not None and at_work.id == row.id:
            self._at_work[row.owner] = charged

    def _own(self, key: tuple[str, str], old: TaskRow | None, row: TaskRow) -> None:
        if old is not None and old.owner:
            self._owned.get(old.owner, set()).discard(key)
            at_work = self._at_work.get(old.owner)
            if at_work is not None and (at_work.board, at_work.id) == key:
                del self._at_work[old.owner]
        if row.owner and row.status != "deleted":
            self._owned.setdefault(row.owner, set()).add(key)
            if row.status == "in_progress":
                self._at_work[row.owner] = row


def _called(owner: str) -> str:
    return LEAD_NAME if owner == "lead" else owner


def _moved(old: TaskRow | None, event: TaskChanged, at: int) -> tuple[tuple[int, str, str], ...]:
    moves = () if old is None else old.moves
    if old is not None and (old.status, old.owner) == (event.status, event.owner):
        return moves
    return (*moves, (at, event.status, event.owner))[-_MOVES:]
