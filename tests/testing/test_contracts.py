"""The contracts find what is wrong with a store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.tasks import ATTEMPT, Change, Claim
from shoal.testing.contracts import board_rules, mailbox_rules, roster_rules
from shoal.testing.record import MemoryMailboxes, MemoryRosters, MemoryTaskBoard


async def broken(rules, make):
    """The names of the rules that a store breaks."""
    names = set()
    for rule in rules:
        store = make()

        @asynccontextmanager
        async def door(store=store):
            yield store

        try:
            await rule(door)
        except (AssertionError, ExceptionGroup, TimeoutError):
            names.add(rule.__name__)
    return names


class Racing(MemoryTaskBoard):
    """Looks, lets others run, then claims."""

    async def claim(self, task, *, by):
        there = self._tasks.get(task)
        await asyncio.sleep(0)
        if there is None or there.owner not in (None, by) or there.status == "completed":
            return await super().claim(task, by=by)
        claimed = replace(there, owner=by, status="in_progress", metadata={ATTEMPT: by})
        self._keep(claimed)
        return Claim(success=True, task=claimed, attempt=by)


async def test_a_board_that_claims_in_two_steps_is_found_out():
    found = await broken(board_rules(), lambda: Racing(Ids(1)))
    assert {
        "of_many_claimants_exactly_one_wins",
        "claimants_who_take_the_next_task_each_get_another",
    } <= found


class OneSided(MemoryTaskBoard):
    async def update(self, task, change, *, by):
        before, after = await super().update(task, change, by=by)
        for other in change.add_blocked_by:
            self._keep(replace(self._tasks[other], blocks=()))
        return before, after


async def test_a_board_that_keeps_one_side_of_a_dependency_is_found_out():
    found = await broken(board_rules(), lambda: OneSided(Ids(1)))
    assert "both_sides_of_a_dependency_are_kept_in_step" in found


class Forgiving(MemoryTaskBoard):
    async def update(self, task, change, *, by):
        fields = {name: getattr(change, name) for name in Change.__struct_fields__ if name != "attempt"}
        return await super().update(task, Change(**fields), by=by)


async def test_a_board_that_lets_a_stale_attempt_complete_is_found_out():
    assert await broken(board_rules(), lambda: Forgiving(Ids(1))) == {
        "a_task_given_back_can_be_claimed_and_its_old_attempt_is_stale"
    }


class Short(MemoryMailboxes):
    async def post(self, to, mail):
        unread = await self.take(to, limit=1000)
        if len(unread) > 64:
            await self.mark(to, [unread[0].id])
        return await super().post(to, mail)


async def test_a_mailbox_that_drops_what_does_not_fit_is_found_out():
    lost = "nothing_of_much_mail_is_lost"
    rules = [rule for rule in mailbox_rules() if rule.__name__ in {lost, "each_inbox_is_its_owner_s_alone"}]
    assert await broken(rules, Short) == {lost}


class Lossy(MemoryRosters):
    async def join(self, team, newcomer):
        before = self._teams.get(team)
        await asyncio.sleep(0)
        if before is not None:
            self._teams[team] = before
        return await super().join(team, newcomer)


async def test_a_roster_that_loses_who_joins_at_the_same_time_is_found_out():
    assert await broken(roster_rules(), lambda: Lossy(SystemClock())) == {
        "of_many_who_join_at_the_same_time_none_is_lost"
    }


@pytest.mark.parametrize("rules", [board_rules, mailbox_rules, roster_rules])
def test_every_rule_is_a_sentence_of_its_own(rules):
    names = [rule.__name__ for rule in rules()]
    assert len(names) == len({*names}) > 10
    assert all(name.count("_") >= 3 for name in names)
