from __future__ import annotations

import gc
import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from shoal.core.names import TaskId
from shoal.core.teams.packed_task_map import PackedTaskMap
from shoal.core.teams.tasks import Task

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


def make_task(number: int, status: str = "completed", **more: Any) -> Task:
    return Task(id=TaskId(str(number)), subject=f"task {number}", status=status, **more)  # type: ignore[arg-type]


def make_completed_map(count: int) -> PackedTaskMap[Task]:
    tasks = PackedTaskMap(Task)
    for number in range(1, count + 1):
        tasks[TaskId(str(number))] = make_task(number)
    return tasks


@given(_STEPS, some.integers(0, 400))
def test_a_packed_map_holds_what_a_dict_would(steps: list[tuple[int, str]], first: int) -> None:
    tasks = make_completed_map(first)
    expected = {TaskId(str(number)): make_task(number) for number in range(1, first + 1)}
    for at, (number, status) in enumerate(steps):
        ident = TaskId(str(number))
        if status == "gone":
            assert tasks.pop(ident, None) == expected.pop(ident, None)
        else:
            tasks[ident] = expected[ident] = make_task(number, status, description=f"step {at}")
    assert dict(tasks) == expected
    assert len(tasks) == len(expected)
    assert tasks.list_values_by_task_number() == [expected[each] for each in sorted(expected, key=int)]
    assert tasks.unfinished == {each: kept for each, kept in expected.items() if kept.status != "completed"}
    for number in range(402):
        ident = TaskId(str(number))
        assert (ident in tasks) == (ident in expected)
        assert tasks.get(ident) == expected.get(ident)


@given(some.dictionaries(some.text(), _VALUES, max_size=4))
def test_any_task_metadata_survives_packing(metadata: dict[str, Any]) -> None:
    tasks = PackedTaskMap(Task)
    tasks[TaskId("7")] = odd = make_task(7, metadata=metadata)
    for number in range(10, 400):
        tasks[TaskId(str(number))] = make_task(number)
    assert repr(tasks[TaskId("7")]) == repr(odd)


def test_unpackable_tasks_are_rarely_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Task] = []
    come_back = PackedTaskMap._survive_packing

    def record_attempt(tasks: PackedTaskMap[Task], values: dict[int, Task]) -> bool:
        tries.extend(values.values())
        return come_back(tasks, values)

    monkeypatch.setattr(PackedTaskMap, "_survive_packing", record_attempt)
    tasks = PackedTaskMap(Task)
    for number in range(1, 1_001):
        tasks[TaskId(str(number))] = make_task(number, metadata={"large": 10**30, "none": math.inf})
    assert len(tries) < 2_000
    assert len(tasks) == 1_000
    assert tasks[TaskId("500")].metadata["large"] == 10**30


@pytest.mark.parametrize("ident", ["", "0", "007", "x", "٧", " 7", "7 ", "-7", "7_0", "7.json"])
def test_a_malformed_task_id_is_not_found(ident: str) -> None:
    tasks = make_completed_map(300)
    assert ident not in tasks
    assert tasks.get(TaskId(ident)) is None
    with pytest.raises(KeyError):
        del tasks[TaskId(ident)]


def test_a_completed_task_uses_less_than_a_tenth_of_the_memory_of_an_open_one() -> None:
    used = {status: _measure_bytes_per_task(status) for status in ("in_progress", "completed")}
    assert used["completed"] < 100
    assert used["completed"] < used["in_progress"] / 10


def _measure_bytes_per_task(status: str, count: int = 5_000) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tasks = PackedTaskMap(Task)
        for number in range(1, count + 1):
            tasks[TaskId(str(number))] = make_task(
                number, status, description="as always", metadata={"shoal:attempt": f"a1b2c3-{number}"}
            )
        return (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
        del tasks
