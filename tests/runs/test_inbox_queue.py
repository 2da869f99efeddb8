"""InboxQueue of a session: one queue per agent, ordered by priority."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.conversation.inbox_items import InboxItem, InboxPriority
from shoal.core.conversation.messages import TextBlock
from shoal.core.ids import LEAD_ID, AgentId
from shoal.runs.inbox_queue import SharedInboxQueue

OTHER = AgentId("a1")
RANK: dict[InboxPriority, int] = {"now": 0, "next": 1, "later": 2}


def make_item(identity: str, to: AgentId = LEAD_ID, priority: InboxPriority = "next") -> InboxItem:
    return InboxItem(id=identity, to=to, content=(TextBlock(text=identity),), by="person", priority=priority)


def drain_queue(queue: SharedInboxQueue, to: AgentId) -> list[InboxItem]:
    return list(iter(lambda: queue.take_next(to), None))


@pytest.mark.spec("QUE-02", "QUE-04")
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from([LEAD_ID, OTHER]), st.sampled_from(sorted(RANK))),
            st.sampled_from(["take", "withdraw"]),
        )
    )
)
def test_the_first_item_of_the_highest_priority_is_taken_next(steps: list[object]) -> None:
    queue = SharedInboxQueue()
    waiting: list[InboxItem] = []
    for number, step in enumerate(steps):
        mine = [each for each in waiting if each.to == LEAD_ID]
        if step == "take":
            # `min` returns the first of equal items.
            expected = min(mine, key=lambda each: RANK[each.priority], default=None)
            assert queue.take_next(LEAD_ID) == expected
            waiting = [each for each in waiting if each is not expected]
        elif step == "withdraw":
            gone = mine[len(mine) // 2] if mine else make_item("stranger")
            assert queue.has_item(LEAD_ID, gone.id) is bool(mine)
            assert queue.withdraw_item(LEAD_ID, gone.id) is bool(mine)
            assert not queue.has_item(LEAD_ID, gone.id)
            waiting = [each for each in waiting if each is not gone]
        else:
            assert isinstance(step, tuple)
            added = make_item(str(number), *step)
            queue.put(added)
            waiting.append(added)
        assert queue.count_waking_items(LEAD_ID) == sum(each.to == LEAD_ID for each in waiting)
    for agent in (OTHER, LEAD_ID):
        its = [each for each in waiting if each.to == agent]
        assert drain_queue(queue, agent) == sorted(its, key=lambda each: RANK[each.priority])


@pytest.mark.spec("QUE-06")
def test_an_item_is_a_prompt_with_priority_next_by_default() -> None:
    plain = InboxItem(id="1", to=LEAD_ID, content=(), by="person")
    assert (plain.mode, plain.priority) == ("prompt", "next")


async def test_a_waiter_is_woken_only_by_its_own_items() -> None:
    queue = SharedInboxQueue()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(queue.wait_for_waking_item(LEAD_ID))
        await asyncio.sleep(0)
        queue.put(make_item("for another", OTHER))
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.put(make_item("mine"))
    await queue.wait_for_waking_item(LEAD_ID)
