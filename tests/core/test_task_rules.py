"""Rules of the task board, checked against a simple implementation."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.core.errors import TaskUpdateRefused
from shoal.core.names import TaskId
from shoal.core.teams.tasks import (
    ATTEMPT_KEY,
    RANK_KEY,
    Task,
    TaskUpdate,
    apply_added_task_dependencies,
    apply_task_update,
    find_claim_refusal_reason,
    find_claimable_tasks,
    find_claimable_tasks_unblocked_by,
    find_open_blockers,
    is_legal_task_status_transition,
    sort_tasks_by_number,
    would_close_dependency_cycle,
)

SOME = settings(max_examples=60, deadline=None)
IDS = [str(n) for n in range(1, 7)]


@st.composite
def boards(draw: st.DrawFn, *, acyclic: bool = True) -> dict[str, Task]:
    """Draw tasks in any state that are blocked by each other and by deleted ones."""
    order = draw(st.permutations(IDS))
    board: dict[str, Task] = {}
    for at, ident in enumerate(order):
        before = order[:at] if acyclic else IDS
        blocked_by = draw(st.lists(st.sampled_from([*before, "99"]), unique=True, max_size=3))
        board[ident] = Task(
            id=ident,
            subject="",
            status=draw(st.sampled_from(["pending", "in_progress", "completed"])),
            owner=draw(st.sampled_from([None, None, "ann", "bob"])),
            blocked_by=tuple(blocked_by),
        )
    kept = draw(st.sets(st.sampled_from(IDS)))
    return {ident: task for ident, task in board.items() if ident in kept}


@pytest.mark.spec("TSK-04")
@SOME
@given(boards(acyclic=False))
def test_claimable_tasks_are_pending_unowned_and_unblocked(board: dict[str, Task]):
    wanted = []
    for number in range(1, 100):
        task = board.get(str(number))
        if task is None or task.status != "pending" or task.owner:
            continue
        if any(other in board and board[other].status != "completed" for other in task.blocked_by):
            continue
        wanted.append(task)
    assert find_claimable_tasks(board) == wanted


@SOME
@given(boards())
def test_anybody_may_claim_a_claimable_task(board: dict[str, Task]):
    free = {task.id for task in find_claimable_tasks(board)}
    for task in board.values():
        if task.owner is None and task.status == "pending":
            assert (find_claim_refusal_reason(task, board, by="cid") is None) == (task.id in free)


def compute_waits(board: dict[str, Task]) -> set[tuple[str, str]]:
    """Compute the transitive closure of `blocked_by`."""
    pairs = {(ident, up) for ident, task in board.items() for up in task.blocked_by}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


@pytest.mark.spec("TSK-03")
@SOME
@given(boards())
def test_a_dependency_closes_a_cycle_if_the_blocker_waits_for_the_blocked_task(
    board: dict[str, Task],
):
    pairs = compute_waits(board)
    for blocker, blocked in product(IDS, repeat=2):
        assert would_close_dependency_cycle(board, blocker, blocked) == (
            blocker == blocked or (blocker, blocked) in pairs
        )


@SOME
@given(boards(acyclic=False), st.sampled_from(IDS), st.sampled_from(IDS))
def test_the_cycle_check_terminates_on_an_existing_cycle(board: dict[str, Task], blocker: str, blocked: str):
    would_close_dependency_cycle(board, blocker, blocked)


@pytest.mark.spec("TSK-06")
@SOME
@given(boards(), st.sampled_from(IDS))
def test_completing_a_task_unblocks_tasks_that_waited_only_for_it(board: dict[str, Task], done: str):
    if done not in board or board[done].status == "completed":
        return
    after = {**board, done: replace(board[done], status="completed")}
    newly = [task for task in find_claimable_tasks(after) if task not in find_claimable_tasks(board)]
    assert find_claimable_tasks_unblocked_by(done, after) == newly


@pytest.mark.spec("TSK-05")
@pytest.mark.parametrize(("exists", "owned", "done", "blocked"), list(product([True, False], repeat=4)))
def test_claim_refusals_are_checked_in_order(exists, owned, done, blocked):
    blocker = Task(id="1", subject="")
    task = Task(
        id="2",
        subject="",
        owner="bob" if owned else None,
        status="completed" if done else "pending",
        blocked_by=("1",) if blocked else (),
    )
    reasons = [
        ("task_not_found", not exists),
        ("already_claimed", owned),
        ("already_resolved", done),
        ("blocked", blocked),
    ]
    wanted = next((reason for reason, holds in reasons if holds), None)
    board = {"1": blocker, "2": task}
    assert find_claim_refusal_reason(task if exists else None, board, by="ann") == wanted


def test_the_owner_may_claim_again_but_not_a_completed_task():
    held = Task(id="1", subject="", owner="ann", status="in_progress")
    assert find_claim_refusal_reason(held, {"1": held}, by="ann") is None
    assert find_claim_refusal_reason(replace(held, status="completed"), {}, by="ann") == "already_resolved"


@pytest.mark.spec("TSK-02")
def test_only_restarting_a_completed_task_is_illegal():
    states = ["pending", "in_progress", "completed"]
    illegal = [
        (old, new) for old, new in product(states, repeat=2) if not is_legal_task_status_transition(old, new)
    ]
    assert illegal == [("completed", "in_progress")]


def test_task_ids_are_sorted_numerically():
    tasks = [Task(id=ident, subject="") for ident in ("10", "9", "2", "100")]
    assert [task.id for task in sort_tasks_by_number(tasks)] == ["2", "9", "10", "100"]


def test_a_deleted_blocker_is_not_open():
    waiting = Task(id="3", subject="", blocked_by=("1", "2", "9"))
    board = {"1": Task(id="1", subject="", status="completed"), "2": Task(id="2", subject=""), "3": waiting}
    assert find_open_blockers(waiting, board) == ("2",)


def test_a_change_of_status_by_a_stale_attempt_is_refused():
    held = Task(id="1", subject="", owner="ann", status="in_progress", metadata={ATTEMPT_KEY: "a2"})
    with pytest.raises(TaskUpdateRefused, match="no longer held"):
        apply_task_update(held, TaskUpdate(status="completed", attempt="a1"))
    assert apply_task_update(held, TaskUpdate(status="completed", attempt="a2")).status == "completed"
    assert apply_task_update(held, TaskUpdate(subject="new", attempt="a1")).subject == "new"


@pytest.mark.spec("TSK-10")
def test_metadata_is_merged_and_none_deletes():
    task = Task(id="1", subject="", metadata={"a": 1, "b": 2, ATTEMPT_KEY: "a1"})
    after = apply_task_update(task, TaskUpdate(metadata={"a": None, "b": {"x": None}, ATTEMPT_KEY: "mine"}))
    # A pending task has no attempt.
    assert after.metadata == {"b": {"x": None}}


@pytest.mark.spec("TSK-03")
@SOME
@given(boards(), st.sampled_from(IDS), st.lists(st.sampled_from(IDS), max_size=3), st.sampled_from(IDS))
def test_dependencies_are_added_on_both_sides_or_not_at_all(
    board: dict[str, Task], task: str, blockers: list[str], blocked: str
):
    if task not in board:
        return
    change = TaskUpdate(add_blocked_by=tuple(blockers), add_blocks=(blocked,))
    try:
        after: dict[str, Task] = {**board, **apply_added_task_dependencies(board, task, change)}
    except TaskUpdateRefused:
        return
    for blocker in blockers:
        assert task in after[blocker].blocks
        assert blocker in after[task].blocked_by
    assert blocked in after[task].blocks
    assert task in after[blocked].blocked_by
    for ident, other in product(after, repeat=2):
        both = other in after[ident].blocked_by and would_close_dependency_cycle(after, ident, other)
        assert not (both and ident in after[other].blocked_by)


@pytest.mark.parametrize("rank", [10**400, -(10**400), float("inf"), float("nan"), "1", None, [1]])
def test_an_invalid_rank_is_ignored(rank: object) -> None:
    task = Task(id=TaskId("7"), subject="odd", metadata={RANK_KEY: rank})
    assert (task.rank, task.sort_key) == (None, (7, 7))
