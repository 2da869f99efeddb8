"""Tasks: their fields, the legal transitions, and the rules of claiming."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Literal, TypeAlias, cast

from msgspec import UNSET, Struct, UnsetType, structs

from shoal.core.errors import TaskRefused
from shoal.core.names import AgentName, TaskId

Status: TypeAlias = Literal["pending", "in_progress", "completed"]
ATTEMPT = "shoal:attempt"
"""Key in `metadata` of the attempt that holds a task; foreign readers ignore it."""


RANK = "shoal:rank"
"""Key in `metadata` of the position that a person gave a task."""
_FARTHEST = 1e300
"""A rank beyond it is ignored: programs may write anything into a task."""


class Task(Struct, frozen=True, kw_only=True):
    id: TaskId
    subject: str
    description: str = ""
    active_form: str = ""
    status: Status = "pending"
    owner: AgentName | None = None
    blocks: tuple[TaskId, ...] = ()
    blocked_by: tuple[TaskId, ...] = ()
    metadata: Mapping[str, Any] = {}

    @property
    def attempt(self) -> str | None:
        """Attempt that holds it; a completion by any other is stale."""
        value = self.metadata.get(ATTEMPT)
        return value if isinstance(value, str) else None

    @property
    def rank(self) -> float | None:
        """Position that a person gave it; tasks without one are ordered by number."""
        value = self.metadata.get(RANK)
        return float(value) if isinstance(value, int | float) and abs(value) <= _FARTHEST else None

    @property
    def place(self) -> tuple[float, int]:
        """Sort key: of two claimable tasks, the lower one is claimed first."""
        number, rank = int(self.id), self.rank
        return (number if rank is None else rank, number)


def mark_of(attempt: str | None) -> str:
    """Return the part of an attempt id that stays when its owner continues in another process."""
    return "" if attempt is None else attempt.partition("-")[2]


class Draft(Struct, frozen=True, kw_only=True):
    subject: str
    description: str
    active_form: str = ""
    metadata: Mapping[str, Any] = {}


class Change(Struct, frozen=True, kw_only=True):
    """Update of a task. Unset fields stay unchanged; a `metadata` key set to None is deleted."""

    subject: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    active_form: str | UnsetType = UNSET
    status: Status | Literal["deleted"] | UnsetType = UNSET
    owner: AgentName | UnsetType | None = UNSET
    add_blocks: tuple[TaskId, ...] = ()
    add_blocked_by: tuple[TaskId, ...] = ()
    metadata: Mapping[str, Any] = {}
    attempt: str | None = None
    """Attempt of the caller; a status change by a stale attempt is refused."""


ClaimRefusal: TypeAlias = Literal["task_not_found", "already_claimed", "already_resolved", "blocked"]


class Claim(Struct, frozen=True, kw_only=True):
    """Result of claiming a task; pass `attempt` with later updates."""

    success: bool
    reason: ClaimRefusal | None = None
    task: Task | None = None
    attempt: str | None = None


def by_number(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: int(task.id))


def open_blockers(task: Task, board: Mapping[TaskId, Task]) -> tuple[TaskId, ...]:
    """Return the blockers that are neither completed nor deleted."""
    return tuple(
        blocker
        for blocker in task.blocked_by
        if (other := board.get(blocker)) is not None and other.status != "completed"
    )


def claimable(board: Mapping[TaskId, Task]) -> list[Task]:
    """Return the tasks that are pending, unowned and unblocked, in the order of their sort keys."""
    return sorted(_claimable(board), key=lambda task: task.place)


def any_claimable(board: Mapping[TaskId, Task]) -> bool:
    return next(_claimable(board), None) is not None


def _claimable(board: Mapping[TaskId, Task]) -> Iterator[Task]:
    for task in board.values():
        if task.status == "pending" and task.owner is None and not open_blockers(task, board):
            yield task


def claim_refusal(task: Task | None, board: Mapping[TaskId, Task], *, by: AgentName) -> ClaimRefusal | None:
    """Return why `by` may not claim it, in the protocol's order of checks; the owner may claim again."""
    if task is None:
        return "task_not_found"
    if task.owner is not None and task.owner != by:
        return "already_claimed"
    if task.status == "completed":
        return "already_resolved"
    return "blocked" if open_blockers(task, board) else None


def is_legal(old: Status, new: Status) -> bool:
    """Return True if the transition is legal: from `completed` only back to `pending`, else any."""
    return not (old == "completed" and new == "in_progress")


