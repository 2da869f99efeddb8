"""EventChannel between a turn and its reader: bounded and ordered."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from shoal.core.events import Event, NoteAdded
from shoal.core.ids import AgentId
from shoal.runs.event_channel import EventChannel


def make_note(text: str, agent: str = "lead") -> NoteAdded:
    return NoteAdded(agent=AgentId(agent), text=text)


async def read_events(channel: EventChannel, count: int) -> list[Event | None]:
    return [await channel.get() for _ in range(count)]


async def let_tasks_settle() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_writer_waits_for_a_slow_reader_until_half_is_read():
    channel = EventChannel(4)
    for number in range(4):
        await channel.put(make_note(str(number)))
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        late = tasks.create_task(channel.put(make_note("late")))
        await let_tasks_settle()
        assert not late.done()
        await read_events(channel, 1)
        await let_tasks_settle()
        assert not late.done()
        await read_events(channel, 1)
        await late


async def test_events_of_many_writers_arrive_in_the_order_of_each_writer():
    channel = EventChannel(8)

    async def write_events(name: str) -> None:
        for number in range(30):
            await channel.put(make_note(str(number), name))

    async def write_all() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(write_events(f"a{number}"))
        channel.close()

    texts_by_agent: dict[str, list[str]] = {}
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(write_all())
        while (event := await channel.get()) is not None:
            assert isinstance(event, NoteAdded)
            texts_by_agent.setdefault(event.agent, []).append(event.text)
    assert len(texts_by_agent) == 50
    assert all(texts == [str(number) for number in range(30)] for texts in texts_by_agent.values())


class SuspensionCounter:
    """Awaits the coroutine and counts how often it is suspended."""

    def __init__(self, work: Coroutine[Any, Any, None], waits: list[None]) -> None:
        self._work = work
        self._waits = waits

    def __await__(self) -> Generator[Any, None, None]:
        for future in self._work.__await__():
            self._waits.append(None)
            yield future


async def test_no_more_writers_are_woken_than_fit():
    channel = EventChannel(4)
    waits: list[None] = []

    async def write_events(name: str) -> None:
        for number in range(4):
            await SuspensionCounter(channel.put(make_note(str(number), name)), waits)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(write_events(f"a{number}"))
        await let_tasks_settle()
        assert len(waits) == 99
        for _ in range(10):
            await read_events(channel, 4)
            await let_tasks_settle()
        assert len(waits) <= 99 + 10 * 2
        channel.remove_capacity_limit()


async def test_a_cancelled_writer_wakes_the_next_one():
    channel = EventChannel(2)
    for _ in range(2):
        await channel.put(make_note("before"))
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(channel.put(make_note("first")))
        second = tasks.create_task(channel.put(make_note("second")))
        await let_tasks_settle()
        await read_events(channel, 2)
        first.cancel()
        await second
        assert await channel.get() == make_note("second")


async def test_closing_or_unbounding_a_channel_wakes_all_writers():
    for end in (EventChannel.close, EventChannel.remove_capacity_limit):
        channel = EventChannel(1)
        await channel.put(make_note("one"))
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            for number in range(10):
                tasks.create_task(channel.put(make_note(str(number))))
            await let_tasks_settle()
            end(channel)


async def test_events_in_a_closed_channel_can_still_be_read():
    channel = EventChannel()
    channel.force_put(make_note("last"))
    channel.close()
    channel.force_put(make_note("too late"))
    assert await read_events(channel, 2) == [make_note("last"), None]


async def test_a_waiting_reader_gets_the_next_event_and_the_end():
    channel = EventChannel()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read_events(channel, 2))
        await let_tasks_settle()
        await channel.put(make_note("one"))
        await let_tasks_settle()
        channel.close()
    assert reading.result() == [make_note("one"), None]
