"""Many agents of one budget: spending, end reasons and reservations."""

from __future__ import annotations

import asyncio

import pytest
from agent_harness import AgentHarness, create_harness

from shoal.agent.agent_runner import LoopLimits
from shoal.agent.compaction import compact_conversation
from shoal.agent.model_call import call_model
from shoal.core.budgets.agent_budgets import BudgetReservation
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import BudgetLimits
from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.conversation.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    ModelRetryScheduledDelta,
)
from shoal.core.errors import BudgetExhausted, ServerFault, StreamCut
from shoal.core.ids import LEAD_ID, AgentId
from shoal.models.fallback_model import ModelWithFallback
from shoal.models.scripted_model import ScriptedModel, ScriptedReply
from shoal.testing import FakeClock
from shoal.testing.fake_clock import run_until_idle
from shoal.tools.function_tool import tool

CARD = ModelCard(id="m", provider="x", price=TokenPrice(input=10.0, output=50.0))
ASKED = Usage(input_tokens=1_000, output_tokens=100)
COST = 0.015


@tool(reads_only=True)
async def echo(text: str) -> str:
    """Say it back."""
    return text


AGAIN = ScriptedReply(
    content=(ToolUseBlock(id="c", name="echo", input={"text": "x"}),), usage=ASKED, delay=1.0
)


def create_harnesses(budget: Budget, agents: int, clock: FakeClock) -> list[AgentHarness]:
    """Create agents that never stop; each request takes a second, so all are in flight at once."""
    return [
        create_harness(
            None,
            model=ScriptedModel(lambda _: AGAIN, card=CARD, clock=clock),
            tools=[echo],
            budget=budget,
            agent_id=AgentId(f"a{number}"),
            clock=clock,
        )
        for number in range(agents)
    ]


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (BudgetLimits(max_usd=4.0), "usd"),
        (BudgetLimits(max_tokens=300_000), "tokens"),
        (BudgetLimits(max_requests=250), "requests"),
    ],
)
async def test_a_hundred_concurrent_agents_exceed_the_budget_by_at_most_one_request_each(
    limits: BudgetLimits, limit: str
) -> None:
    clock = FakeClock()
    budget = Budget(limits, clock=clock)
    harnesses = create_harnesses(budget, 100, clock)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one.run_prompt()) for one in harnesses]
        while not all(task.done() for task in running):
            await clock.advance(1)
    ended = [task.result() for task in running]
    assert {(end.reason, end.limit) for end in ended} == {("budget", limit)}
    requests = sum(end.requests for end in ended)
    assert budget.usage == Usage(input_tokens=1_000 * requests, output_tokens=100 * requests)
    assert budget.usd == pytest.approx(COST * requests)
    spent = {"usd": budget.usd, "tokens": budget.usage.total_tokens, "requests": requests}[limit]
    one = {"usd": COST, "tokens": 1_100, "requests": 1}[limit]
    of = limits.max_usd or limits.max_tokens or limits.max_requests
    assert of is not None
    assert of <= spent <= of + 100 * one
    assert spent - of < 10 * one  # what is held keeps it far closer than that
    assert [meter.held for meter in budget.meters] == [0]
    for harness in harnesses:
        last = harness.agent.conversation.messages[-1].content[-1]
        assert isinstance(last, TextBlock | ToolResultBlock)  # no call is left without its result


async def test_requests_wait_while_the_rest_of_the_budget_is_reserved() -> None:
    clock = FakeClock()
    cheap = ScriptedReply(
        content=(TextBlock(text="ok"),), usage=Usage(input_tokens=10, output_tokens=1), delay=1.0
    )
    budget = Budget(BudgetLimits(max_tokens=1_000), clock=clock)
    harnesses = [
        create_harness(
            None,
            model=ScriptedModel(lambda _: cheap, card=CARD, clock=clock),
            budget=budget,
            agent_id=AgentId(f"a{number}"),
            clock=clock,
        )
        for number in range(50)
    ]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one.run_prompt()) for one in harnesses]
        await run_until_idle()
        # Two expect 400 tokens; the third reaches the last tenth and reserves its longest answer.
        assert CARD.max_output < budget.meters[0].held < CARD.max_output + 1_000
        assert len(budget.waiting) == 47
        running[-1].cancel()
        while not all(task.done() for task in running):
            await clock.advance(1)
    assert {task.result().reason for task in running[:-1]} == {"done"}
    assert budget.usage.total_tokens == 49 * 11
    assert not budget.waiting


