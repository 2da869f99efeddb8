"""The channel between a turn and its reader: bounded, in order, and nobody waits in it for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from shoal.core.events import Event, Noted
from shoal.core.ids import AgentId
from shoal.runs.channel import Channel


def event(text: str, agent: str = "lead") -> Noted:
    return Noted(agent=AgentId(agent), text=text)


async def read(channel: Channel, count: int) -> list[Event | None]:
    return [await channel.get() for _ in range(count)]


async def settled() -> None:
    """Every task that can run has run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_writer_waits_while_the_reader_is_far_behind_and_goes_on_when_half_is_read():
    channel = Channel(4)
    for number in range(4):
        await channel.put(event(str(number)))
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        late = tasks.create_task(channel.put(event("late")))
        await settled()
        assert not late.done()
        await read(channel, 1)
        await settled()
        assert not late.done()
        await read(channel, 1)
        await late


async def test_everything_that_many_writers_say_arrives_and_each_in_its_order():
    channel = Channel(8)

    async def speak(name: str) -> None:
        for number in range(30):
            await channel.put(event(str(number), name))

    async def all_said() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(speak(f"a{number}"))
        channel.close()

    heard: dict[str, list[str]] = {}
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(all_said())
        while (told := await channel.get()) is not None:
            assert isinstance(told, Noted)
            heard.setdefault(told.agent, []).append(told.text)
    assert len(heard) == 50
    assert all(texts == [str(number) for number in range(30)] for texts in heard.values())


class Counted:
    """Waits for the coroutine, and counts how often it was told to wait."""

    def __init__(self, work: Coroutine[Any, Any, None], waits: list[None]) -> None:
        self._work = work
        self._waits = waits

    def __await__(self) -> Generator[Any, None, None]:
        for future in self._work.__await__():
            self._waits.append(None)
            yield future


async def test_of_many_waiting_writers_no_more_are_woken_than_find_room():
    channel = Channel(4)
    waits: list[None] = []

    async def speak(name: str) -> None:
        for number in range(4):
            await Counted(channel.put(event(str(number), name)), waits)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(speak(f"a{number}"))
        await settled()
        assert len(waits) == 99
        for _ in range(10):
            await read(channel, 4)
            await settled()
        assert len(waits) <= 99 + 10 * 2
        channel.widen()


async def test_a_writer_that_is_cancelled_when_its_turn_comes_lets_the_next_one_in():
    channel = Channel(2)
    for _ in range(2):
        await channel.put(event("before"))
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(channel.put(event("first")))
        second = tasks.create_task(channel.put(event("second")))
        await settled()
        await read(channel, 2)
        first.cancel()
        await second
        assert await channel.get() == event("second")


async def test_nobody_waits_in_a_channel_that_is_closed_or_widened():
    for end in (Channel.close, Channel.widen):
        channel = Channel(1)
        await channel.put(event("one"))
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            for number in range(10):
                tasks.create_task(channel.put(event(str(number))))
            await settled()
            end(channel)


async def test_what_is_in_a_closed_channel_can_still_be_read():
    channel = Channel()
    channel.push(event("last"))
    channel.close()
    channel.push(event("too late"))
    assert await read(channel, 2) == [event("last"), None]


async def test_a_reader_that_waits_hears_of_an_event_and_of_the_end():
    channel = Channel()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read(channel, 2))
        await settled()
        await channel.put(event("one"))
        await settled()
        channel.close()
    assert reading.result() == [event("one"), None]
