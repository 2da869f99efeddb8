"""Tasks: their fields, the legal transitions, and the rules of claiming."""

from __future__ import annotations

import unicodedata
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Literal, TypeAlias, cast

from msgspec import UNSET, Struct, UnsetType, structs

from shoal.core.core_texts import format_core_notice
from shoal.core.errors import TaskUpdateRefused
from shoal.core.names import AgentName, TaskId
from shoal.core.teams.packed_task_map import PackedTaskMap

TaskStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
"""State of a task."""
ATTEMPT_KEY = "shoal:attempt"
"""Key in `metadata` of the attempt that holds a task; foreign readers ignore it."""
REFUSAL_KEY = "shoal:refusal"
"""Key in `metadata` of the reason why the runtime last refused to complete the task."""
RANK_KEY = "shoal:rank"
"""Key in `metadata` of the position that a person gave a task."""
_MAX_RANK = 1e300
"""A rank beyond it is ignored: programs may write anything into a task."""
_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Fillers of Hangul and the empty Braille pattern: letters and symbols without ink."""


class Task(Struct, frozen=True, kw_only=True):
    """A task on a board."""

    id: TaskId
    """Number of the task."""
    subject: str
    """What to do, in one line."""
    description: str = ""
    """Details."""
    active_form: str = ""
    """What the owner is doing, for user interfaces."""
    status: TaskStatus = "pending"
    """`pending`, `in_progress` or `completed`."""
    owner: AgentName | None = None
    """Member that does it; None if nobody has claimed it."""
    blocks: tuple[TaskId, ...] = ()
    """Tasks that wait for this one."""
    blocked_by: tuple[TaskId, ...] = ()
    """Tasks that must be completed first."""
    metadata: Mapping[str, Any] = {}
    """Other facts, such as the acceptance command."""

    @property
    def claim_attempt(self) -> str | None:
        """Attempt that holds it; a completion by any other attempt is stale."""
        value = self.metadata.get(ATTEMPT_KEY)
        return value if isinstance(value, str) else None

    @property
    def rank(self) -> float | None:
        """Position that a person gave it; tasks without one are ordered by number."""
        value = self.metadata.get(RANK_KEY)
        if value is None:
            return None
        return float(value) if isinstance(value, int | float) and abs(value) <= _MAX_RANK else None

    @property
    def sort_key(self) -> tuple[float, int]:
        """Sort key: of two claimable tasks, the lower one is claimed first."""
        number, rank = int(self.id), self.rank
        return (number if rank is None else rank, number)


def extract_stable_claim_attempt_part(attempt: str | None) -> str:
    """Return the part of an attempt id that stays when its owner continues in another process."""
    return "" if attempt is None else attempt.partition("-")[2]


class TaskDraft(Struct, frozen=True, kw_only=True):
    subject: str
    description: str
    active_form: str = ""
    metadata: Mapping[str, Any] = {}
    owner: AgentName | None = None
    blocked_by: tuple[TaskId, ...] = ()
    """Tasks that it waits for from the start. The caller adds the links of these with an update."""

    def to_task(self, task_id: TaskId) -> Task:
        """Return the new task; nobody can claim it before its owner and its blockers are set."""
        return Task(
            id=task_id,
            subject=self.subject,
            description=self.description,
            active_form=self.active_form,
            owner=self.owner,
            blocked_by=self.blocked_by,
            metadata=self.metadata,
        )


class TaskUpdate(Struct, frozen=True, kw_only=True):
    """Update of a task. Unset fields stay unchanged; a `metadata` key set to None is deleted."""

    subject: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    active_form: str | UnsetType = UNSET
    status: TaskStatus | Literal["deleted"] | UnsetType = UNSET
    owner: AgentName | UnsetType | None = UNSET
    add_blocks: tuple[TaskId, ...] = ()
    add_blocked_by: tuple[TaskId, ...] = ()
    metadata: Mapping[str, Any] = {}
    attempt: str | None = None
    """Attempt of the caller; a status change by a stale attempt is refused."""


ClaimRefusalReason: TypeAlias = Literal["task_not_found", "already_claimed", "already_resolved", "blocked"]


class TaskClaimResult(Struct, frozen=True, kw_only=True):
    """Result of claiming a task; pass `attempt` with later updates."""

    success: bool
    reason: ClaimRefusalReason | None = None
    task: Task | None = None
    attempt: str | None = None


def sort_tasks_by_number(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: int(task.id))


def find_open_blockers(task: Task, board: Mapping[TaskId, Task]) -> tuple[TaskId, ...]:
    """Return the blockers that are neither completed nor deleted."""
    if not task.blocked_by:
        return ()
    tasks = _select_unfinished(board)
    return tuple(
        blocker
        for blocker in task.blocked_by
        if (other := tasks.get(blocker)) is not None and other.status != "completed"
    )


def _select_unfinished(board: Mapping[TaskId, Task]) -> Mapping[TaskId, Task]:
    """Return all unfinished tasks, perhaps with others: it is slow to read completed ones."""
    # By its type: a check of the abstract class is slow, and each look at a task does it.
    return board.unfinished if type(board) is PackedTaskMap else board


def find_claimable_tasks(board: Mapping[TaskId, Task]) -> list[Task]:
    """Return the tasks that are pending, unowned and unblocked, in the order of their sort keys."""
    return sorted(_iter_claimable_tasks(board), key=lambda task: task.sort_key)


def has_claimable_task(board: Mapping[TaskId, Task]) -> bool:
    return next(_iter_claimable_tasks(board), None) is not None


def _iter_claimable_tasks(board: Mapping[TaskId, Task]) -> Iterator[Task]:
    for task in board.values():
        if task.status == "pending" and task.owner is None and not find_open_blockers(task, board):
            yield task


def find_claim_refusal_reason(
    task: Task | None, board: Mapping[TaskId, Task], *, by: AgentName
) -> ClaimRefusalReason | None:
    """Return why `by` may not claim it, in the protocol's order of checks; the owner may claim again."""
    if task is None:
        return "task_not_found"
    if task.owner is not None and task.owner != by:
        return "already_claimed"
    if task.status == "completed":
        return "already_resolved"
    return "blocked" if find_open_blockers(task, board) else None