async def test_a_cancelled_waiter_passes_its_reservation_on() -> None:
    budget = Budget(BudgetLimits(max_requests=1))
    first, second, third = (
        budget.get_or_create_agent_budget(AgentId(name), "x") for name in ("a1", "a2", "a3")
    )
    held = first.reserve(CARD, 10)
    assert isinstance(held, BudgetReservation)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(account.wait_and_reserve(CARD, 10)) for account in (second, third)]
        await run_until_idle()
        first.release(held)  # it failed unbilled
        waiting[0].cancel()
    assert isinstance(waiting[1].result(), BudgetReservation)


async def test_a_compaction_refused_by_the_budget_leaves_the_conversation_unchanged() -> None:
    small = ModelCard(id="m", provider="x", window=4_000, max_output=400, price=CARD.price)
    harnesses = create_harness(
        None, model=ScriptedModel(["hi"], card=small), budget_limits=BudgetLimits(max_requests=1)
    )
    await harnesses.run_prompt("word " * 3_000)
    before = list(harnesses.agent.conversation.messages)
    with pytest.raises(BudgetExhausted) as spent:
        await compact_conversation(harnesses.agent, "manual")
    assert spent.value.refusal.limit == "requests"
    assert harnesses.agent.conversation.messages == before
    ended = await harnesses.run_prompt("and then?")  # it is full, and there is no money for a summary
    assert (ended.reason, ended.requests) == ("budget", 0)
    assert harnesses.agent.conversation.messages[: len(before)] == before


