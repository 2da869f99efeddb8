"""Contract of every task board: ids, status changes, dependencies, metadata."""

from __future__ import annotations

from typing import Literal

from shoal.core.errors import BadName, TaskRefused
from shoal.core.names import AgentName, TaskId
from shoal.core.record import TaskBoard
from shoal.core.tasks import ATTEMPT, Change, Draft, Task
from shoal.testing.contracts.rules import Doors, Rules, opened, refused, together

RULES = Rules()
ANN, BOB = AgentName("ann"), AgentName("bob")


async def created(board: TaskBoard, count: int) -> list[TaskId]:
    return [(await board.create(Draft(subject=f"task {n}", description=""))).id for n in range(count)]


async def found(board: TaskBoard, task: TaskId) -> Task:
    there = await board.get(task)
    assert there is not None
    return there


async def moved(
    board: TaskBoard, task: TaskId, status: Literal["pending", "in_progress", "completed", "deleted"]
) -> Task:
    _, after = await board.update(task, Change(status=status), by=ANN)
    return after


@RULES.shows("TSK-01")
async def a_new_task_holds_what_was_given(doors: Doors[TaskBoard]) -> None:
    draft = Draft(subject="Mend", description="the\nroof ä", active_form="Mending", metadata={"a": [1]})
    async with opened(doors, 2) as (board, other):
        task = await board.create(draft)
        wanted = Task(
            id=task.id,
            subject="Mend",
            description="the\nroof ä",
            active_form="Mending",
            metadata={"a": [1]},
        )
        assert task == wanted
        assert await other.get(task.id) == wanted
        assert list(await other.list()) == [wanted]