def is_legal_task_status_transition(old: TaskStatus, new: TaskStatus) -> bool:
    """Return True if the transition is legal: from `completed` only back to `pending`, else any."""
    return not (old == "completed" and new == "in_progress")


def find_claimable_tasks_unblocked_by(done: TaskId, board: Mapping[TaskId, Task]) -> list[Task]:
    """Return the tasks that become claimable by completing `done`, which `board` has as completed."""
    return [task for task in find_claimable_tasks(board) if done in task.blocked_by]


def select_tasks_affected_by_completion(task: Task, board: Mapping[TaskId, Task]) -> dict[TaskId, Task]:
    """Return the completed task, the tasks it blocks, and their open blockers.

    This is enough to tell what its completion frees.
    """
    tasks = _select_unfinished(board)
    blocked_tasks = [other for each in task.blocks if (other := tasks.get(each)) is not None]
    related_ids = {
        *(other.id for other in blocked_tasks),
        *(blocker for other in blocked_tasks for blocker in other.blocked_by),
    }
    return {task.id: task} | {each: tasks[each] for each in related_ids - {task.id} if each in tasks}


def find_owned_tasks_unblocked_by(done: TaskId, board: Mapping[TaskId, Task]) -> list[Task]:
    """Return the owned tasks that can start now that `done` is completed."""
    return sort_tasks_by_number(
        task
        for task in board.values()
        if done in task.blocked_by
        and task.status == "pending"
        and task.owner is not None
        and not find_open_blockers(task, board)
    )


def would_close_dependency_cycle(board: Mapping[TaskId, Task], blocker: TaskId, blocked: TaskId) -> bool:
    """Return True if making `blocked` wait for `blocker` would create a dependency cycle."""
    pending, seen = [blocker], set[TaskId]()
    while pending:
        current = pending.pop()
        if current == blocked:
            return True
        if current not in seen and (task := board.get(current)) is not None:
            seen.add(current)
            pending.extend(task.blocked_by)
    return False


def _is_visible(character: str) -> bool:
    # Letters, numbers, punctuation and symbols; not spaces, control and format characters, and no marks,
    # which only change the character before them.
    return unicodedata.category(character)[0] in "LNPS" and character not in _BLANK_LETTERS


def refuse_blank_subject(subject: str | UnsetType) -> None:
    """Raise `TaskUpdateRefused` for a subject without a visible character."""
    if subject is not UNSET and not any(map(_is_visible, subject)):
        raise TaskUpdateRefused(format_core_notice("no_subject"))


