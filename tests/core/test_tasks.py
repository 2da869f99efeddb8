"""The rules of the task board, against what a slow and simple reading of them says."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.core.errors import TaskRefused
from shoal.core.names import TaskId
from shoal.core.tasks import (
    ATTEMPT,
    RANK,
    Change,
    Task,
    by_number,
    changed,
    claim_refusal,
    claimable,
    closes_cycle,
    is_legal,
    open_blockers,
    unblocked_by,
    with_dependencies,
)

SOME = settings(max_examples=60, deadline=None)
IDS = [str(n) for n in range(1, 7)]


@st.composite
def boards(draw: st.DrawFn, *, acyclic: bool = True) -> dict[str, Task]:
    """Tasks that wait for each other (and for some that are gone), in any states."""
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
def test_claimable_is_what_is_pending_free_and_waits_for_nothing_unfinished(board: dict[str, Task]):
    wanted = []
    for number in range(1, 100):
        task = board.get(str(number))
        if task is None or task.status != "pending" or task.owner:
            continue
        if any(other in board and board[other].status != "completed" for other in task.blocked_by):
            continue
        wanted.append(task)
    assert claimable(board) == wanted


@SOME
@given(boards())
def test_who_may_claim_a_claimable_task_is_anybody(board: dict[str, Task]):
    free = {task.id for task in claimable(board)}
    for task in board.values():
        if task.owner is None and task.status == "pending":
            assert (claim_refusal(task, board, by="cid") is None) == (task.id in free)


def waits(board: dict[str, Task]) -> set[tuple[str, str]]:
    """Who waits for whom, directly or through others, pair by pair until nothing is new."""
    pairs = {(ident, up) for ident, task in board.items() for up in task.blocked_by}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


@pytest.mark.spec("TSK-03")
@SOME
@given(boards())
def test_a_dependency_closes_a_cycle_when_the_blocker_already_waits_for_the_blocked(
    board: dict[str, Task],
):
    pairs = waits(board)
    for blocker, blocked in product(IDS, repeat=2):
        assert closes_cycle(board, blocker, blocked) == (blocker == blocked or (blocker, blocked) in pairs)


@SOME
@given(boards(acyclic=False), st.sampled_from(IDS), st.sampled_from(IDS))
def test_looking_for_cycles_ends_also_where_there_is_one_already(
    board: dict[str, Task], blocker: str, blocked: str
):
    closes_cycle(board, blocker, blocked)


@pytest.mark.spec("TSK-06")
@SOME
@given(boards(), st.sampled_from(IDS))
def test_completing_a_task_frees_what_waited_for_it_last(board: dict[str, Task], done: str):
    if done not in board or board[done].status == "completed":
        return
    after = {**board, done: replace(board[done], status="completed")}
    newly = [task for task in claimable(after) if task not in claimable(board)]
    assert unblocked_by(done, after) == newly


@pytest.mark.spec("TSK-05")
@pytest.mark.parametrize(("exists", "owned", "done", "blocked"), list(product([True, False], repeat=4)))
def test_the_reasons_to_refuse_a_claim_come_in_their_order(exists, owned, done, blocked):
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
    assert claim_refusal(task if exists else None, board, by="ann") == wanted


def test_the_owner_may_claim_again_but_not_what_is_done():
    held = Task(id="1", subject="", owner="ann", status="in_progress")
    assert claim_refusal(held, {"1": held}, by="ann") is None
    assert claim_refusal(replace(held, status="completed"), {}, by="ann") == "already_resolved"


@pytest.mark.spec("TSK-02")
def test_only_beginning_what_is_completed_is_illegal():
    states = ["pending", "in_progress", "completed"]
    illegal = [(old, new) for old, new in product(states, repeat=2) if not is_legal(old, new)]
    assert illegal == [("completed", "in_progress")]


def test_numbers_are_ordered_as_numbers():
    tasks = [Task(id=ident, subject="") for ident in ("10", "9", "2", "100")]
    assert [task.id for task in by_number(tasks)] == ["2", "9", "10", "100"]


def test_a_blocker_that_is_gone_is_not_open():
    waiting = Task(id="3", subject="", blocked_by=("1", "2", "9"))
    board = {"1": Task(id="1", subject="", status="completed"), "2": Task(id="2", subject=""), "3": waiting}
    assert open_blockers(waiting, board) == ("2",)


def test_a_change_of_status_by_a_stale_attempt_is_refused():
    held = Task(id="1", subject="", owner="ann", status="in_progress", metadata={ATTEMPT: "a2"})
    with pytest.raises(TaskRefused, match="no longer held"):
        changed(held, Change(status="completed", attempt="a1"))
    assert changed(held, Change(status="completed", attempt="a2")).status == "completed"
    assert changed(held, Change(subject="new", attempt="a1")).subject == "new"


@pytest.mark.spec("TSK-10")
def test_metadata_is_merged_and_none_deletes():
    task = Task(id="1", subject="", metadata={"a": 1, "b": 2, ATTEMPT: "a1"})
    after = changed(task, Change(metadata={"a": None, "b": {"x": None}, ATTEMPT: "mine"}))
    # A task that is pending is held by nobody.
    assert after.metadata == {"b": {"x": None}}


@pytest.mark.spec("TSK-03")
@SOME
@given(boards(), st.sampled_from(IDS), st.lists(st.sampled_from(IDS), max_size=3), st.sampled_from(IDS))
def test_dependencies_are_added_on_both_sides_or_not_at_all(
    board: dict[str, Task], task: str, blockers: list[str], blocked: str
):
    if task not in board:
        return
    change = Change(add_blocked_by=tuple(blockers), add_blocks=(blocked,))
    try:
        after: dict[str, Task] = {**board, **with_dependencies(board, task, change)}
    except TaskRefused:
        return
    for blocker in blockers:
        assert task in after[blocker].blocks
        assert blocker in after[task].blocked_by
    assert blocked in after[task].blocks
    assert task in after[blocked].blocked_by
    for ident, other in product(after, repeat=2):
        both = other in after[ident].blocked_by and closes_cycle(after, ident, other)
        assert not (both and ident in after[other].blocked_by)


@pytest.mark.parametrize("rank", [10**400, -(10**400), float("inf"), float("nan"), "1", None, [1]])
def test_a_rank_that_is_none_leaves_a_task_in_its_place(rank: object) -> None:
    task = Task(id=TaskId("7"), subject="odd", metadata={RANK: rank})
    assert (task.rank, task.place) == (None, (7, 7))