@RULES.shows("TSK-01")
async def ids_are_growing_numbers_that_never_come_back(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        ids = await created(board, 3)
        assert ids == ["1", "2", "3"]
        for task in reversed(ids):
            await board.delete(task)
        assert await created(board, 1) == ["4"]
    async with doors() as board:
        assert await created(board, 1) == ["5"]


@RULES.shows("TSK-01")
async def tasks_made_at_the_same_time_have_ids_of_their_own(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 3) as boards:
        ids = await together(*(created(board, 10) for board in boards))
        assert sorted(int(task) for batch in ids for task in batch) == list(range(1, 31))


@RULES.shows()
async def tasks_are_listed_by_number(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        await created(board, 11)
        assert [task.id for task in await board.list()] == [str(n) for n in range(1, 12)]


@RULES.shows()
async def a_look_finds_what_a_list_does_through_any_door(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        assert not await board.look()
        first, second = await created(other, 2)
        await board.delete(first)
        assert list((await other.look()).values()) == list(await other.list())
        assert list(await board.look()) == [second]


@RULES.shows()
async def what_is_unfinished_is_what_is_not_completed(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        first, begun, done, again = await created(board, 4)
        for task in (done, again):
            await moved(board, task, "completed")
        await moved(board, begun, "in_progress")
        await moved(other, again, "pending")
        for door in (board, other):
            assert [task.id for task in await door.unfinished()] == [first, begun, again]


@RULES.shows()
async def fields_change_alone_and_an_update_gives_before_and_after(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        (task,) = await created(board, 1)
        change = Change(subject="new", description="longer", active_form="doing")
        before, after = await board.update(task, change, by=ANN)
        assert (before.subject, after.subject) == ("task 0", "new")
        _, after = await board.update(task, Change(owner=BOB), by=ANN)
        assert after == Task(id=task, subject="new", description="longer", active_form="doing", owner=BOB)
        assert await board.get(task) == after
        _, after = await board.update(task, Change(owner=None), by=ANN)
        assert after.owner is None


@RULES.shows("TSK-02")
async def the_legal_moves_are_made_and_a_completed_task_cannot_be_begun(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        (task,) = await created(board, 1)
        for status in ("in_progress", "completed", "pending", "completed", "pending", "in_progress"):
            assert (await moved(board, task, status)).status == status
            assert (await found(board, task)).status == status
        await moved(board, task, "completed")
        assert task in await refused(moved(board, task, "in_progress"), TaskRefused)
        assert (await found(board, task)).status == "completed"


@RULES.shows("TSK-02")
async def a_task_can_be_deleted_from_any_state_and_for_good(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        pending, begun, done = await created(board, 3)
        await moved(board, begun, "in_progress")
        await moved(board, done, "completed")
        for task in (pending, begun):
            await moved(board, task, "deleted")
        await board.delete(done)
        for door in (board, other):
            assert list(await door.list()) == []
            assert await door.get(done) is None
        await refused(moved(board, done, "pending"), TaskRefused)
        assert (await board.claim(done, by=ANN)).reason == "task_not_found"


@RULES.shows("TSK-02")
async def others_drop_their_references_to_a_deleted_task(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        first, middle, last = await created(board, 3)
        await board.update(middle, Change(add_blocked_by=(first,), add_blocks=(last,)), by=ANN)
        await board.delete(middle)
        assert (await found(other, first)).blocks == ()
        assert (await found(other, last)).blocked_by == ()


@RULES.shows("TSK-02")
async def completed_tasks_drop_their_references_to_a_deleted_one(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        first, middle, last = await created(board, 3)
        await board.update(middle, Change(add_blocked_by=(first,), add_blocks=(last,)), by=ANN)
        for task in (first, middle, last):
            await moved(board, task, "completed")
        await board.delete(middle)
        assert (await found(other, first)).blocks == ()
        assert (await found(other, last)).blocked_by == ()


@RULES.shows("TSK-03")
async def a_task_that_is_open_again_waits_for_what_it_waited_for(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        first, last = await created(board, 2)
        await board.update(last, Change(add_blocked_by=(first,)), by=ANN)
        for task in (first, last):
            await moved(board, task, "completed")
        for task in (last, first):
            await moved(board, task, "pending")
        for door in (board, other):
            assert (await door.claim(last, by=ANN)).reason == "blocked"
        await moved(other, first, "completed")
        claim = await board.claim_next(by=ANN)
        assert claim is not None
        assert claim.task is not None
        assert claim.task.id == last


@RULES.shows("TSK-03")
async def both_sides_of_a_dependency_are_kept_in_step(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        a, b, c = await created(board, 3)
        for _ in range(2):  # repeating it changes nothing
            _, after = await board.update(b, Change(add_blocked_by=(a,), add_blocks=(c,)), by=ANN)
            assert (after.blocked_by, after.blocks) == ((a,), (c,))
        assert (await found(other, a)).blocks == (b,)
        assert (await found(other, c)).blocked_by == (b,)


@RULES.shows("TSK-03")
async def a_cycle_a_self_reference_and_an_unknown_id_are_refused_whole(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        a, b, c, d = await created(board, 4)
        await board.update(a, Change(add_blocks=(b,)), by=ANN)
        await board.update(b, Change(add_blocks=(c,)), by=ANN)
        before = list(await board.list())
        for task, change in (
            (a, Change(add_blocked_by=(c,))),
            (c, Change(add_blocks=(a,))),
            (a, Change(add_blocks=(a,))),
            (a, Change(add_blocked_by=(a,))),
            (d, Change(add_blocked_by=(a,), add_blocks=(a,))),
            (d, Change(add_blocked_by=(a, TaskId("99")))),
        ):
            given = Change(
                subject="changed", add_blocks=change.add_blocks, add_blocked_by=change.add_blocked_by
            )
            await refused(board.update(task, given, by=ANN), TaskRefused)
            assert list(await board.list()) == before


@RULES.shows("TSK-03")
async def dependencies_added_at_the_same_time_are_all_there(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 3) as boards:
        first, *rest = await created(boards[0], 7)
        await together(
            *(
                boards[n % 3].update(task, Change(add_blocked_by=(first,)), by=ANN)
                for n, task in enumerate(rest)
            )
        )
        assert sorted((await found(boards[0], first)).blocks) == sorted(rest)
        assert all(task.blocked_by == (first,) for task in await boards[1].list() if task.id != first)


@RULES.shows("TSK-10")
async def metadata_is_merged_key_by_key_and_none_deletes_a_key(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        task = (await board.create(Draft(subject="s", description="", metadata={"a": 1, "b": {"x": 1}}))).id
        _, after = await board.update(task, Change(metadata={"b": {"y": 2}, "c": [3]}), by=ANN)
        assert after.metadata == {"a": 1, "b": {"y": 2}, "c": [3]}
        _, after = await board.update(task, Change(metadata={"a": None, "never": None}), by=ANN)
        assert after.metadata == {"b": {"y": 2}, "c": [3]}
        empty = {"b": {}, "c": False, "d": 0, "e": ""}
        _, after = await board.update(task, Change(metadata=empty), by=ANN)
        assert after.metadata == empty
        assert await board.get(task) == after


@RULES.shows()
async def metadata_cannot_be_used_to_take_a_task_over(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        (task,) = await created(board, 1)
        claim = await board.claim(task, by=ANN)
        await board.update(task, Change(metadata={ATTEMPT: "mine", "note": 1}), by=BOB)
        await board.update(task, Change(metadata={ATTEMPT: None}), by=BOB)
        after = await found(board, task)
        assert (after.attempt, after.metadata["note"]) == (claim.attempt, 1)


@RULES.shows("TSK-12")
async def an_unknown_id_is_not_found_and_says_so(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        await created(board, 1)
        assert await board.get(TaskId("7")) is None
        assert (await board.claim(TaskId("7"), by=ANN)).reason == "task_not_found"
        assert await board.release(TaskId("7"), attempt="none") is False
        for call in (
            board.update(TaskId("7"), Change(subject="x"), by=ANN),
            board.update(TaskId("7"), Change(status="deleted"), by=ANN),
            board.delete(TaskId("7")),
        ):
            assert "7" in await refused(call, TaskRefused)


@RULES.shows()
async def what_cannot_be_an_id_finds_nothing_and_changes_nothing(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        await created(board, 1)
        before = list(await board.list())
        for odd in ("../1", "01", "", "1/../1", "one", "-1", "1\n", "１"):
            task = TaskId(odd)
            await refused(board.update(task, Change(subject="x"), by=ANN), TaskRefused, BadName)
            await refused(board.delete(task), TaskRefused, BadName)
            await refused(board.update(TaskId("1"), Change(add_blocks=(task,)), by=ANN), TaskRefused, BadName)
        assert list(await board.list()) == before
