"""The contract rules detect faulty stores."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import repeat

import pytest
from msgspec.structs import replace

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.teams.tasks import ATTEMPT_KEY, TaskClaimResult, TaskUpdate
from shoal.stores.memory.memory_teams import (
    MemoryBoardState,
    MemoryMailboxes,
    MemoryRosters,
    MemoryRosterState,
    MemoryTaskBoard,
)
from shoal.testing.contracts import board_rules, mailbox_rules, roster_rules


async def find_broken_rules(rules, make):
    """Return the names of the rules that a store breaks; `make` returns a function that opens its handles."""
    names = set()
    for rule in rules:
        open_handle = make()

        @asynccontextmanager
        async def open_store(open_handle=open_handle):
            async with aclosing(open_handle()) as handle:
                yield handle

        try:
            await rule(open_store)
        except (AssertionError, ExceptionGroup, TimeoutError):
            names.add(rule.__name__)
    return names


class RacingBoard(MemoryTaskBoard):
    """Reads, lets others run, then claims."""

    async def claim(self, task, *, by):
        found_task = self._tasks.get(task)
        await asyncio.sleep(0)
        if found_task is None or found_task.owner not in (None, by) or found_task.status == "completed":
            return await super().claim(task, by=by)
        claimed = replace(found_task, owner=by, status="in_progress", metadata={ATTEMPT_KEY: by})
        self._store_tasks(claimed)
        return TaskClaimResult(success=True, task=claimed, attempt=by)


async def test_the_rules_detect_a_board_that_claims_in_two_steps():
    found = await find_broken_rules(
        board_rules(), lambda: partial(RacingBoard, IdGenerator(1), MemoryBoardState())
    )
    assert {
        "of_many_claimants_exactly_one_wins",
        "concurrent_claim_next_gets_other_tasks",
    } <= found


class OneSidedBoard(MemoryTaskBoard):
    async def update(self, task, change, *, by):
        before, after = await super().update(task, change, by=by)
        for other in change.add_blocked_by:
            self._store_tasks(replace(self._tasks[other], blocks=()))
        return before, after


async def test_the_rules_detect_a_board_that_stores_one_side_of_a_dependency():
    found = await find_broken_rules(
        board_rules(), lambda: partial(OneSidedBoard, IdGenerator(1), MemoryBoardState())
    )
    assert "both_sides_of_a_dependency_are_kept_in_step" in found


class StaleAttemptBoard(MemoryTaskBoard):
    async def update(self, task, change, *, by):
        fields = {name: getattr(change, name) for name in TaskUpdate.__struct_fields__ if name != "attempt"}
        return await super().update(task, TaskUpdate(**fields), by=by)


async def test_the_rules_detect_a_board_that_accepts_a_stale_attempt():
    assert await find_broken_rules(
        board_rules(), lambda: partial(StaleAttemptBoard, IdGenerator(1), MemoryBoardState())
    ) == {"released_task_makes_old_attempt_stale"}


class DroppingMailboxes(MemoryMailboxes):
    async def post(self, to, mail):
        unread = await self.take_unread(to, limit=1000)
        if len(unread) > 64:
            await self.mark_read(to, [unread[0].id])
        return await super().post(to, mail)


async def test_the_rules_detect_a_mailbox_that_drops_mail_when_full():
    lost = "large_mail_backlog_is_not_lost"
    rules = [rule for rule in mailbox_rules() if rule.__name__ in {lost, "inboxes_of_owners_are_separate"}]
    assert await find_broken_rules(rules, lambda: partial(next, repeat(DroppingMailboxes()))) == {lost}


class LossyRosters(MemoryRosters):
    async def add_member(self, team, new_member):
        before = self._teams.get(team)
        await asyncio.sleep(0)
        if before is not None:
            self._teams[team] = before
        return await super().add_member(team, new_member)


async def test_the_rules_detect_a_roster_that_loses_concurrent_joins():
    assert await find_broken_rules(
        roster_rules(), lambda: partial(LossyRosters, SystemClock(), MemoryRosterState())
    ) == {"concurrent_joins_lose_no_member"}


@pytest.mark.parametrize("rules", [board_rules, mailbox_rules, roster_rules])
def test_every_rule_has_a_unique_name(rules):
    names = [rule.__name__ for rule in rules()]
    assert len(names) == len({*names}) > 10
    assert all(name.count("_") >= 3 for name in names)
