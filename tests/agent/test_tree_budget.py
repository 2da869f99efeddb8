"""Many agents on one purse, through the loop: what is spent, how each ends, and what is left of it."""

from __future__ import annotations

import asyncio

import pytest
from rig import Rig, rig

from shoal.agent.agent import Bounds
from shoal.agent.asking import ask
from shoal.agent.compaction import compact
from shoal.core.accounts import Reservation
from shoal.core.budget import Purse
from shoal.core.caps import Limits
from shoal.core.errors import BudgetSpent, ServerFault, StreamCut
from shoal.core.ids import LEAD, AgentId
from shoal.core.messages import Text, ToolResult, ToolUse
from shoal.core.requests import Hear, Reply, Request, Retrying, Sent
from shoal.core.usage import ModelCard, Price, Usage
from shoal.models.scripted import Line, ScriptedModel
from shoal.testing import FakeClock
from shoal.testing.clock import settle
from shoal.tools.define import tool

CARD = ModelCard(id="m", provider="x", price=Price(input=10.0, output=50.0))
ASKED = Usage(input_tokens=1_000, output_tokens=100)
COST = 0.015


@tool(reads_only=True)
async def echo(text: str) -> str:
    """Say it back."""
    return text


AGAIN = Line(content=(ToolUse(id="c", name="echo", input={"text": "x"}),), usage=ASKED, delay=1.0)


def tree(purse: Purse, agents: int, clock: FakeClock) -> list[Rig]:
    """They never stop by themselves; each request takes a second, so that all are in flight at once."""
    return [
        rig(
            None,
            model=ScriptedModel(lambda _: AGAIN, card=CARD, clock=clock),
            tools=[echo],
            purse=purse,
            agent_id=AgentId(f"a{number}"),
            clock=clock,
        )
        for number in range(agents)
    ]


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(max_usd=4.0), "usd"),
        (Limits(max_tokens=300_000), "tokens"),
        (Limits(max_requests=250), "requests"),
    ],
)
async def test_a_hundred_agents_side_by_side_spend_no_more_than_the_budget_and_one_request_each(
    limits: Limits, limit: str
) -> None:
    clock = FakeClock()
    purse = Purse(limits, clock=clock)
    made = tree(purse, 100, clock)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one.run()) for one in made]
        while not all(task.done() for task in running):
            await clock.advance(1)
    ended = [task.result() for task in running]
    assert {(end.reason, end.limit) for end in ended} == {("budget", limit)}
    requests = sum(end.requests for end in ended)
    assert purse.usage == Usage(input_tokens=1_000 * requests, output_tokens=100 * requests)
    assert purse.usd == pytest.approx(COST * requests)
    spent = {"usd": purse.usd, "tokens": purse.usage.total_tokens, "requests": requests}[limit]
    one = {"usd": COST, "tokens": 1_100, "requests": 1}[limit]
    of = limits.max_usd or limits.max_tokens or limits.max_requests
    assert of is not None
    assert of <= spent <= of + 100 * one
    assert spent - of < 10 * one  # what is held keeps it far closer than that
    assert [meter.held for meter in purse.meters] == [0]
    for rigged in made:
        last = rigged.agent.conversation.messages[-1].content[-1]
        assert isinstance(last, Text | ToolResult)  # no call is left without its result


async def test_requests_wait_where_the_rest_of_a_budget_is_only_spoken_for() -> None:
    clock = FakeClock()
    cheap = Line(content=(Text(text="ok"),), usage=Usage(input_tokens=10, output_tokens=1), delay=1.0)
    purse = Purse(Limits(max_tokens=1_000), clock=clock)
    made = [
        rig(
            None,
            model=ScriptedModel(lambda _: cheap, card=CARD, clock=clock),
            purse=purse,
            agent_id=AgentId(f"a{number}"),
            clock=clock,
        )
        for number in range(50)
    ]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one.run()) for one in made]
        await settle()
        assert 0 < purse.meters[0].held < 2_000  # expected are 400 tokens for each
        assert len(purse.waiting) > 40
        running[-1].cancel()
        while not all(task.done() for task in running):
            await clock.advance(1)
    assert {task.result().reason for task in running[:-1]} == {"done"}
    assert purse.usage.total_tokens == 49 * 11
    assert not purse.waiting


