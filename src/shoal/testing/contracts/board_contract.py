"""Contract of every task board: ids, status changes, dependencies, metadata."""

from __future__ import annotations

from typing import Literal

from shoal.core.errors import InvalidName, TaskUpdateRefused
from shoal.core.names import AgentName, TaskId
from shoal.core.teams.tasks import ATTEMPT_KEY, Task, TaskDraft, TaskUpdate
from shoal.core.teams.team_storage import TaskBoard
from shoal.testing.contracts.contract_rules import (
    ContractRules,
    StoreOpener,
    expect_refusal,
    open_store_handles,
    run_calls_concurrently,
)

RULES = ContractRules()
ANN, BOB = AgentName("ann"), AgentName("bob")


async def create_tasks(board: TaskBoard, count: int) -> list[TaskId]:
    return [(await board.create(TaskDraft(subject=f"task {n}", description=""))).id for n in range(count)]


async def get_existing_task(board: TaskBoard, task: TaskId) -> Task:
    found_task = await board.get(task)
    assert found_task is not None
    return found_task


async def set_task_status(
    board: TaskBoard, task: TaskId, status: Literal["pending", "in_progress", "completed", "deleted"]
) -> Task:
    _, after = await board.update(task, TaskUpdate(status=status), by=ANN)
    return after


@RULES.add_rule("TSK-01")
async def new_task_keeps_its_draft_fields(open_store: StoreOpener[TaskBoard]) -> None:
    draft = TaskDraft(subject="Mend", description="the\nroof ä", active_form="Mending", metadata={"a": [1]})
    async with open_store_handles(open_store, 2) as (board, other):
        task = await board.create(draft)
        expected = Task(
            id=task.id,
            subject="Mend",
            description="the\nroof ä",
            active_form="Mending",
            metadata={"a": [1]},
        )
        assert task == expected
        assert await other.get(task.id) == expected
        assert list(await other.list_tasks()) == [expected]


