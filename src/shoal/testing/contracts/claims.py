"""Contract of every task board: claims, ownership, and waking waiters."""

from __future__ import annotations

import asyncio

from shoal.core.errors import TaskRefused
from shoal.core.names import AgentName
from shoal.core.record import TaskBoard
from shoal.core.tasks import Change, mark_of
from shoal.testing.contracts.board import ANN, BOB, created, found, moved
from shoal.testing.contracts.rules import PROMPT, Doors, Rules, opened, refused, still_waiting, together

RULES = Rules()


@RULES.shows("TSK-04")
async def the_lowest_number_that_waits_for_nothing_is_claimed_next(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        ids = await created(board, 12)
        await board.update(ids[0], Change(owner=BOB), by=ANN)
        await board.update(ids[1], Change(add_blocked_by=(ids[11],)), by=ANN)
        await moved(board, ids[2], "completed")
        claimed = []
        while (claim := await board.claim_next(by=ANN)) is not None:
            assert claim.success
            assert claim.task is not None
            claimed.append(claim.task.id)
        assert claimed == ids[3:]
        # A task with an owner is never the next one, not even for its owner.
        assert await board.claim_next(by=BOB) is None
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_claimable())
            assert await still_waiting(waiting)
            waiting.cancel()


@RULES.shows("TSK-04")
async def a_blocker_that_is_completed_or_gone_holds_nothing_up(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        done, gone, task = await created(board, 3)
        await board.update(task, Change(add_blocked_by=(done, gone)), by=ANN)
        assert (await board.claim(task, by=ANN)).reason == "blocked"
        await moved(board, done, "completed")
        assert (await board.claim(task, by=ANN)).reason == "blocked"
        await board.delete(gone)
        assert (await board.claim(task, by=ANN)).success


@RULES.shows("TSK-05")
async def a_claim_sets_the_owner_and_begins_the_task(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        (task,) = await created(board, 1)
        claim = await board.claim(task, by=ANN)
        assert (claim.success, claim.reason) == (True, None)
        assert claim.task is not None
        assert (claim.task.owner, claim.task.status) == (ANN, "in_progress")
        assert claim.attempt
        assert await other.get(task) == claim.task


@RULES.shows("TSK-05")
async def an_owner_holds_again_what_it_held_and_nothing_else(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        mine, done, hers, _ = await created(board, 4)
        for task, owner in ((mine, ANN), (done, ANN), (hers, BOB)):
            assert (await board.claim(task, by=owner)).success
        await moved(board, done, "completed")
        before = (await found(board, mine)).attempt
        assert await board.reclaim(ANN) == (mine,)
        assert mark_of(before)
        assert mark_of((await found(board, mine)).attempt) == mark_of(before)
        assert (await found(board, mine)).owner == ANN
        assert (await found(board, hers)).owner == BOB


@RULES.shows("TSK-05")
async def refusals_are_checked_in_their_order(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        blocker, task = await created(board, 2)
        await board.update(task, Change(add_blocked_by=(blocker,)), by=ANN)
        assert (await board.claim(task, by=ANN)).reason == "blocked"
        await moved(board, task, "completed")
        assert (await board.claim(task, by=ANN)).reason == "already_resolved"
        await board.update(task, Change(owner=BOB), by=ANN)
        claim = await board.claim(task, by=ANN)
        assert (claim.success, claim.reason, claim.attempt) == (False, "already_claimed", None)
        await board.delete(task)
        assert (await board.claim(task, by=ANN)).reason == "task_not_found"


@RULES.shows("TSK-05")
async def the_same_owner_may_claim_again(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        (task,) = await created(board, 1)
        await board.claim(task, by=ANN)
        again = await board.claim(task, by=ANN)
        assert again.success
        _, after = await board.update(task, Change(status="completed", attempt=again.attempt), by=ANN)
        assert after.status == "completed"


@RULES.shows("TSK-05")
async def of_many_claimants_exactly_one_wins(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 4) as boards:
        for task in await created(boards[0], 5):
            claims = await together(
                *(boards[n % 4].claim(task, by=AgentName(f"agent-{n}")) for n in range(24))
            )
            assert [claim.reason for claim in claims].count("already_claimed") == 23
            (winner,) = (n for n, claim in enumerate(claims) if claim.success)
            assert (await found(boards[0], task)).owner == f"agent-{winner}"


@RULES.shows("TSK-05")
async def claimants_who_take_the_next_task_each_get_another(doors: Doors[TaskBoard]) -> None:
    claimed: list[str] = []

    async def work(board: TaskBoard, agent: AgentName) -> None:
        while (claim := await board.claim_next(by=agent)) is not None:
            assert claim.task is not None
            claimed.append(claim.task.id)
            change = Change(status="completed", attempt=claim.attempt)
            await board.update(claim.task.id, change, by=agent)

    async with opened(doors, 3) as boards:
        ids = await created(boards[0], 30)
        await together(*(work(boards[n % 3], AgentName(f"agent-{n}")) for n in range(9)))
        assert sorted(claimed, key=int) == ids
        assert {task.status for task in await boards[0].list()} == {"completed"}


@RULES.shows()
async def a_task_given_back_can_be_claimed_and_its_old_attempt_is_stale(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        (task,) = await created(board, 1)
        first = await board.claim(task, by=ANN)
        assert first.attempt
        assert await board.release(task, attempt=first.attempt)
        back = await found(board, task)
        assert (back.status, back.owner, back.attempt) == ("pending", None, None)
        assert not await board.release(task, attempt=first.attempt)
        second = await board.claim(task, by=BOB)
        assert second.success
        assert not await board.release(task, attempt=first.attempt)
        stale = Change(status="completed", attempt=first.attempt)
        await refused(board.update(task, stale, by=ANN), TaskRefused)
        assert (await found(board, task)).owner == BOB
        _, done = await board.update(task, Change(status="completed", attempt=second.attempt), by=BOB)
        assert done.status == "completed"


@RULES.shows()
async def what_a_gone_member_had_claimed_is_pending_again(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        begun, done, of_bob, free = await created(board, 4)
        await board.claim(begun, by=ANN)
        await board.claim(done, by=ANN)
        await moved(board, done, "completed")
        await board.claim(of_bob, by=BOB)
        assert await other.release_all(ANN) == (begun,)
        assert await other.release_all(ANN) == ()
        tasks = {task.id: (task.status, task.owner) for task in await board.list()}
        assert tasks == {
            begun: ("pending", None),
            done: ("completed", ANN),
            of_bob: ("in_progress", BOB),
            free: ("pending", None),
        }


@RULES.shows()
async def waiting_ends_at_once_where_something_can_be_claimed(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        await created(board, 1)
        for _ in range(2):
            await board.wait_claimable()


@RULES.shows("TSK-06")
async def whatever_makes_a_task_claimable_wakes_who_waits(doors: Doors[TaskBoard]) -> None:
    async with opened(doors, 2) as (board, other):
        blocker, task = await created(board, 2)
        await board.update(task, Change(add_blocked_by=(blocker,)), by=ANN)
        first = await board.claim(blocker, by=ANN)

        async with asyncio.timeout(PROMPT), asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_claimable())
            assert await still_waiting(waiting)
            await other.update(blocker, Change(status="completed", attempt=first.attempt), by=ANN)
        claim = await board.claim_next(by=BOB)
        assert claim is not None
        assert claim.task is not None
        assert claim.task.id == task

        async with asyncio.timeout(PROMPT), asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_claimable())
            assert await still_waiting(waiting)
            await other.release_all(BOB)
        assert await board.claim_next(by=BOB) is not None

        async with asyncio.timeout(PROMPT), asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_claimable())
            assert await still_waiting(waiting)
            await created(other, 1)


@RULES.shows("TSK-06")
async def as_many_are_woken_as_tasks_were_unblocked(doors: Doors[TaskBoard]) -> None:
    async with doors() as board:
        blocker, *blocked = await created(board, 3)
        for task in blocked:
            await board.update(task, Change(add_blocked_by=(blocker,)), by=ANN)
        await board.claim(blocker, by=ANN)
        async with asyncio.TaskGroup() as group:
            waiting = {group.create_task(board.wait_claimable()) for _ in range(5)}
            assert len(await still_waiting(*waiting)) == 5
            await moved(board, blocker, "completed")
            waiting = await still_waiting(*waiting)
            assert len(waiting) == 3
            for waiter in waiting:
                waiter.cancel()


@RULES.shows()
async def a_wait_given_up_harms_no_other(doors: Doors[TaskBoard]) -> None:
    async with doors() as board, asyncio.TaskGroup() as group:
        given_up, waiting = (group.create_task(board.wait_claimable()) for _ in range(2))
        await still_waiting(given_up, waiting)
        given_up.cancel()
        await created(board, 1)
        await waiting
