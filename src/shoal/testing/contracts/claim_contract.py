"""Contract of every task board: claims, ownership, and waking waiters."""

from __future__ import annotations

import asyncio

from shoal.core.errors import TaskUpdateRefused
from shoal.core.names import AgentName, TaskId
from shoal.core.teams.tasks import TaskDraft, TaskUpdate, extract_stable_claim_attempt_part
from shoal.core.teams.team_storage import StoredTaskBoard, TaskBoard
from shoal.testing.contracts.board_contract import ANN, BOB, create_tasks, get_existing_task, set_task_status
from shoal.testing.contracts.contract_rules import (
    WAKE_SECONDS,
    ContractRules,
    StoreOpener,
    expect_refusal,
    list_unfinished_asyncio_tasks,
    open_store_handles,
    run_calls_concurrently,
)

RULES = ContractRules()


@RULES.add_rule("TSK-04")
async def claim_next_takes_lowest_unblocked_task(
    open_store: StoreOpener[TaskBoard],
) -> None:
    async with open_store() as board:
        ids = await create_tasks(board, 12)
        await board.update(ids[0], TaskUpdate(owner=BOB), by=ANN)
        await board.update(ids[1], TaskUpdate(add_blocked_by=(ids[11],)), by=ANN)
        await set_task_status(board, ids[2], "completed")
        claimed = []
        while (claim := await board.claim_next(by=ANN)) is not None:
            assert claim.success
            assert claim.task is not None
            claimed.append(claim.task.id)
        assert claimed == ids[3:]
        # A task with an owner is never the next one, not even for its owner.
        assert await board.claim_next(by=BOB) is None
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_for_claimable())
            assert await list_unfinished_asyncio_tasks(waiting)
            waiting.cancel()