def unblocked_by(done: TaskId, board: Mapping[TaskId, Task]) -> list[Task]:
    """Return the tasks that become claimable by completing `done`, which `board` has as completed."""
    return [task for task in claimable(board) if done in task.blocked_by]


def around(task: Task, board: Mapping[TaskId, Task]) -> dict[TaskId, Task]:
    """Return the task, the tasks it blocks, and their blockers: enough to tell what its completion frees."""
    waiting = [other for each in task.blocks if (other := board.get(each)) is not None]
    near = {task.id, *task.blocks, *(blocker for other in waiting for blocker in other.blocked_by)}
    return {each: board[each] for each in near if each in board}


def begun_by(done: TaskId, board: Mapping[TaskId, Task]) -> list[Task]:
    """Return the owned tasks that can start now that `done` is completed."""
    return by_number(
        task
        for task in board.values()
        if done in task.blocked_by
        and task.status == "pending"
        and task.owner is not None
        and not open_blockers(task, board)
    )


def closes_cycle(board: Mapping[TaskId, Task], blocker: TaskId, blocked: TaskId) -> bool:
    """Return True if `blocked` waiting for `blocker` would close a dependency cycle."""
    waiting, seen = [blocker], set[TaskId]()
    while waiting:
        at = waiting.pop()
        if at == blocked:
            return True
        if at not in seen and (task := board.get(at)) is not None:
            seen.add(at)
            waiting.extend(task.blocked_by)
    return False


def changed(task: Task, change: Change) -> Task:
    """Return the task after the change, except for its dependencies. Raises `TaskUpdateRefused`.

    The attempt that held it ends when its owner changes or it goes back to pending; a task put back without
    an owner has none.
    """
    if change.status is not UNSET and change.attempt not in (None, task.attempt):
        raise TaskRefused(
            f"Task {task.id} is no longer held by this attempt: it was given back or taken over since. "
            "Look at it again before you go on with it."
        )
    metadata = merged(task.metadata, change.metadata)
    new = {
        name: value
        for name in ("subject", "description", "active_form", "status", "owner")
        if (value := getattr(change, name)) is not UNSET
    }
    status = new.get("status", task.status)
    if not is_legal(task.status, status):
        raise TaskRefused(f"Task {task.id} is completed. To work on it again, set it back to pending first.")
    if status == "pending" != task.status:
        new.setdefault("owner", None)
    if status == "pending" or new.get("owner", task.owner) != task.owner:
        metadata.pop(ATTEMPT, None)
    return structs.replace(task, **new, metadata=metadata)


def merged(metadata: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge key by key; None deletes a key. The attempt that holds a task cannot be changed this way."""
    given = {key: value for key, value in new.items() if key != ATTEMPT}
    deleted = {key for key, value in given.items() if value is None}
    return {key: value for key, value in {**metadata, **given}.items() if key not in deleted}


def with_dependencies(board: Mapping[TaskId, Task], task: TaskId, change: Change) -> dict[TaskId, Task]:
    """Return the tasks that the new dependencies change, on both sides. Raises `TaskUpdateRefused`."""
    pairs = [(blocker, task) for blocker in change.add_blocked_by]
    pairs += [(task, blocked) for blocked in change.add_blocks]
    if not pairs:
        return {}
    unknown = sorted(
        {end for pair in pairs for end in pair if end not in board}, key=lambda end: (len(end), end)
    )
    if unknown:
        raise TaskRefused(f"There is no task {', '.join(unknown)}, so nothing can wait for it or block it.")
    changed: dict[TaskId, Task] = {}
    after = laid_over(board, changed)
    for blocker, blocked in pairs:
        if blocker == blocked:
            raise TaskRefused(f"Task {task} cannot wait for itself.")
        if closes_cycle(after, blocker, blocked):
            raise TaskRefused(
                f"Task {blocked} cannot wait for task {blocker}, because {blocker} already waits for "
                f"{blocked}: both would wait forever."
            )
        if blocker not in after[blocked].blocked_by:
            changed[blocked] = _with(after[blocked], "blocked_by", blocker)
        if blocked not in after[blocker].blocks:
            changed[blocker] = _with(after[blocker], "blocks", blocked)
    return changed


def laid_over(board: Mapping[TaskId, Task], other: dict[TaskId, Task]) -> Mapping[TaskId, Task]:
    """Return the board with the other tasks on top, without copying it."""
    return ChainMap(other, cast("MutableMapping[TaskId, Task]", board))


def _with(task: Task, side: Literal["blocks", "blocked_by"], other: TaskId) -> Task:
    there: tuple[TaskId, ...] = getattr(task, side)
    return structs.replace(task, **{side: (*there, other)})