@pytest.mark.spec("USR-01")
async def test_an_agent_past_its_time_limit_is_stopped_during_its_call() -> None:
    clock = FakeClock()
    begun = asyncio.Event()

    @tool(reads_only=True)
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    budget = Budget(BudgetLimits(max_seconds=60), clock=clock)
    calls = [ToolUseBlock(id="c", name="wait", input={})]
    harnesses = create_harness(calls, tools=[wait], budget=budget, clock=clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(harnesses.run_prompt())
        await begun.wait()
        await clock.advance(60)
    ended = running.result()
    assert (ended.reason, ended.limit, ended.requests) == ("deadline", "seconds", 1)
    assert ended.detail == "the time limit of 60 s for the whole run has passed"
    last = harnesses.agent.conversation.messages[-1].content[0]
    assert isinstance(last, ToolResultBlock)
    assert last.is_error


async def test_an_unbilled_failed_request_releases_its_reservation() -> None:
    harnesses = create_harness(
        None,
        model=ScriptedModel([ServerFault("500", provider="x")], card=CARD),
        budget_limits=BudgetLimits(max_requests=1, max_usd=1.0, max_tokens=10**6),
    )
    with pytest.raises(ServerFault):
        await harnesses.run_prompt()
    tree = harnesses.agent.budget.budget
    assert [(meter.held, meter.spent) for meter in tree.meters] == [(0, 0)] * 3


class Cut:
    """Breaks off twice in the middle of an answer."""

    card = CARD

    def __init__(self) -> None:
        self.attempts = 0

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        self.attempts += 1
        await on_delta(ModelAttemptStartedDelta())
        await on_delta(ModelRetryScheduledDelta(reason="cut", delay=0.0, attempt=1, billed=True))
        self.attempts += 1
        await on_delta(ModelAttemptStartedDelta())
        raise StreamCut("cut", provider="x")

    async def aclose(self) -> None: ...


async def test_interrupted_answers_count_with_their_estimate() -> None:
    harnesses = create_harness(None, model=Cut(), budget_limits=BudgetLimits(max_requests=10, max_usd=1.0))
    with pytest.raises(StreamCut):
        await harnesses.run_prompt("x" * 4_000)
    tree = harnesses.agent.budget.budget
    assert {meter.limit: meter.held for meter in tree.meters} == {"usd": 0, "requests": 0}
    spent = {meter.limit: meter.spent for meter in tree.meters}
    assert spent["requests"] == 2
    assert spent["usd"] == pytest.approx(2 * (1_003 * 10 + 400 * 50) / 1e6)
    assert (tree.usd, tree.usage) == (0.0, Usage())


@pytest.mark.parametrize(
    ("limits", "limit"), [(BudgetLimits(max_requests=1), "requests"), (BudgetLimits(max_usd=0.01), "usd")]
)
async def test_an_interrupted_answer_is_not_requested_again_beyond_the_budget(
    limits: BudgetLimits, limit: str
) -> None:
    model = Cut()
    harnesses = create_harness(None, model=model, budget_limits=limits)
    ended = await harnesses.run_prompt()
    assert (ended.reason, ended.limit) == ("budget", limit)
    assert model.attempts == 1
    (meter,) = harnesses.agent.budget.budget.meters
    assert meter.held == 0


async def test_an_attempt_without_a_reported_end_counts_with_its_estimate() -> None:
    class Restless(Cut):
        """Starts over without a word about the first attempt."""

        async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
            await on_delta(ModelAttemptStartedDelta())
            await on_delta(ModelAttemptStartedDelta())
            message = Message(role="assistant", content=(TextBlock(text="ok"),))
            return ModelReply(message=message, usage=ASKED, stop_reason="end_turn", model="m")

    harnesses = create_harness(None, model=Restless(), budget_limits=BudgetLimits(max_requests=10))
    assert (await harnesses.run_prompt()).reason == "done"
    (meter,) = harnesses.agent.budget.budget.meters
    assert (meter.spent, meter.held) == (2, 0)


@pytest.mark.parametrize("billed", [True, False])
async def test_a_fallback_is_billed_at_its_own_price(*, billed: bool) -> None:
    failure = StreamCut("cut", provider="x") if billed else ServerFault("500", provider="x")
    dear = ModelCard(id="dear", provider="x", price=TokenPrice(input=100.0, output=500.0))
    fallback = ScriptedReply(content=(TextBlock(text="ok"),), usage=ASKED)
    model = ModelWithFallback(ScriptedModel([failure], card=CARD), ScriptedModel([fallback], card=dear))
    harnesses = create_harness(None, model=model, budget_limits=BudgetLimits(max_requests=10, max_usd=1.0))
    assert (await harnesses.run_prompt()).reason == "done"
    tree = harnesses.agent.budget.budget
    assert tree.usd == pytest.approx(10 * COST)
    assert list(tree.spending_by_model) == ["dear"]
    assert {meter.limit: meter.held for meter in tree.meters} == {"usd": 0, "requests": 0}
    requests = next(meter for meter in tree.meters if meter.limit == "requests")
    assert requests.spent == 1 + billed


async def test_a_negative_count_of_an_empty_reply_gives_nothing_back() -> None:
    refund = ScriptedReply(content=(), usage=Usage(input_tokens=-1_000, output_tokens=-100))
    harnesses = create_harness(
        None,
        model=ScriptedModel(lambda _: refund, card=CARD),
        budget_limits=BudgetLimits(max_tokens=10**6, max_usd=1.0),
    )
    await harnesses.run_prompt()
    tree = harnesses.agent.budget.budget
    assert all(meter.spent > 0 for meter in tree.meters)


async def test_a_request_cancelled_in_flight_counts_with_its_estimate() -> None:
    clock = FakeClock()
    harnesses = create_harness(
        None,
        model=ScriptedModel(lambda _: AGAIN, card=CARD, clock=clock),
        budget_limits=BudgetLimits(max_requests=10),
        clock=clock,
    )
    task = asyncio.ensure_future(call_model(harnesses.agent, harnesses.agent.build_model_request()))
    await clock.wait_for_sleepers()
    task.cancel()
    await asyncio.wait([task])
    meter = harnesses.agent.budget.budget.meters[0]
    assert (meter.spent, meter.held) == (1, 0)


async def test_the_turn_limit_applies_to_one_agent() -> None:
    clock = FakeClock()
    budget = Budget(BudgetLimits(max_requests=100), clock=clock)
    harnesses = create_harness(
        None,
        model=ScriptedModel(lambda _: AGAIN.content[0], card=CARD),
        tools=[echo],
        budget=budget,
        loop_limits=LoopLimits(max_turns=2),
        clock=clock,
    )
    assert (await harnesses.run_prompt()).reason == "max_turns"
    assert (
        budget.get_or_create_agent_budget(LEAD_ID, "lead").usage.output_tokens
        == budget.usage.output_tokens
        > 0
    )