def refuse_blocked_status(
    task: Task,
    change: TaskUpdate,
    board: Mapping[TaskId, Task],
    is_unreadable: Callable[[TaskId], bool] = lambda _: False,
) -> None:
    """Raise `TaskUpdateRefused` if the change starts or completes a task that waits for others.

    A blocker that `is_unreadable` counts as open.
    """
    if change.status not in ("in_progress", "completed") or change.status == task.status:
        return
    waiting = structs.replace(task, blocked_by=(*task.blocked_by, *change.add_blocked_by))
    blockers = [*find_open_blockers(waiting, board), *filter(is_unreadable, waiting.blocked_by)]
    if blockers:
        verb = "started" if change.status == "in_progress" else "completed"
        listing = ", ".join(f"#{blocker}" for blocker in dict.fromkeys(blockers))
        raise TaskUpdateRefused(format_core_notice("blocked_task", task=task.id, verb=verb, blockers=listing))


def refuse_blocked_claim(
    task: Task, added_blockers: tuple[TaskId, ...], board: Mapping[TaskId, Task]
) -> None:
    """Raise `TaskUpdateRefused` if an update would start a task and let it wait for others at once."""
    change = TaskUpdate(status="in_progress", add_blocked_by=added_blockers)
    refuse_blocked_status(task, change, board)


def is_same_claim(task: Task, claim: TaskClaimResult) -> bool:
    """Return True if the claim only confirmed that its owner held the task already."""
    mark = extract_stable_claim_attempt_part(task.claim_attempt)
    return bool(mark) and mark == extract_stable_claim_attempt_part(claim.attempt)


def apply_task_update(task: Task, change: TaskUpdate) -> Task:
    """Return the task after the change, except for its dependencies. Raises `TaskUpdateRefused`.

    The attempt that held it ends when its owner changes or it goes back to pending; a task put back without
    an owner has none.
    """
    if change.status is not UNSET and change.attempt not in (None, task.claim_attempt):
        raise TaskUpdateRefused(format_core_notice("lost_claim", task=task.id))
    refuse_blank_subject(change.subject)
    metadata = merge_task_metadata(task.metadata, change.metadata)
    changes = {
        name: value
        for name in ("subject", "description", "active_form", "status", "owner")
        if (value := getattr(change, name)) is not UNSET
    }
    status = changes.get("status", task.status)
    if not is_legal_task_status_transition(task.status, status):
        raise TaskUpdateRefused(format_core_notice("completed_task", task=task.id))
    if status == "pending" != task.status:
        changes.setdefault("owner", None)
    if status == "pending" or changes.get("owner", task.owner) != task.owner:
        metadata.pop(ATTEMPT_KEY, None)
    return structs.replace(task, **changes, metadata=metadata)


def merge_task_metadata(metadata: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge key by key; None deletes a key. The attempt that holds a task cannot be changed this way."""
    updates = {key: value for key, value in new.items() if key != ATTEMPT_KEY}
    deleted = {key for key, value in updates.items() if value is None}
    return {key: value for key, value in {**metadata, **updates}.items() if key not in deleted}


def apply_added_task_dependencies(
    board: Mapping[TaskId, Task], task: TaskId, change: TaskUpdate
) -> dict[TaskId, Task]:
    """Return the tasks that the new dependencies change, on both sides. Raises `TaskUpdateRefused`."""
    pairs = [(blocker, task) for blocker in change.add_blocked_by]
    pairs += [(task, blocked) for blocked in change.add_blocks]
    if not pairs:
        return {}
    unknown_ids = sorted(
        {end for pair in pairs for end in pair if end not in board}, key=lambda end: (len(end), end)
    )
    if unknown_ids:
        raise TaskUpdateRefused(format_core_notice("unknown_dependency", tasks=" or ".join(unknown_ids)))
    changed: dict[TaskId, Task] = {}
    updated_board = overlay_tasks_on_board(board, changed)
    for blocker, blocked in pairs:
        if blocker == blocked:
            raise TaskUpdateRefused(format_core_notice("self_dependency", task=task))
        if would_close_dependency_cycle(updated_board, blocker, blocked):
            raise TaskUpdateRefused(format_core_notice("dependency_cycle", blocked=blocked, blocker=blocker))
        if blocker not in updated_board[blocked].blocked_by:
            changed[blocked] = _add_task_dependency(updated_board[blocked], "blocked_by", blocker)
        if blocked not in updated_board[blocker].blocks:
            changed[blocker] = _add_task_dependency(updated_board[blocker], "blocks", blocked)
    return changed


def overlay_tasks_on_board(board: Mapping[TaskId, Task], other: dict[TaskId, Task]) -> Mapping[TaskId, Task]:
    """Return the board with the other tasks on top, without copying it."""
    return ChainMap(other, cast("MutableMapping[TaskId, Task]", board))


def _add_task_dependency(task: Task, side: Literal["blocks", "blocked_by"], other: TaskId) -> Task:
    existing: tuple[TaskId, ...] = getattr(task, side)
    return structs.replace(task, **{side: (*existing, other)})
