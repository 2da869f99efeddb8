"""Agents that ask one model wait together, come back a few at a time, and do not die of an outage."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from model_helpers import DeltaRecorder, create_anthropic_model, make_request

from shoal.core.budgets.usage import ModelCard, Usage
from shoal.core.conversation.messages import Message, TextBlock, ToolUseBlock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    ModelRetryScheduledDelta,
    TextDelta,
    ignore_stream_delta,
)
from shoal.core.errors import (
    BadRequest,
    ConnectionLost,
    ModelError,
    Overloaded,
    RateLimited,
    ServerFault,
    StreamCut,
    StreamStalled,
    TransientModelError,
)
from shoal.models.rate_limiter import ModelRetryPolicy, RateLimiter, RateLimiterRegistry, RetryingModel
from shoal.testing import FakeClock, MockReply, messages_server
from shoal.testing.mock_replies import (
    CutStreamFault,
    make_overloaded_fault,
    make_rate_limit_fault,
    make_server_error_fault,
)
from shoal.wire.settings_codec import ShoalSettings

Health = Callable[[float], ModelError | None]
KINDS = [Overloaded, ServerFault, ConnectionLost, RateLimited, StreamCut, StreamStalled]
REPLY = ModelReply(
    message=Message(role="assistant", content=(TextBlock(text="Hi."),)),
    usage=Usage(),
    stop_reason="end_turn",
    model="m",
)


class FakeProvider:
    """A provider in memory whose health is a function of the time; every reply takes `latency` seconds."""

    card = ModelCard(id="m", provider="p")

    def __init__(
        self, clock: FakeClock, health: Callable[[float], ModelError | None], latency: float = 1.0
    ) -> None:
        self._clock = clock
        self._health = health
        self._latency = latency
        self.request_times: list[float] = []
        self.active_requests = 0
        self.peak_requests: dict[int, int] = {}

    async def generate_reply(self, _: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        await on_delta(ModelAttemptStartedDelta())
        now = self._clock.monotonic()
        self.request_times.append(now)
        self.active_requests += 1
        self.peak_requests[int(now)] = max(self.active_requests, self.peak_requests.get(int(now), 0))
        try:
            await self._clock.sleep(0.1)
            if (error := self._health(now)) is not None:
                raise error
            await on_delta(TextDelta("Hi."))
            await self._clock.sleep(self._latency)
        finally:
            self.active_requests -= 1
        return REPLY

    async def aclose(self) -> None: ...


def make_outage(
    until: float, kind: type[TransientModelError] = Overloaded, **facts: Any
) -> Callable[[float], ModelError | None]:
    return lambda now: kind("down", **facts) if now < until else None


def create_retrying_model(
    provider: Any, clock: FakeClock, limiter: RateLimiter | None = None, **patience: Any
) -> RetryingModel:
    limiter = limiter or RateLimiter(clock, random.Random(7), ModelRetryPolicy(**patience))
    return RetryingModel(provider, limiter, clock)


async def advance_until_done(clock: FakeClock, tasks: list[asyncio.Task[Any]], *, step: float = 5.0) -> None:
    """Advance the clock until all tasks are done."""
    for _ in range(10_000):
        if all(task.done() for task in tasks):
            return
        await clock.advance(step)
    raise AssertionError("they never finished")


@pytest.mark.spec("USR-09")
@pytest.mark.parametrize(
    "kind", [Overloaded, ServerFault, ConnectionLost, RateLimited, StreamCut, StreamStalled]
)
async def test_fifty_agents_survive_an_outage_of_ten_minutes(kind: type[TransientModelError]) -> None:
    clock = FakeClock()
    provider = FakeProvider(clock, make_outage(600, kind))
    model = create_retrying_model(provider, clock, max_outage=ShoalSettings().outage_patience)
    async with asyncio.TaskGroup() as group:
        agents = [
            group.create_task(model.generate_reply(make_request("Hi."), ignore_stream_delta))
            for _ in range(50)
        ]
        await advance_until_done(clock, agents)
    assert all(agent.result() == REPLY for agent in agents)
    during = [at for at in provider.request_times if 1 < at < 600]
    assert len(during) < 80, "they back off together, not each on its own"
    assert clock.monotonic() < 720


@pytest.mark.spec("USR-09")
async def test_agents_resume_gradually_after_an_outage() -> None:
    clock = FakeClock()
    provider = FakeProvider(clock, make_outage(60), latency=20)
    model = create_retrying_model(provider, clock)
    async with asyncio.TaskGroup() as group:
        agents = [
            group.create_task(model.generate_reply(make_request("Hi."), ignore_stream_delta))
            for _ in range(50)
        ]
        await advance_until_done(clock, agents, step=0.05)
    first = min(at for at in provider.request_times if at >= 60)
    back = sorted(at for at in provider.request_times if at >= 60)
    assert sum(at <= first + 0.05 for at in back) == 1
    assert sum(at <= first + 0.15 for at in back) <= 3
    assert sum(at <= first + 0.25 for at in back) <= 7
    assert sum(at <= first + 3 for at in back) == 50, (
        "an answer that begins lets the next go; no need for its end"
    )


@pytest.mark.spec("USR-09")
async def test_all_requests_obey_the_wait_that_a_provider_asks_for() -> None:
    clock = FakeClock()
    first = iter([RateLimited("slow down", retry_after=45)])
    provider = FakeProvider(clock, lambda _: next(first, None))
    limiter = RateLimiter(clock, random.Random(7))
    model, recorder = create_retrying_model(provider, clock, limiter), DeltaRecorder()
    async with asyncio.TaskGroup() as group:
        agents = [group.create_task(model.generate_reply(make_request("Hi."), recorder))]
        await clock.advance(1)
        agents.append(
            group.create_task(
                create_retrying_model(provider, clock, limiter).generate_reply(
                    make_request("Hi."), ignore_stream_delta
                )
            )
        )
        await advance_until_done(clock, agents)
    assert len(provider.request_times) == 3
    assert all(at >= 45.1 for at in provider.request_times[1:])
    assert recorder.list_deltas(ModelRetryScheduledDelta)[0].delay >= 45


async def test_backoff_delays_double_up_to_a_limit_with_jitter() -> None:
    limiter = RateLimiter(FakeClock(), random.Random(7))
    pauses = [[limiter.compute_backoff(failures) for _ in range(50)] for failures in range(1, 12)]
    for failures, tried in enumerate(pauses, 1):
        least = min(60.0, 2.0 ** (failures - 1))
        assert all(least <= pause <= least * 1.25 for pause in tried)
        assert len(set(tried)) > 40


async def test_a_listener_is_notified_of_each_attempt_and_each_retry() -> None:
    clock = FakeClock()
    errors = iter([StreamCut("cut"), Overloaded("busy")])
    provider = FakeProvider(clock, lambda _: next(errors, None))
    recorder = DeltaRecorder()
    async with asyncio.TaskGroup() as group:
        agent = group.create_task(
            create_retrying_model(provider, clock).generate_reply(make_request("Hi."), recorder)
        )
        await advance_until_done(clock, [agent])
    kinds = [type(delta) for delta in recorder.deltas]
    assert kinds == [
        ModelAttemptStartedDelta,
        ModelRetryScheduledDelta,
        ModelAttemptStartedDelta,
        ModelRetryScheduledDelta,
        ModelAttemptStartedDelta,
        TextDelta,
    ]
    waits = recorder.list_deltas(ModelRetryScheduledDelta)
    assert [(wait.attempt, wait.reason, wait.billed) for wait in waits] == [
        (1, "cut", True),
        (2, "busy", False),
    ]
    assert all(wait.delay > 0 for wait in waits)


async def test_an_outage_longer_than_the_maximum_fails_all_requests_at_about_that_time() -> None:
    clock = FakeClock()
    model = create_retrying_model(FakeProvider(clock, make_outage(1e9)), clock, max_outage=900)
    agents = [
        asyncio.ensure_future(model.generate_reply(make_request("Hi."), ignore_stream_delta))
        for _ in range(20)
    ]
    await advance_until_done(clock, agents)
    assert all(isinstance(agent.exception(), Overloaded) for agent in agents)
    assert 800 < clock.monotonic() < 1000


@pytest.mark.spec("USR-09")
async def test_a_requested_wait_longer_than_the_maximum_outage_fails_at_once() -> None:
    clock = FakeClock()
    provider = FakeProvider(clock, make_outage(1e9, RateLimited, retry_after=5 * 3600))
    agent = asyncio.ensure_future(
        create_retrying_model(provider, clock).generate_reply(make_request("Hi."), ignore_stream_delta)
    )
    await clock.advance(1)
    assert agent.done()
    error = agent.exception()
    assert isinstance(error, RateLimited)
    assert error.retry_after == 5 * 3600


@pytest.mark.spec("USR-09")
async def test_requests_during_a_pause_longer_than_the_maximum_outage_fail_at_once() -> None:
    clock = FakeClock()
    provider = FakeProvider(clock, make_outage(3600, RateLimited, retry_after=3600))
    limiter = RateLimiter(clock, random.Random(7))
    first, second, third = (create_retrying_model(provider, clock, limiter) for _ in range(3))
    asked = [
        asyncio.ensure_future(model.generate_reply(make_request("Hi."), ignore_stream_delta))
        for model in (first, second)
    ]
    await clock.advance(1)
    late = asyncio.ensure_future(third.generate_reply(make_request("Hi."), ignore_stream_delta))
    await clock.advance(1)
    assert [type(each.exception()) for each in (*asked, late)] == [RateLimited] * 3
    assert len(provider.request_times) == 2, "the pause is kept"
    assert "s are left" in str(late.exception())
    again = asyncio.ensure_future(third.generate_reply(make_request("Hi."), ignore_stream_delta))
    await clock.advance(1)
    assert again.done()
    await clock.advance(4500)
    now = asyncio.ensure_future(third.generate_reply(make_request("Hi."), ignore_stream_delta))
    await advance_until_done(clock, [now])
    assert now.result() == REPLY


async def test_a_permanent_error_is_raised_without_a_retry() -> None:
    clock = FakeClock()
    provider = FakeProvider(clock, lambda _: BadRequest("no"))
    agent = asyncio.ensure_future(
        create_retrying_model(provider, clock).generate_reply(make_request("Hi."), ignore_stream_delta)
    )
    await clock.advance(0.2)
    with pytest.raises(BadRequest):
        await agent
    assert len(provider.request_times) == 1


async def test_a_failed_request_is_retried_while_other_streams_still_run() -> None:
    clock = FakeClock()
    failing = iter([None] * 10 + [Overloaded("busy")])
    provider = FakeProvider(clock, lambda _: next(failing, None), latency=500)
    limiter = RateLimiter(clock, random.Random(7))
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(
                create_retrying_model(provider, clock, limiter).generate_reply(
                    make_request("Hi."), ignore_stream_delta
                )
            )
            for _ in range(10)
        ]
        await clock.advance(5)
        late = group.create_task(
            create_retrying_model(provider, clock, limiter).generate_reply(
                make_request("Hi."), ignore_stream_delta
            )
        )
        await clock.advance(10)
        assert len(provider.request_times) == 12, (
            "the one that failed was asked again while ten streams still run"
        )
        await advance_until_done(clock, [*running, late], step=50)


async def test_cancelled_requests_release_their_places_in_the_limiter() -> None:
    clock = FakeClock()
    provider = FakeProvider(clock, make_outage(30))
    limiter = RateLimiter(clock, random.Random(7))
    agents = [
        asyncio.ensure_future(
            create_retrying_model(provider, clock, limiter).generate_reply(
                make_request("Hi."), ignore_stream_delta
            )
        )
        for _ in range(20)
    ]
    for moment, agent in enumerate(agents[:-1]):
        await clock.advance(2.3 if moment % 2 else 0.05)
        agent.cancel()
    await advance_until_done(clock, agents)
    assert agents[-1].result() == REPLY
    async with asyncio.TaskGroup() as group:
        again = [
            group.create_task(
                create_retrying_model(provider, clock, limiter).generate_reply(
                    make_request("Hi."), ignore_stream_delta
                )
            )
            for _ in range(5)
        ]
        await advance_until_done(clock, again)


async def test_a_place_granted_to_a_request_as_it_is_cancelled_goes_to_the_next() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, random.Random(7))
    failing = await limiter.acquire()
    limiter.report_failure(failing, Overloaded("busy"))
    limiter.release(failing)
    await clock.advance(2)
    running = await limiter.acquire()
    second, third = (asyncio.ensure_future(limiter.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    limiter.release(running)
    second.cancel()
    await asyncio.wait_for(third, 30)
    assert second.cancelled()


async def test_a_request_that_waited_during_a_failure_is_the_only_probe_after_it() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, random.Random(7))
    turns = [await limiter.acquire() for _ in range(4)]
    limiter.report_failure(turns[0], RateLimited("slow"))
    await clock.advance(2)
    running = await limiter.acquire()
    limiter.report_failure(turns[1], RateLimited("slow", retry_after=10))
    asleep = asyncio.ensure_future(limiter.acquire())
    await clock.advance(1)
    limiter.report_failure(running, Overloaded("busy"))
    for turn in (*turns, running):
        limiter.release(turn)
    await clock.advance(20)
    assert asleep.done()
    another = asyncio.ensure_future(limiter.acquire())
    await clock.advance(1)
    assert not another.done(), "one tries, and the others wait for what becomes of it"
    limiter.report_answer_started(asleep.result())
    await asyncio.wait_for(another, 30)


@pytest.mark.spec("USR-09")
async def test_each_model_has_one_limiter() -> None:
    limiters = RateLimiterRegistry(FakeClock(), random.Random(7))
    assert limiters.get_limiter("anthropic", "a") is limiters.get_limiter("anthropic", "a")
    assert limiters.get_limiter("anthropic", "a") is not limiters.get_limiter("anthropic", "b")
    assert limiters.get_limiter("openai", "a") is not limiters.get_limiter(
        "openai", "a", base_url="http://localhost"
    )


@pytest.mark.spec("USR-09")
async def test_a_tool_call_cut_in_the_stream_is_retried_over_http_and_returned_complete() -> None:
    clock = FakeClock()
    whole = MockReply(content=(ToolUseBlock(id="t1", name="Read", input={"path": "abcdef"}),))
    cut = MockReply(content=whole.content, faults=(CutStreamFault(in_tool_call=True),))
    script = [
        make_overloaded_fault(),
        make_server_error_fault(),
        make_rate_limit_fault(retry_after=3),
        cut,
        cut,
        whole,
    ]
    async with messages_server(script) as server:
        inner, recorder = create_anthropic_model(server.url, clock=clock), DeltaRecorder()
        reply = asyncio.ensure_future(
            create_retrying_model(inner, clock).generate_reply(make_request("Go."), recorder)
        )
        for attempt in range(1, len(script)):
            await server.wait_for_requests(attempt)
            await recorder.wait_for_deltas(ModelRetryScheduledDelta, attempt)
            await clock.advance(recorder.list_deltas(ModelRetryScheduledDelta)[-1].delay + 0.01)
        assert (await asyncio.wait_for(reply, 30)).message.content == whole.content
        await inner.aclose()
    assert len(recorder.list_deltas(ModelAttemptStartedDelta)) == len(script)
    assert [wait.billed for wait in recorder.list_deltas(ModelRetryScheduledDelta)] == [
        False,
        False,
        False,
        True,
        True,
    ]
