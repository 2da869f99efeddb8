"""Agents that ask one model wait together, come back a few at a time, and do not die of an outage."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from model_kit import Ear, anthropic_at, asking

from shoal.core.errors import (
    BadRequest,
    ConnectionLost,
    ModelError,
    Overloaded,
    RateLimited,
    ServerFault,
    StreamCut,
    StreamStalled,
    Transient,
)
from shoal.core.messages import Message, Text, ToolUse
from shoal.core.requests import Hear, Reply, Request, Retrying, Sent, TextDelta, unheard
from shoal.core.usage import ModelCard, Usage
from shoal.models.limiter import Limiter, Limiters, Patience, PatientModel
from shoal.testing import Answer, FakeClock, messages_server
from shoal.testing.replies import Cut, overloaded, rate_limited, server_error
from shoal.wire.settings import Own

Health = Callable[[float], ModelError | None]
KINDS = [Overloaded, ServerFault, ConnectionLost, RateLimited, StreamCut, StreamStalled]
REPLY = Reply(
    message=Message(role="assistant", content=(Text(text="Hi."),)),
    usage=Usage(),
    stop_reason="end_turn",
    model="m",
)


class Provider:
    """A provider in memory whose health is a function of the time; every reply takes `latency` seconds."""

    card = ModelCard(id="m", provider="p")

    def __init__(
        self, clock: FakeClock, health: Callable[[float], ModelError | None], latency: float = 1.0
    ) -> None:
        self._clock = clock
        self._health = health
        self._latency = latency
        self.asked: list[float] = []
        self.at_once = 0
        self.most_at_once: dict[int, int] = {}

    async def reply(self, _: Request, hear: Hear) -> Reply:
        await hear(Sent())
        now = self._clock.monotonic()
        self.asked.append(now)
        self.at_once += 1
        self.most_at_once[int(now)] = max(self.at_once, self.most_at_once.get(int(now), 0))
        try:
            await self._clock.sleep(0.1)
            if (error := self._health(now)) is not None:
                raise error
            await hear(TextDelta("Hi."))
            await self._clock.sleep(self._latency)
        finally:
            self.at_once -= 1
        return REPLY

    async def aclose(self) -> None: ...


def outage(
    until: float, kind: type[Transient] = Overloaded, **facts: Any
) -> Callable[[float], ModelError | None]:
    return lambda now: kind("down", **facts) if now < until else None


def patient(provider: Any, clock: FakeClock, limiter: Limiter | None = None, **patience: Any) -> PatientModel:
    limiter = limiter or Limiter(clock, random.Random(7), Patience(**patience))
    return PatientModel(provider, limiter, clock)


async def finished(clock: FakeClock, tasks: list[asyncio.Task[Any]], *, step: float = 5.0) -> None:
    """Let the time pass until all are done."""
    for _ in range(10_000):
        if all(task.done() for task in tasks):
            return
        await clock.advance(step)
    raise AssertionError("they never finished")


@pytest.mark.spec("USR-09")
@pytest.mark.parametrize(
    "kind", [Overloaded, ServerFault, ConnectionLost, RateLimited, StreamCut, StreamStalled]
)
async def test_fifty_agents_survive_an_outage_of_ten_minutes(kind: type[Transient]) -> None:
    clock = FakeClock()
    provider = Provider(clock, outage(600, kind))
    model = patient(provider, clock, outage=Own().outage_patience)
    async with asyncio.TaskGroup() as group:
        agents = [group.create_task(model.reply(asking("Hi."), unheard)) for _ in range(50)]
        await finished(clock, agents)
    assert all(agent.result() == REPLY for agent in agents)
    during = [at for at in provider.asked if 1 < at < 600]
    assert len(during) < 80, "they back off together, not each on its own"
    assert clock.monotonic() < 720


@pytest.mark.spec("USR-09")
async def test_after_an_outage_they_come_back_gradually() -> None:
    clock = FakeClock()
    provider = Provider(clock, outage(60), latency=20)
    model = patient(provider, clock)
    async with asyncio.TaskGroup() as group:
        agents = [group.create_task(model.reply(asking("Hi."), unheard)) for _ in range(50)]
        await finished(clock, agents, step=0.05)
    first = min(at for at in provider.asked if at >= 60)
    back = sorted(at for at in provider.asked if at >= 60)
    assert sum(at <= first + 0.05 for at in back) == 1
    assert sum(at <= first + 0.15 for at in back) <= 3
    assert sum(at <= first + 0.25 for at in back) <= 7
    assert sum(at <= first + 3 for at in back) == 50, (
        "an answer that begins lets the next go; no need for its end"
    )


@pytest.mark.spec("USR-09")
async def test_the_wait_a_provider_asks_for_is_kept_by_all() -> None:
    clock = FakeClock()
    first = iter([RateLimited("slow down", retry_after=45)])
    provider = Provider(clock, lambda _: next(first, None))
    limiter = Limiter(clock, random.Random(7))
    model, ear = patient(provider, clock, limiter), Ear()
    async with asyncio.TaskGroup() as group:
        agents = [group.create_task(model.reply(asking("Hi."), ear))]
        await clock.advance(1)
        agents.append(group.create_task(patient(provider, clock, limiter).reply(asking("Hi."), unheard)))
        await finished(clock, agents)
    assert len(provider.asked) == 3
    assert all(at >= 45.1 for at in provider.asked[1:])
    assert ear.of(Retrying)[0].delay >= 45


async def test_pauses_double_up_to_a_limit_and_vary() -> None:
    limiter = Limiter(FakeClock(), random.Random(7))
    pauses = [[limiter.backoff(failures) for _ in range(50)] for failures in range(1, 12)]
    for failures, tried in enumerate(pauses, 1):
        least = min(60.0, 2.0 ** (failures - 1))
        assert all(least <= pause <= least * 1.25 for pause in tried)
        assert len(set(tried)) > 40


async def test_a_listener_is_told_of_each_attempt_and_each_wait() -> None:
    clock = FakeClock()
    errors = iter([StreamCut("cut"), Overloaded("busy")])
    provider = Provider(clock, lambda _: next(errors, None))
    ear = Ear()
    async with asyncio.TaskGroup() as group:
        agent = group.create_task(patient(provider, clock).reply(asking("Hi."), ear))
        await finished(clock, [agent])
    kinds = [type(delta) for delta in ear.heard]
    assert kinds == [Sent, Retrying, Sent, Retrying, Sent, TextDelta]
    waits = ear.of(Retrying)
    assert [(wait.attempt, wait.reason, wait.billed) for wait in waits] == [
        (1, "cut", True),
        (2, "busy", False),
    ]
    assert all(wait.delay > 0 for wait in waits)


async def test_an_outage_longer_than_patience_is_the_end_for_everyone_at_about_that_time() -> None:
    clock = FakeClock()
    model = patient(Provider(clock, outage(1e9)), clock, outage=900)
    agents = [asyncio.ensure_future(model.reply(asking("Hi."), unheard)) for _ in range(20)]
    await finished(clock, agents)
    assert all(isinstance(agent.exception(), Overloaded) for agent in agents)
    assert 800 < clock.monotonic() < 1000


@pytest.mark.spec("USR-09")
async def test_a_wait_longer_than_patience_is_not_begun() -> None:
    clock = FakeClock()
    provider = Provider(clock, outage(1e9, RateLimited, retry_after=5 * 3600))
    agent = asyncio.ensure_future(patient(provider, clock).reply(asking("Hi."), unheard))
    await clock.advance(1)
    assert agent.done()
    error = agent.exception()
    assert isinstance(error, RateLimited)
    assert error.retry_after == 5 * 3600


@pytest.mark.spec("USR-09")
async def test_nobody_waits_out_a_pause_longer_than_patience_that_another_was_told_of() -> None:
    clock = FakeClock()
    provider = Provider(clock, outage(3600, RateLimited, retry_after=3600))
    limiter = Limiter(clock, random.Random(7))
    first, second, third = (patient(provider, clock, limiter) for _ in range(3))
    asked = [asyncio.ensure_future(model.reply(asking("Hi."), unheard)) for model in (first, second)]
    await clock.advance(1)
    late = asyncio.ensure_future(third.reply(asking("Hi."), unheard))
    await clock.advance(1)
    assert [type(each.exception()) for each in (*asked, late)] == [RateLimited] * 3
    assert len(provider.asked) == 2, "the pause is kept"
    assert "s are left" in str(late.exception())
    again = asyncio.ensure_future(third.reply(asking("Hi."), unheard))
    await clock.advance(1)
    assert again.done()
    await clock.advance(4500)
    now = asyncio.ensure_future(third.reply(asking("Hi."), unheard))
    await finished(clock, [now])
    assert now.result() == REPLY


async def test_what_asking_again_does_not_change_is_raised_at_once() -> None:
    clock = FakeClock()
    provider = Provider(clock, lambda _: BadRequest("no"))
    agent = asyncio.ensure_future(patient(provider, clock).reply(asking("Hi."), unheard))
    await clock.advance(0.2)
    with pytest.raises(BadRequest):
        await agent
    assert len(provider.asked) == 1


async def test_streams_that_go_well_are_not_held_up_by_one_that_fails() -> None:
    clock = FakeClock()
    failing = iter([None] * 10 + [Overloaded("busy")])
    provider = Provider(clock, lambda _: next(failing, None), latency=500)
    limiter = Limiter(clock, random.Random(7))
    async with asyncio.TaskGroup() as group:
        going = [
            group.create_task(patient(provider, clock, limiter).reply(asking("Hi."), unheard))
            for _ in range(10)
        ]
        await clock.advance(5)
        late = group.create_task(patient(provider, clock, limiter).reply(asking("Hi."), unheard))
        await clock.advance(10)
        assert len(provider.asked) == 12, "the one that failed was asked again while ten streams still run"
        await finished(clock, [*going, late], step=50)


async def test_cancelled_agents_leave_their_places_to_others() -> None:
    clock = FakeClock()
    provider = Provider(clock, outage(30))
    limiter = Limiter(clock, random.Random(7))
    agents = [
        asyncio.ensure_future(patient(provider, clock, limiter).reply(asking("Hi."), unheard))
        for _ in range(20)
    ]
    for moment, agent in enumerate(agents[:-1]):
        await clock.advance(2.3 if moment % 2 else 0.05)
        agent.cancel()
    await finished(clock, agents)
    assert agents[-1].result() == REPLY
    async with asyncio.TaskGroup() as group:
        again = [
            group.create_task(patient(provider, clock, limiter).reply(asking("Hi."), unheard))
            for _ in range(5)
        ]
        await finished(clock, again)


async def test_a_place_called_up_in_the_moment_of_cancelling_goes_to_the_next() -> None:
    clock = FakeClock()
    limiter = Limiter(clock, random.Random(7))
    failing = await limiter.enter()
    limiter.failed(failing, Overloaded("busy"))
    limiter.leave(failing)
    await clock.advance(2)
    going = await limiter.enter()
    second, third = (asyncio.ensure_future(limiter.enter()) for _ in range(2))
    await asyncio.sleep(0)
    limiter.leave(going)
    second.cancel()
    await asyncio.wait_for(third, 30)
    assert second.cancelled()


async def test_who_slept_through_a_failure_counts_among_those_who_try_after_it() -> None:
    clock = FakeClock()
    limiter = Limiter(clock, random.Random(7))
    turns = [await limiter.enter() for _ in range(4)]
    limiter.failed(turns[0], RateLimited("slow"))
    await clock.advance(2)
    going = await limiter.enter()
    limiter.failed(turns[1], RateLimited("slow", retry_after=10))
    asleep = asyncio.ensure_future(limiter.enter())
    await clock.advance(1)
    limiter.failed(going, Overloaded("busy"))
    for turn in (*turns, going):
        limiter.leave(turn)
    await clock.advance(20)
    assert asleep.done()
    another = asyncio.ensure_future(limiter.enter())
    await clock.advance(1)
    assert not another.done(), "one tries, and the others wait for what becomes of it"
    limiter.answering(asleep.result())
    await asyncio.wait_for(another, 30)


@pytest.mark.spec("USR-09")
async def test_each_model_has_one_limiter() -> None:
    limiters = Limiters(FakeClock(), random.Random(7))
    assert limiters.of("anthropic", "a") is limiters.of("anthropic", "a")
    assert limiters.of("anthropic", "a") is not limiters.of("anthropic", "b")
    assert limiters.of("openai", "a") is not limiters.of("openai", "a", base_url="http://localhost")


@pytest.mark.spec("USR-09")
async def test_over_http_a_cut_call_is_asked_again_and_given_whole() -> None:
    clock = FakeClock()
    whole = Answer(content=(ToolUse(id="t1", name="Read", input={"path": "abcdef"}),))
    cut = Answer(content=whole.content, faults=(Cut(in_tool_call=True),))
    mind = [overloaded(), server_error(), rate_limited(retry_after=3), cut, cut, whole]
    async with messages_server(mind) as server:
        inner, ear = anthropic_at(server.url, clock=clock), Ear()
        reply = asyncio.ensure_future(patient(inner, clock).reply(asking("Go."), ear))
        for attempt in range(1, len(mind)):
            await server.arrived(attempt)
            await ear.until(Retrying, attempt)
            await clock.advance(ear.of(Retrying)[-1].delay + 0.01)
        assert (await asyncio.wait_for(reply, 30)).message.content == whole.content
        await inner.aclose()
    assert len(ear.of(Sent)) == len(mind)
    assert [wait.billed for wait in ear.of(Retrying)] == [False, False, False, True, True]
