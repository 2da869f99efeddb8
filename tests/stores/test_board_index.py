"""The index of a board after any sequence of changes, compared with a search through all its tasks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.core.names import AgentName, TaskId
from shoal.core.teams.tasks import RANK_KEY, Task
from shoal.stores.files.board.board_index import TaskBoardIndex

IDS = [TaskId(str(number)) for number in range(1, 6)]
LINKS = st.lists(st.sampled_from([*IDS, TaskId("99")]), unique=True, max_size=3).map(tuple)
TASKS = st.builds(
    lambda ident, status, owner, rank, blocked_by, blocks: Task(
        id=ident,
        subject="",
        status=status,
        owner=owner,
        metadata={} if rank is None else {RANK_KEY: rank},
        blocked_by=tuple(each for each in blocked_by if each != ident),
        blocks=tuple(each for each in blocks if each != ident),
    ),
    st.sampled_from(IDS),
    st.sampled_from(["pending", "pending", "in_progress", "completed"]),
    st.sampled_from([None, None, AgentName("ann")]),
    st.none() | st.integers(0, 6),
    LINKS,
    LINKS,
)
CHANGES = st.lists(TASKS | st.sampled_from(IDS), max_size=12)
SOME = settings(max_examples=40, deadline=None)


def apply_change(index: TaskBoardIndex, board: dict[TaskId, Task], change: Task | str) -> None:
    if isinstance(change, Task):
        index.put_task(change)
        board[change.id] = change
    else:
        index.drop_task(TaskId(change))
        board.pop(TaskId(change), None)


def list_claimable(board: dict[TaskId, Task]) -> list[TaskId]:
    unfinished = {ident for ident, task in board.items() if task.status != "completed"}
    claimable = [
        task
        for task in board.values()
        if task.status == "pending" and task.owner is None and not unfinished.intersection(task.blocked_by)
    ]
    return [task.id for task in sorted(claimable, key=lambda task: task.sort_key)]


def find_one_sided(board: dict[TaskId, Task], *, of_unfinished: bool = False) -> set[TaskId]:
    """Return the tasks that a repair must change, or that name a task that is missing."""
    found: set[TaskId] = set()
    for task in board.values():
        for blocker in task.blocked_by:
            if blocker not in board:
                found.add(task.id)
            elif task.id not in board[blocker].blocks and not (of_unfinished and task.status == "completed"):
                found.add(blocker)
        if any(other not in board for other in task.blocks):
            found.add(task.id)
    return found


@SOME
@given(CHANGES, st.booleans())
def test_claimable_tasks_are_found_after_any_change(changes: list[Task | str], is_checked: bool) -> None:
    index, board = TaskBoardIndex(), dict[TaskId, Task]()
    assert index.take_changed_ids() is None
    for change in changes:
        before = dict(board)
        apply_change(index, board, change)
        if is_checked:
            index.record_one_sided_dependencies()
        assert list(index.iterate_claimable_ids()) == list_claimable(board)
        assert dict(index.tasks) == board
        assert index.list_sorted_tasks() == tuple(board[each] for each in sorted(board, key=int))
        unfinished = {ident: task for ident, task in board.items() if task.status != "completed"}
        assert dict(index.unfinished_tasks) == unfinished
        assert index.list_unfinished() == [unfinished[each] for each in sorted(unfinished, key=int)]
        assert index.in_progress == {each for each, task in board.items() if task.status == "in_progress"}
        changed = {each for each in IDS if before.get(each) != board.get(each)}
        assert index.take_changed_ids() == changed


@SOME
@given(CHANGES)
def test_every_one_sided_dependency_is_found(changes: list[Task | str]) -> None:
    """Whether the index looks after every change or only at the end."""
    index, later, board = TaskBoardIndex(), TaskBoardIndex(), dict[TaskId, Task]()
    for change in changes:
        apply_change(index, board, change)
        apply_change(later, board, change)
        index.record_one_sided_dependencies()
        assert index.inconsistent >= find_one_sided(board)
        assert index.inconsistent <= board.keys()
    later.record_one_sided_dependencies()
    assert later.inconsistent >= find_one_sided(board)
    fresh = TaskBoardIndex()
    for task in board.values():
        fresh.put_task(task)
    fresh.record_one_sided_dependencies()
    assert fresh.inconsistent == find_one_sided(board)


@SOME
@given(CHANGES, CHANGES)
def test_repaired_dependencies_are_not_reported_again(
    before: list[Task | str], after: list[Task | str]
) -> None:
    """A repair writes both sides, and the index forgets what was wrong; later changes are judged anew."""
    index, board = TaskBoardIndex(), dict[TaskId, Task]()
    for change in before:
        apply_change(index, board, change)
    index.record_one_sided_dependencies()
    for ident in sorted(board, key=int):
        task = board[ident]
        blocked_by = tuple(each for each in task.blocked_by if each in board)
        blocks = tuple(other for other in board if ident in board[other].blocked_by)
        apply_change(index, board, replace(task, blocked_by=blocked_by, blocks=blocks))
    index.inconsistent.clear()
    index.record_one_sided_dependencies()
    assert index.inconsistent == set()
    for change in after:
        apply_change(index, board, change)
        index.record_one_sided_dependencies()
        # A completed task that was found on both sides is forgotten: it blocks nothing and waits for nothing.
        assert index.inconsistent >= find_one_sided(board, of_unfinished=True)
        assert index.inconsistent <= board.keys()


@SOME
@given(CHANGES, CHANGES)
def test_a_cleared_index_is_like_a_new_one(before: list[Task | str], after: list[Task | str]) -> None:
    index, board = TaskBoardIndex(), dict[TaskId, Task]()
    for change in before:
        apply_change(index, board, change)
    index.take_changed_ids()
    index.clear()
    assert not index.tasks
    assert index.take_changed_ids() == set(board)
    new, rebuilt = TaskBoardIndex(), dict[TaskId, Task]()
    for change in after:
        apply_change(index, rebuilt, change)
        new_board = dict(rebuilt)
        apply_change(new, new_board, change)
    assert list(index.iterate_claimable_ids()) == list(new.iterate_claimable_ids())
    assert index.inconsistent == new.inconsistent
    unasked = TaskBoardIndex()
    unasked.clear()
    assert unasked.take_changed_ids() is None
