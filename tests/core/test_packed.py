from __future__ import annotations

import gc
import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from shoal.core.names import TaskId
from shoal.core.packed import ByTask
from shoal.core.tasks import Task

_VALUES = some.recursive(
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.text(some.characters(codec=None, exclude_categories=())),
    lambda each: some.lists(each, max_size=3) | some.dictionaries(some.text(), each, max_size=3),
    max_leaves=5,
)
_STEPS = some.lists(
    some.tuples(
        some.integers(1, 400), some.sampled_from(["pending", "in_progress", "completed", "completed", "gone"])
    ),
    max_size=60,
)


def task(number: int, status: str = "completed", **more: Any) -> Task:
    return Task(id=TaskId(str(number)), subject=f"task {number}", status=status, **more)  # type: ignore[arg-type]


def done(count: int) -> ByTask[Task]:
    tasks = ByTask(Task)
    for number in range(1, count + 1):
        tasks[TaskId(str(number))] = task(number)
    return tasks


@given(_STEPS, some.integers(0, 400))
def test_it_holds_what_a_dict_would(steps: list[tuple[int, str]], first: int) -> None:
    tasks = done(first)
    expected = {TaskId(str(number)): task(number) for number in range(1, first + 1)}
    for at, (number, status) in enumerate(steps):
        ident = TaskId(str(number))
        if status == "gone":
            assert tasks.pop(ident, None) == expected.pop(ident, None)
        else:
            tasks[ident] = expected[ident] = task(number, status, description=f"step {at}")
    assert dict(tasks) == expected
    assert len(tasks) == len(expected)
    assert tasks.by_number() == [expected[each] for each in sorted(expected, key=int)]
    assert tasks.open == {each: kept for each, kept in expected.items() if kept.status != "completed"}
    for number in range(402):
        ident = TaskId(str(number))
        assert (ident in tasks) == (ident in expected)
        assert tasks.get(ident) == expected.get(ident)


@given(some.dictionaries(some.text(), _VALUES, max_size=4))
def test_whatever_a_program_writes_into_a_task_comes_back_as_it_was(metadata: dict[str, Any]) -> None:
    tasks = ByTask(Task)
    tasks[TaskId("7")] = odd = task(7, metadata=metadata)
    for number in range(10, 400):
        tasks[TaskId(str(number))] = task(number)
    assert repr(tasks[TaskId("7")]) == repr(odd)


def test_many_that_cannot_be_packed_are_tried_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Task] = []
    comes_back = ByTask._comes_back

    def tried(tasks: ByTask[Task], value: Task) -> bool:
        tries.append(value)
        return comes_back(tasks, value)

    monkeypatch.setattr(ByTask, "_comes_back", tried)
    tasks = ByTask(Task)
    for number in range(1, 1_001):
        tasks[TaskId(str(number))] = task(number, metadata={"large": 10**30, "none": math.inf})
    assert len(tries) < 2_000
    assert len(tasks) == 1_000
    assert tasks[TaskId("500")].metadata["large"] == 10**30


@pytest.mark.parametrize("ident", ["", "0", "007", "x", "٧", " 7", "7 ", "-7", "7_0", "7.json"])
def test_what_only_looks_like_an_id_is_none(ident: str) -> None:
    tasks = done(300)
    assert ident not in tasks
    assert tasks.get(TaskId(ident)) is None
    with pytest.raises(KeyError):
        del tasks[TaskId(ident)]


def test_a_completed_task_takes_less_than_a_tenth_of_what_an_open_one_does() -> None:
    used = {status: _bytes_each(status) for status in ("in_progress", "completed")}
    assert used["completed"] < 100
    assert used["completed"] < used["in_progress"] / 10


def _bytes_each(status: str, count: int = 5_000) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tasks = ByTask(Task)
        for number in range(1, count + 1):
            tasks[TaskId(str(number))] = task(
                number, status, description="as always", metadata={"shoal:attempt": f"a1b2c3-{number}"}
            )
        return (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
        del tasks