@RULES.add_rule("TSK-04")
async def finished_or_deleted_task_blocks_none(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        done, deleted, task = await create_tasks(board, 3)
        await board.update(task, TaskUpdate(add_blocked_by=(done, deleted)), by=ANN)
        assert (await board.claim(task, by=ANN)).reason == "blocked"
        await set_task_status(board, done, "completed")
        assert (await board.claim(task, by=ANN)).reason == "blocked"
        await board.delete(deleted)
        assert (await board.claim(task, by=ANN)).success


@RULES.add_rule("TSK-05")
async def a_claim_sets_the_owner_and_begins_the_task(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        (task,) = await create_tasks(board, 1)
        claim = await board.claim(task, by=ANN)
        assert (claim.success, claim.reason) == (True, None)
        assert claim.task is not None
        assert (claim.task.owner, claim.task.status) == (ANN, "in_progress")
        assert claim.attempt
        assert await other.get(task) == claim.task


@RULES.add_rule("TSK-05")
async def owner_reclaims_only_its_own_open_tasks(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        mine, done, others_task, _ = await create_tasks(board, 4)
        for task, owner in ((mine, ANN), (done, ANN), (others_task, BOB)):
            assert (await board.claim(task, by=owner)).success
        await set_task_status(board, done, "completed")
        before = (await get_existing_task(board, mine)).claim_attempt
        assert await board.reclaim_owner_tasks(ANN) == (mine,)
        assert extract_stable_claim_attempt_part(before)
        assert extract_stable_claim_attempt_part(
            (await get_existing_task(board, mine)).claim_attempt
        ) == extract_stable_claim_attempt_part(before)
        assert (await get_existing_task(board, mine)).owner == ANN
        assert (await get_existing_task(board, others_task)).owner == BOB


@RULES.add_rule()
async def claim_ends_with_its_holder(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as other:
        async with open_store() as holder:
            (task,) = await create_tasks(holder, 1)
            assert (await holder.claim(task, by=ANN)).success
            assert not (await other.claim(task, by=BOB)).success
            assert await other.list_abandoned() == frozenset()
        # Some boards list it until somebody reads the tasks, which releases it.
        assert await other.list_abandoned() <= {task}
        assert (await other.claim(task, by=BOB)).success
        assert await other.list_abandoned() == frozenset()


@RULES.add_rule()
async def owner_keeps_its_task_in_the_next_process(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as holder:
        (task,) = await create_tasks(holder, 1)
        before = (await holder.claim(task, by=ANN)).attempt
    async with open_store() as board:
        assert await board.reclaim_owner_tasks(ANN) == (task,)
        after = (await get_existing_task(board, task)).claim_attempt
        assert after != before
        assert extract_stable_claim_attempt_part(after) == extract_stable_claim_attempt_part(before)


@RULES.add_rule()
async def change_by_another_handle_is_observed(open_store: StoreOpener[StoredTaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        (first,) = await create_tasks(board, 1)
        board.take_changed_ids()
        was_called = asyncio.Event()
        watch = board.watch_changes(was_called.set)
        assert watch is not None
        try:
            (second,) = await create_tasks(other, 1)
            async with asyncio.timeout(WAKE_SECONDS):
                await was_called.wait()
            assert set(board.peek_tasks()) == {first, second}
            changed_ids = board.take_changed_ids()
            assert changed_ids is None or second in changed_ids
        finally:
            watch.close()


@RULES.add_rule()
async def neighbours_of_a_deleted_task_are_changed_too(open_store: StoreOpener[StoredTaskBoard]) -> None:
    async with open_store() as board:
        before, deleted, after, other = await create_tasks(board, 4)
        await board.update(deleted, TaskUpdate(add_blocked_by=(before,), add_blocks=(after,)), by=ANN)
        board.peek_tasks()
        board.take_changed_ids()
        await board.delete(deleted)
        assert set(board.peek_tasks()) == {before, after, other}
        changed_ids = board.take_changed_ids()
        assert changed_ids is None or {before, deleted, after} <= set(changed_ids)


@RULES.add_rule("TSK-05")
async def claim_refusals_have_a_fixed_order(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        blocker, blocked, task = await create_tasks(board, 3)
        await board.update(blocked, TaskUpdate(add_blocked_by=(blocker,)), by=ANN)
        assert (await board.claim(blocked, by=ANN)).reason == "blocked"
        await set_task_status(board, task, "completed")
        await board.update(task, TaskUpdate(add_blocked_by=(blocker,)), by=ANN)
        assert (await board.claim(task, by=ANN)).reason == "already_resolved"
        await board.update(task, TaskUpdate(owner=BOB), by=ANN)
        claim = await board.claim(task, by=ANN)
        assert (claim.success, claim.reason, claim.attempt) == (False, "already_claimed", None)
        await board.delete(task)
        assert (await board.claim(task, by=ANN)).reason == "task_not_found"


@RULES.add_rule("LIM-10")
async def a_blocked_task_cannot_be_started_or_completed(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        blocker, task = await create_tasks(board, 2)
        await board.update(task, TaskUpdate(add_blocked_by=(blocker,)), by=ANN)
        for change in (
            TaskUpdate(status="in_progress"),
            TaskUpdate(status="completed"),
            TaskUpdate(status="in_progress", owner=BOB),
        ):
            await expect_refused_update(board, task, change, f"waits for #{blocker}")
        new_blocker = TaskUpdate(status="completed", add_blocked_by=(task,))
        await expect_refused_update(board, blocker, new_blocker, "")
        await set_task_status(board, blocker, "completed")
        await set_task_status(board, task, "completed")


@RULES.add_rule("LIM-10")
async def a_task_has_a_visible_subject(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        (task,) = await create_tasks(board, 1)
        for subject in ("", " \t\n", "\u200b\ufe0f", "\u3164\u2800"):
            await expect_refused_update(board, task, TaskUpdate(subject=subject), "needs a subject")
            draft = TaskDraft(subject=subject, description="x")
            assert "needs a subject" in await expect_refusal(board.create(draft), TaskUpdateRefused)
        assert [each.id for each in await board.list_tasks()] == [task]


async def expect_refused_update(board: TaskBoard, task: TaskId, change: TaskUpdate, why: str) -> None:
    before = await board.get(task)
    assert why in await expect_refusal(board.update(task, change, by=ANN), TaskUpdateRefused)
    assert await board.get(task) == before


@RULES.add_rule("TSK-05")
async def the_same_owner_may_claim_again(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        (task,) = await create_tasks(board, 1)
        await board.claim(task, by=ANN)
        second_claim = await board.claim(task, by=ANN)
        assert second_claim.success
        _, after = await board.update(
            task, TaskUpdate(status="completed", attempt=second_claim.attempt), by=ANN
        )
        assert after.status == "completed"


@RULES.add_rule("TSK-05")
async def of_many_claimants_exactly_one_wins(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 4) as boards:
        for task in await create_tasks(boards[0], 5):
            claims = await run_calls_concurrently(
                *(boards[n % 4].claim(task, by=AgentName(f"agent-{n}")) for n in range(24))
            )
            assert [claim.reason for claim in claims].count("already_claimed") == 23
            (winner,) = (n for n, claim in enumerate(claims) if claim.success)
            assert (await get_existing_task(boards[0], task)).owner == f"agent-{winner}"


@RULES.add_rule("TSK-05")
async def concurrent_claim_next_gets_other_tasks(open_store: StoreOpener[TaskBoard]) -> None:
    claimed: list[str] = []

    async def claim_and_complete(board: TaskBoard, agent: AgentName) -> None:
        while (claim := await board.claim_next(by=agent)) is not None:
            assert claim.task is not None
            claimed.append(claim.task.id)
            change = TaskUpdate(status="completed", attempt=claim.attempt)
            await board.update(claim.task.id, change, by=agent)

    async with open_store_handles(open_store, 3) as boards:
        ids = await create_tasks(boards[0], 30)
        await run_calls_concurrently(
            *(claim_and_complete(boards[n % 3], AgentName(f"agent-{n}")) for n in range(9))
        )
        assert sorted(claimed, key=int) == ids
        assert {task.status for task in await boards[0].list_tasks()} == {"completed"}


@RULES.add_rule()
async def released_task_makes_old_attempt_stale(
    open_store: StoreOpener[TaskBoard],
) -> None:
    async with open_store() as board:
        (task,) = await create_tasks(board, 1)
        first_claim = await board.claim(task, by=ANN)
        assert first_claim.attempt
        assert await board.release(task, attempt=first_claim.attempt)
        released_task = await get_existing_task(board, task)
        assert (released_task.status, released_task.owner, released_task.claim_attempt) == (
            "pending",
            None,
            None,
        )
        assert not await board.release(task, attempt=first_claim.attempt)
        second_claim = await board.claim(task, by=BOB)
        assert second_claim.success
        assert not await board.release(task, attempt=first_claim.attempt)
        stale = TaskUpdate(status="completed", attempt=first_claim.attempt)
        await expect_refusal(board.update(task, stale, by=ANN), TaskUpdateRefused)
        assert (await get_existing_task(board, task)).owner == BOB
        _, done = await board.update(
            task, TaskUpdate(status="completed", attempt=second_claim.attempt), by=BOB
        )
        assert done.status == "completed"


@RULES.add_rule()
async def released_owner_tasks_are_pending_again(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        started, done, of_bob, free = await create_tasks(board, 4)
        await board.claim(started, by=ANN)
        await board.claim(done, by=ANN)
        await set_task_status(board, done, "completed")
        await board.claim(of_bob, by=BOB)
        assert await other.release_owner_tasks(ANN) == (started,)
        assert await other.release_owner_tasks(ANN) == ()
        tasks = {task.id: (task.status, task.owner) for task in await board.list_tasks()}
        assert tasks == {
            started: ("pending", None),
            done: ("completed", ANN),
            of_bob: ("in_progress", BOB),
            free: ("pending", None),
        }


@RULES.add_rule()
async def wait_ends_at_once_if_task_is_claimable(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        await create_tasks(board, 1)
        for _ in range(2):
            await board.wait_for_claimable()


@RULES.add_rule()
async def only_claimable_task_counts_as_claimable_now(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        assert not board.is_task_claimable_now()
        blocker, task = await create_tasks(board, 2)
        await board.update(task, TaskUpdate(add_blocked_by=(blocker,)), by=ANN)
        await board.claim(blocker, by=ANN)
        assert not board.is_task_claimable_now()


@RULES.add_rule("TSK-06")
async def claimable_task_wakes_a_waiter(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store_handles(open_store, 2) as (board, other):
        blocker, task = await create_tasks(board, 2)
        await board.update(task, TaskUpdate(add_blocked_by=(blocker,)), by=ANN)
        first = await board.claim(blocker, by=ANN)

        async with asyncio.timeout(WAKE_SECONDS), asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_for_claimable())
            assert await list_unfinished_asyncio_tasks(waiting)
            await other.update(blocker, TaskUpdate(status="completed", attempt=first.attempt), by=ANN)
        claim = await board.claim_next(by=BOB)
        assert claim is not None
        assert claim.task is not None
        assert claim.task.id == task

        async with asyncio.timeout(WAKE_SECONDS), asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_for_claimable())
            assert await list_unfinished_asyncio_tasks(waiting)
            await other.release_owner_tasks(BOB)
        assert await board.claim_next(by=BOB) is not None

        async with asyncio.timeout(WAKE_SECONDS), asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_for_claimable())
            assert await list_unfinished_asyncio_tasks(waiting)
            await create_tasks(other, 1)


@RULES.add_rule("TSK-06")
async def one_waiter_wakes_per_unblocked_task(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board:
        blocker, *blocked = await create_tasks(board, 3)
        for task in blocked:
            await board.update(task, TaskUpdate(add_blocked_by=(blocker,)), by=ANN)
        await board.claim(blocker, by=ANN)
        async with asyncio.TaskGroup() as group:
            waiting = {group.create_task(board.wait_for_claimable()) for _ in range(5)}
            assert len(await list_unfinished_asyncio_tasks(*waiting)) == 5
            await set_task_status(board, blocker, "completed")
            waiting = await list_unfinished_asyncio_tasks(*waiting)
            assert len(waiting) == 3
            for waiter in waiting:
                waiter.cancel()


@RULES.add_rule()
async def cancelled_claim_wait_harms_no_other(open_store: StoreOpener[TaskBoard]) -> None:
    async with open_store() as board, asyncio.TaskGroup() as group:
        cancelled_wait, other_wait = (group.create_task(board.wait_for_claimable()) for _ in range(2))
        await list_unfinished_asyncio_tasks(cancelled_wait, other_wait)
        cancelled_wait.cancel()
        await create_tasks(board, 1)
        await other_wait