async def test_who_is_cancelled_when_its_turn_came_passes_it_on() -> None:
    purse = Purse(Limits(max_requests=1))
    first, second, third = (purse.account(AgentId(name), "x") for name in ("a1", "a2", "a3"))
    held = first.reserve(CARD, 10)
    assert isinstance(held, Reservation)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(account.hold(CARD, 10)) for account in (second, third)]
        await settle()
        first.release(held)  # it failed unbilled
        waiting[0].cancel()
    assert isinstance(waiting[1].result(), Reservation)


async def test_a_refused_summary_leaves_the_conversation_as_it_is() -> None:
    small = ModelCard(id="m", provider="x", window=4_000, max_output=400, price=CARD.price)
    made = rig(None, model=ScriptedModel(["hi"], card=small), limits=Limits(max_requests=1))
    await made.run("word " * 3_000)
    before = list(made.agent.conversation.messages)
    with pytest.raises(BudgetSpent) as spent:
        await compact(made.agent, "manual")
    assert spent.value.refusal.limit == "requests"
    assert made.agent.conversation.messages == before
    ended = await made.run("and then?")  # it is full, and there is no money for a summary
    assert (ended.reason, ended.requests) == ("budget", 0)
    assert made.agent.conversation.messages[: len(before)] == before


@pytest.mark.spec("USR-01")
async def test_an_agent_whose_time_is_up_is_stopped_amid_its_call() -> None:
    clock = FakeClock()
    begun = asyncio.Event()

    @tool(reads_only=True)
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    purse = Purse(Limits(max_seconds=60), clock=clock)
    calls = [ToolUse(id="c", name="wait", input={})]
    made = rig(calls, tools=[wait], purse=purse, clock=clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(made.run())
        await begun.wait()
        await clock.advance(60)
    ended = running.result()
    assert (ended.reason, ended.limit, ended.requests) == ("deadline", "seconds", 1)
    assert ended.detail == "the 60 s for the whole run have passed"
    last = made.agent.conversation.messages[-1].content[0]
    assert isinstance(last, ToolResult)
    assert last.is_error


async def test_a_request_that_fails_unbilled_gives_back_what_was_held() -> None:
    made = rig(
        None,
        model=ScriptedModel([ServerFault("500", provider="x")], card=CARD),
        limits=Limits(max_requests=1, max_usd=1.0, max_tokens=10**6),
    )
    with pytest.raises(ServerFault):
        await made.run()
    tree = made.agent.purse.tree
    assert [(meter.held, meter.spent) for meter in tree.meters] == [(0, 0)] * 3


class Cut:
    """Breaks off once in mid-answer, and answers when asked again."""

    card = CARD

    async def reply(self, request: Request, hear: Hear) -> Reply:
        await hear(Sent())
        await hear(Retrying(reason="cut", delay=0.0, attempt=1, billed=True))
        await hear(Sent())
        raise StreamCut("cut", provider="x")

    async def aclose(self) -> None: ...


async def test_answers_that_broke_off_count_against_the_limits_by_their_estimate() -> None:
    made = rig(None, model=Cut(), limits=Limits(max_requests=10, max_usd=1.0))
    with pytest.raises(StreamCut):
        await made.run("x" * 4_000)
    tree = made.agent.purse.tree
    assert {meter.limit: meter.held for meter in tree.meters} == {"usd": 0, "requests": 0}
    spent = {meter.limit: meter.spent for meter in tree.meters}
    assert spent["requests"] == 2
    assert spent["usd"] == pytest.approx(2 * (1_003 * 10 + 400 * 50) / 1e6)
    assert (tree.usd, tree.usage) == (0.0, Usage())


async def test_a_request_that_is_cancelled_in_flight_counts_by_its_estimate() -> None:
    clock = FakeClock()
    made = rig(
        None,
        model=ScriptedModel(lambda _: AGAIN, card=CARD, clock=clock),
        limits=Limits(max_requests=10),
        clock=clock,
    )
    task = asyncio.ensure_future(ask(made.agent, made.agent.request()))
    await clock.asleep()
    task.cancel()
    await asyncio.wait([task])
    meter = made.agent.purse.tree.meters[0]
    assert (meter.spent, meter.held) == (1, 0)


async def test_the_turn_limit_of_one_agent_still_is_its_own() -> None:
    clock = FakeClock()
    purse = Purse(Limits(max_requests=100), clock=clock)
    made = rig(
        None,
        model=ScriptedModel(lambda _: AGAIN.content[0], card=CARD),
        tools=[echo],
        purse=purse,
        bounds=Bounds(max_turns=2),
        clock=clock,
    )
    assert (await made.run()).reason == "max_turns"
    assert purse.account(LEAD, "lead").usage.output_tokens == purse.usage.output_tokens > 0
