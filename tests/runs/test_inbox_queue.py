"""InboxQueue of a session: one queue per agent, ordered by priority."""

from __future__ import annotations

import asyncio
from typing import Any

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


RANDOM_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["put", "put", "put", "put_back", "take", "take_waking", "prompts", "withdraw", "discard"]
        ),
        st.sampled_from([LEAD_ID, OTHER]),
        st.sampled_from(sorted(RANK)),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)


def insert_item(items: list[InboxItem], item: InboxItem, *, is_put_back: bool = False) -> None:
    def get_place(each: InboxItem) -> int:
        return RANK[each.priority] if each.wakes else 3

    same = [each for each in items if get_place(each) == get_place(item)]
    index = 0 if is_put_back else len(same)
    while index and same[index - 1].rank > item.rank:
        index -= 1
    items.insert(sum(get_place(each) < get_place(item) for each in items) + index, item)


@pytest.mark.spec("QUE-02", "QUE-04")
@given(RANDOM_STEPS)
def test_a_queue_behaves_like_a_sorted_list_of_the_waiting_items(steps: list[Any]) -> None:
    """Items come by priority, then rank, then age; those that wake nobody come last."""
    queue, waiting = SharedInboxQueue(), dict[AgentId, list[InboxItem]]()

    for number, (step, to, priority, rank, wakes, by_person) in enumerate(steps):
        items = waiting.setdefault(to, [])
        item = InboxItem(
            id=str(number),
            to=to,
            content=(),
            by="person" if by_person else "agent",
            priority=priority,
            rank=rank,
            wakes=wakes,
        )
        inbox = queue.open_inbox(to)
        match step:
            case "put":
                queue.put(item)
                insert_item(items, item)
            case "put_back":
                inbox.put_back(item)
                insert_item(items, item, is_put_back=True)
            case "take" | "take_waking":
                only_waking = step == "take_waking"
                is_refused = only_waking and not any(each.wakes for each in items)
                expected = items.pop(0) if items and not is_refused else None
                assert inbox.take_next(only_waking=only_waking) == expected
            case "prompts":
                assert queue.take_user_prompts(to) == tuple(each for each in items if each.by == "person")
                items[:] = [each for each in items if each.by != "person"]
            case "withdraw":
                gone = items[len(items) // 2] if items else item
                assert queue.has_item(to, gone.id) is bool(items)
                assert queue.withdraw_item(to, gone.id) is bool(items)
                items[:] = [each for each in items if each is not gone]
            case "discard":
                queue.discard_agent_items(to)
                items.clear()
        for agent, left in waiting.items():
            assert queue.count_waking_items(agent) == sum(each.wakes for each in left)
            assert all(queue.has_item(agent, each.id) is True for each in left)
    for agent, left in waiting.items():
        assert drain_queue(queue, agent) == left
    assert queue._agent_queues == {}


async def test_a_waiter_is_not_woken_by_an_item_that_does_not_wake_or_was_taken() -> None:
    queue = SharedInboxQueue()
    quiet = InboxItem(id="quiet", to=LEAD_ID, content=(), by="agent", wakes=False)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(queue.wait_for_waking_item(LEAD_ID))
        await asyncio.sleep(0)
        queue.put(quiet)
        queue.put(make_item("taken"))
        assert queue.take_next(LEAD_ID) == make_item("taken")
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        assert queue.take_next(LEAD_ID) == quiet
        assert queue.take_next(LEAD_ID) is None, "its waiter still waits for the same queue"
        queue.put(make_item("wakes"))
    assert queue.count_waking_items(LEAD_ID) == 1


def test_every_listener_hears_of_a_delivery_in_order() -> None:
    queue, heard = SharedInboxQueue(), list[tuple[int, str]]()
    for number in range(3):
        queue.add_delivery_listener(lambda item, number=number: heard.append((number, item.id)))
    queue.open_inbox(LEAD_ID).mark_delivered(make_item("x"))
    assert heard == [(0, "x"), (1, "x"), (2, "x")]
