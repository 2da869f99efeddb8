"""The one queue of a session: by priority, in order, each agent its own."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.arrivals import Item, Priority
from shoal.core.ids import LEAD, AgentId
from shoal.core.messages import Text
from shoal.runs.queue import Queue

OTHER = AgentId("a1")
RANK: dict[Priority, int] = {"now": 0, "next": 1, "later": 2}


def item(identity: str, to: AgentId = LEAD, priority: Priority = "next") -> Item:
    return Item(id=identity, to=to, content=(Text(text=identity),), by="person", priority=priority)


def drained(queue: Queue, to: AgentId) -> list[Item]:
    return list(iter(lambda: queue.take(to), None))


@pytest.mark.spec("QUE-02", "QUE-04")
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from([LEAD, OTHER]), st.sampled_from(sorted(RANK))),
            st.sampled_from(["take", "withdraw"]),
        )
    )
)
def test_the_first_of_the_highest_priority_is_next_whatever_was_taken_before(steps: list[object]) -> None:
    queue = Queue()
    waiting: list[Item] = []
    for number, step in enumerate(steps):
        mine = [each for each in waiting if each.to == LEAD]
        if step == "take":
            # What sorts first: `sorted` keeps the order of those that are alike.
            expected = min(mine, key=lambda each: RANK[each.priority], default=None)
            assert queue.take(LEAD) == expected
            waiting = [each for each in waiting if each is not expected]
        elif step == "withdraw":
            gone = mine[len(mine) // 2] if mine else item("stranger")
            assert queue.holds(LEAD, gone.id) is bool(mine)
            assert queue.withdraw(LEAD, gone.id) is bool(mine)
            assert not queue.holds(LEAD, gone.id)
            waiting = [each for each in waiting if each is not gone]
        else:
            assert isinstance(step, tuple)
            added = item(str(number), *step)
            queue.put(added)
            waiting.append(added)
        assert queue.size(LEAD) == sum(each.to == LEAD for each in waiting)
    for agent in (OTHER, LEAD):
        its = [each for each in waiting if each.to == agent]
        assert drained(queue, agent) == sorted(its, key=lambda each: RANK[each.priority])


@pytest.mark.spec("QUE-06")
def test_what_says_nothing_of_itself_is_a_prompt_and_comes_next() -> None:
    plain = Item(id="1", to=LEAD, content=(), by="person")
    assert (plain.mode, plain.priority) == ("prompt", "next")


async def test_who_waits_is_woken_by_what_is_theirs_alone() -> None:
    queue = Queue()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(queue.arrival(LEAD))
        await asyncio.sleep(0)
        queue.put(item("for another", OTHER))
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.put(item("mine"))
    await queue.arrival(LEAD)
