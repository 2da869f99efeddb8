"""Tasks: what they hold, which moves are legal, who may claim which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from shoal.core.names import AgentName, TaskId

Status: TypeAlias = Literal["pending", "in_progress", "completed"]
ATTEMPT = "shoal:attempt"
"""The key in `metadata` of the attempt that holds a task; foreign readers pass over it."""


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
        """Which attempt holds it; a completion by any other is stale."""
        value = self.metadata.get(ATTEMPT)
        return value if isinstance(value, str) else None


class Draft(Struct, frozen=True, kw_only=True):
    subject: str
    description: str
    active_form: str = ""
    metadata: Mapping[str, Any] = {}


class Change(Struct, frozen=True, kw_only=True):
    """What is unset stays as it is. In `metadata` a key given as None is deleted."""

    subject: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    active_form: str | UnsetType = UNSET
    status: Status | Literal["deleted"] | UnsetType = UNSET
    owner: AgentName | UnsetType | None = UNSET
    add_blocks: tuple[TaskId, ...] = ()
    add_blocked_by: tuple[TaskId, ...] = ()
    metadata: Mapping[str, Any] = {}
    attempt: str | None = None
    """The attempt the caller works under; a change of status by a stale one is refused."""


ClaimRefusal: TypeAlias = Literal["task_not_found", "already_claimed", "already_resolved", "blocked"]


class Claim(Struct, frozen=True, kw_only=True):
    """The outcome of an attempt to claim; `attempt` is to be given with later changes."""

    success: bool
    reason: ClaimRefusal | None = None
    task: Task | None = None
    attempt: str | None = None


def by_number(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: int(task.id))


def open_blockers(task: Task, board: Mapping[TaskId, Task]) -> tuple[TaskId, ...]:
    """What it still waits for: blockers that are completed, or gone, hold nothing up."""
    return tuple(
        blocker
        for blocker in task.blocked_by
        if (other := board.get(blocker)) is not None and other.status != "completed"
    )


def claimable(board: Mapping[TaskId, Task]) -> list[Task]:
    """Pending, without owner, waiting for nothing; lower ids first, as numbers."""
    return by_number(
        task
        for task in board.values()
        if task.status == "pending" and task.owner is None and not open_blockers(task, board)
    )


def claim_refusal(task: Task | None, board: Mapping[TaskId, Task], *, by: AgentName) -> ClaimRefusal | None:
    """Why `by` may not claim it, checked in the order the protocol names; the same owner may claim again."""
    if task is None:
        return "task_not_found"
    if task.owner is not None and task.owner != by:
        return "already_claimed"
    if task.status == "completed":
        return "already_resolved"
    return "blocked" if open_blockers(task, board) else None


def is_legal(old: Status, new: Status) -> bool:
    """Every move between the three states is, but from `completed` only reopening to `pending`."""
    return not (old == "completed" and new == "in_progress")


def unblocked_by(done: TaskId, board: Mapping[TaskId, Task]) -> list[Task]:
    """The tasks that become claimable when `done` is completed; `board` has it completed already."""
    return [task for task in claimable(board) if done in task.blocked_by]


def closes_cycle(board: Mapping[TaskId, Task], blocker: TaskId, blocked: TaskId) -> bool:
    """Whether `blocked` waiting for `blocker` would make tasks wait for each other."""
    waiting, seen = [blocker], set[TaskId]()
    while waiting:
        at = waiting.pop()
        if at == blocked:
            return True
        if at not in seen and (task := board.get(at)) is not None:
            seen.add(at)
            waiting.extend(task.blocked_by)
    return False