@RULES.add_rule("TSK-01")
async def ids_are_growing_numbers_that_never_come_back(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        ids = await create_tasks(board, 3)
        assert ids == ["1", "2", "3"]
        for task in reversed(ids):
            await board.delete(task)
        assert await create_tasks(board, 1) == ["4"]
    async with open_store() as board:
        assert await create_tasks(board, 1) == ["5"]


@RULES.add_rule("TSK-01")
async def tasks_made_at_the_same_time_have_ids_of_their_own(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 3) as boards:
        ids = await run_calls_concurrently(*(create_tasks(board, 10) for board in boards))
        assert sorted(int(task) for batch in ids for task in batch) == list(range(1, 31))


@RULES.add_rule()
async def tasks_are_listed_by_number(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        await create_tasks(board, 11)
        assert [task.id for task in await board.list_tasks()] == [str(n) for n in range(1, 12)]


@RULES.add_rule()
async def view_tasks_matches_list_tasks(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        assert not await board.get_live_task_mapping()
        first, second = await create_tasks(other, 2)
        await board.delete(first)
        assert list((await other.get_live_task_mapping()).values()) == list(await other.list_tasks())
        assert list(await board.get_live_task_mapping()) == [second]


@RULES.add_rule()
async def list_unfinished_omits_completed_tasks(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        first, started, done, again = await create_tasks(board, 4)
        for task in (done, again):
            await set_task_status(board, task, "completed")
        await set_task_status(board, started, "in_progress")
        await set_task_status(other, again, "pending")
        for opened_board in (board, other):
            assert [task.id for task in await opened_board.list_unfinished()] == [first, started, again]


@RULES.add_rule()
async def fields_change_alone_and_an_update_gives_before_and_after(
    open_store: StoreOpener[TaskBoard],
) -> None:
    async with open_store() as board:
        (task,) = await create_tasks(board, 1)
        change = TaskUpdate(subject="new", description="longer", active_form="doing")
        before, after = await board.update(task, change, by=ANN)
        assert (before.subject, after.subject) == ("task 0", "new")
        _, after = await board.update(task, TaskUpdate(owner=BOB), by=ANN)
        assert after == Task(id=task, subject="new", description="longer", active_form="doing", owner=BOB)
        assert await board.get(task) == after
        _, after = await board.update(task, TaskUpdate(owner=None), by=ANN)
        assert after.owner is None


@RULES.add_rule("TSK-02")
async def the_legal_moves_are_made_and_a_completed_task_cannot_be_begun(
    open_store: StoreOpener[TaskBoard],
) -> None:
    async with open_store() as board:
        (task,) = await create_tasks(board, 1)
        for status in ("in_progress", "completed", "pending", "completed", "pending", "in_progress"):
            assert (await set_task_status(board, task, status)).status == status
            assert (await get_existing_task(board, task)).status == status
        await set_task_status(board, task, "completed")
        assert task in await expect_refusal(set_task_status(board, task, "in_progress"), TaskUpdateRefused)
        assert (await get_existing_task(board, task)).status == "completed"


@RULES.add_rule("TSK-02")
async def a_task_can_be_deleted_from_any_state_and_for_good(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        pending, started, done = await create_tasks(board, 3)
        await set_task_status(board, started, "in_progress")
        await set_task_status(board, done, "completed")
        for task in (pending, started):
            await set_task_status(board, task, "deleted")
        await board.delete(done)
        for opened_board in (board, other):
            assert list(await opened_board.list_tasks()) == []
            assert await opened_board.get(done) is None
        await expect_refusal(set_task_status(board, done, "pending"), TaskUpdateRefused)
        assert (await board.claim(done, by=ANN)).reason == "task_not_found"


@RULES.add_rule("TSK-02")
async def others_drop_their_references_to_a_deleted_task(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        first, middle, last = await create_tasks(board, 3)
        await board.update(middle, TaskUpdate(add_blocked_by=(first,), add_blocks=(last,)), by=ANN)
        await board.delete(middle)
        assert (await get_existing_task(other, first)).blocks == ()
        assert (await get_existing_task(other, last)).blocked_by == ()


@RULES.add_rule("TSK-02")
async def completed_tasks_drop_their_references_to_a_deleted_one(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        first, middle, last = await create_tasks(board, 3)
        await board.update(middle, TaskUpdate(add_blocked_by=(first,), add_blocks=(last,)), by=ANN)
        for task in (first, middle, last):
            await set_task_status(board, task, "completed")
        await board.delete(middle)
        assert (await get_existing_task(other, first)).blocks == ()
        assert (await get_existing_task(other, last)).blocked_by == ()


@RULES.add_rule("TSK-03")
async def reopened_task_keeps_its_blockers(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        first, last = await create_tasks(board, 2)
        await board.update(last, TaskUpdate(add_blocked_by=(first,)), by=ANN)
        for task in (first, last):
            await set_task_status(board, task, "completed")
        for task in (last, first):
            await set_task_status(board, task, "pending")
        for opened_board in (board, other):
            assert (await opened_board.claim(last, by=ANN)).reason == "blocked"
        await set_task_status(other, first, "completed")
        claim = await board.claim_next(by=ANN)
        assert claim is not None
        assert claim.task is not None
        assert claim.task.id == last


@RULES.add_rule("TSK-03")
async def both_sides_of_a_dependency_are_kept_in_step(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        a, b, c = await create_tasks(board, 3)
        for _ in range(2):  # repeating it changes nothing
            _, after = await board.update(b, TaskUpdate(add_blocked_by=(a,), add_blocks=(c,)), by=ANN)
            assert (after.blocked_by, after.blocks) == ((a,), (c,))
        assert (await get_existing_task(other, a)).blocks == (b,)
        assert (await get_existing_task(other, c)).blocked_by == (b,)


@RULES.add_rule("TSK-03")
async def a_cycle_a_self_reference_and_an_unknown_id_are_refused_whole(
    open_store: StoreOpener[TaskBoard],
) -> None:
    async with open_store() as board:
        a, b, c, d = await create_tasks(board, 4)
        await board.update(a, TaskUpdate(add_blocks=(b,)), by=ANN)
        await board.update(b, TaskUpdate(add_blocks=(c,)), by=ANN)
        before = list(await board.list_tasks())
        for task, change in (
            (a, TaskUpdate(add_blocked_by=(c,))),
            (c, TaskUpdate(add_blocks=(a,))),
            (a, TaskUpdate(add_blocks=(a,))),
            (a, TaskUpdate(add_blocked_by=(a,))),
            (d, TaskUpdate(add_blocked_by=(a,), add_blocks=(a,))),
            (d, TaskUpdate(add_blocked_by=(a, TaskId("99")))),
        ):
            rejected_change = TaskUpdate(
                subject="changed", add_blocks=change.add_blocks, add_blocked_by=change.add_blocked_by
            )
            await expect_refusal(board.update(task, rejected_change, by=ANN), TaskUpdateRefused)
            assert list(await board.list_tasks()) == before


@RULES.add_rule("TSK-03")
async def dependencies_added_at_the_same_time_are_all_there(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 3) as boards:
        first, *rest = await create_tasks(boards[0], 7)
        await run_calls_concurrently(
            *(
                boards[n % 3].update(task, TaskUpdate(add_blocked_by=(first,)), by=ANN)
                for n, task in enumerate(rest)
            )
        )
        assert sorted((await get_existing_task(boards[0], first)).blocks) == sorted(rest)
        assert all(task.blocked_by == (first,) for task in await boards[1].list_tasks() if task.id != first)


@RULES.add_rule("TSK-10")
async def metadata_is_merged_key_by_key_and_none_deletes_a_key(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        task = (
            await board.create(TaskDraft(subject="s", description="", metadata={"a": 1, "b": {"x": 1}}))
        ).id
        _, after = await board.update(task, TaskUpdate(metadata={"b": {"y": 2}, "c": [3]}), by=ANN)
        assert after.metadata == {"a": 1, "b": {"y": 2}, "c": [3]}
        _, after = await board.update(task, TaskUpdate(metadata={"a": None, "never": None}), by=ANN)
        assert after.metadata == {"b": {"y": 2}, "c": [3]}
        empty = {"b": {}, "c": False, "d": 0, "e": ""}
        _, after = await board.update(task, TaskUpdate(metadata=empty), by=ANN)
        assert after.metadata == empty
        assert await board.get(task) == after


@RULES.add_rule()
async def metadata_cannot_be_used_to_take_a_task_over(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        (task,) = await create_tasks(board, 1)
        claim = await board.claim(task, by=ANN)
        await board.update(task, TaskUpdate(metadata={ATTEMPT_KEY: "mine", "note": 1}), by=BOB)
        await board.update(task, TaskUpdate(metadata={ATTEMPT_KEY: None}), by=BOB)
        after = await get_existing_task(board, task)
        assert (after.claim_attempt, after.metadata["note"]) == (claim.attempt, 1)


@RULES.add_rule("TSK-12")
async def unknown_task_id_is_reported(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        await create_tasks(board, 1)
        assert await board.get(TaskId("7")) is None
        assert (await board.claim(TaskId("7"), by=ANN)).reason == "task_not_found"
        assert await board.release(TaskId("7"), attempt="none") is False
        for call in (
            board.update(TaskId("7"), TaskUpdate(subject="x"), by=ANN),
            board.update(TaskId("7"), TaskUpdate(status="deleted"), by=ANN),
            board.delete(TaskId("7")),
        ):
            assert "7" in await expect_refusal(call, TaskUpdateRefused)


@RULES.add_rule()
async def invalid_task_id_changes_nothing(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        await create_tasks(board, 1)
        before = list(await board.list_tasks())
        for invalid_id in ("../1", "01", "", "1/../1", "one", "-1", "1\n", "１"):
            task = TaskId(invalid_id)
            await expect_refusal(
                board.update(task, TaskUpdate(subject="x"), by=ANN), TaskUpdateRefused, InvalidName
            )
            await expect_refusal(board.delete(task), TaskUpdateRefused, InvalidName)
            await expect_refusal(
                board.update(TaskId("1"), TaskUpdate(add_blocks=(task,)), by=ANN),
                TaskUpdateRefused,
                InvalidName,
            )
        assert list(await board.list_tasks()) == before
