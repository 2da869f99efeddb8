"""The purse of a tree of agents: held, settled, released, and never passed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.accounts import Account, Reservation
from shoal.core.budget import Purse
from shoal.core.caps import Caps, Limits, Meter, Refusal, Started
from shoal.core.errors import BudgetError
from shoal.core.events import BudgetWarned
from shoal.core.ids import LEAD, AgentId
from shoal.core.usage import LongPrompt, ModelCard, Price, Spent, Usage
from shoal.testing import FakeClock

CARD = ModelCard(id="m", provider="x", price=Price(input=10.0, output=50.0, cache_read=1.0))
OTHER = ModelCard(id="n", provider="x", price=Price(input=1.0, output=5.0))
UNPRICED = ModelCard(id="stranger", provider="x")
ASKED = Usage(input_tokens=1_000, output_tokens=100)
COST = CARD.price.of(ASKED) if CARD.price else 0.0


def agent(number: int) -> AgentId:
    return AgentId(f"a{number}")


def reserved(account: Account, prompt: int = 1_000) -> Reservation:
    held = account.reserve(CARD, prompt)
    assert isinstance(held, Reservation), held
    return held


def refused(account: Account, prompt: int = 1_000) -> Refusal:
    refusal = account.reserve(CARD, prompt)
    assert isinstance(refusal, Refusal), refusal
    return refusal


def spend(account: Account, usage: Usage = ASKED, card: ModelCard = CARD) -> None:
    held = account.reserve(card, usage.prompt_tokens)
    assert isinstance(held, Reservation), held
    account.settle(held, usage)


@pytest.mark.spec("USR-01")
def test_what_is_held_for_one_agent_is_not_there_for_another() -> None:
    purse = Purse(Limits(max_usd=10 * COST))
    spend(purse.account(LEAD, "lead"))
    agents = [purse.account(agent(n), "worker") for n in range(100)]
    held = [
        got for got in (account.reserve(CARD, 1_000) for account in agents) if isinstance(got, Reservation)
    ]
    assert len(held) == 9
    refusal = refused(agents[99])
    assert (refusal.limit, refusal.scope) == ("usd", "tree")
    assert "spoken for" in refusal.sentence
    assert refusal.for_now
    agents[0].release(held[0])
    assert isinstance(agents[99].reserve(CARD, 1_000), Reservation)


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize("limits", [Limits(max_usd=0.1), Limits(max_tokens=50_000), Limits(max_requests=7)])
def test_a_hundred_agents_pass_no_limit_by_more_than_one_request_each(limits: Limits) -> None:
    purse = Purse(limits)
    dearest = Usage(input_tokens=5_000, output_tokens=900)
    accounts = [purse.account(agent(n), "worker") for n in range(100)]
    for _ in range(20):
        flying = [(account, account.reserve(CARD, 1_000)) for account in accounts]
        for account, held in flying:
            if isinstance(held, Reservation):
                account.settle(held, dearest)
    assert CARD.price is not None
    assert purse.usd <= (limits.max_usd or 1e9) + 100 * CARD.price.of(dearest)
    assert purse.usage.total_tokens <= (limits.max_tokens or 10**12) + 100 * dearest.total_tokens
    requests = purse.usage.input_tokens // 5_000
    assert requests <= (limits.max_requests or 10**9)
    assert 0 < requests < 100


def test_an_expected_answer_is_not_the_longest_possible_one() -> None:
    card = ModelCard(id="m", provider="x", max_output=128_000, price=CARD.price)
    purse = Purse(Limits(max_usd=1.0))
    account = purse.account(LEAD, "lead")
    held = account.reserve(card, 1_000)
    assert isinstance(held, Reservation)
    assert held.usd < 0.05  # the longest answer would be $6.40


def test_answers_and_cached_prompts_teach_what_the_next_request_costs() -> None:
    account = Purse(Limits(max_usd=100.0)).account(LEAD, "lead")
    first = reserved(account, 100_000)
    assert first.usd == pytest.approx(1.02, rel=1e-6)  # all of the prompt at its full price, 400 tokens out
    cached = Usage(cache_read_input_tokens=100_000, output_tokens=2_000)
    account.settle(first, cached)
    second = reserved(account, 100_000)
    assert second.usd == pytest.approx(0.1 + 0.1, rel=1e-6)
    assert second.tokens == 102_000


def test_a_long_prompt_is_held_at_its_own_price() -> None:
    long = Price(input=20.0, output=100.0)
    card = ModelCard(
        id="m", provider="x", price=Price(input=10, output=50, beyond=LongPrompt(tokens=200_000, price=long))
    )
    account = Purse(Limits(max_usd=100.0)).account(LEAD, "lead")
    held = account.reserve(card, 300_000)
    assert isinstance(held, Reservation)
    assert held.usd == pytest.approx(6.04, rel=1e-6)
    account.settle(held, Usage(input_tokens=300_000, output_tokens=400))
    again = account.reserve(card, 300_000)
    assert isinstance(again, Reservation)
    assert again.usd == pytest.approx(6.04, rel=1e-6)


@pytest.mark.spec("USR-01")
def test_limits_hold_for_each_agent_for_each_type_and_for_all() -> None:
    purse = Purse(
        Limits(max_requests=10),
        per_agent=Limits(max_requests=2),
        per_type={"Explore": Limits(max_requests=3)},
    )
    one, two = purse.account(agent(1), "Explore"), purse.account(agent(2), "Explore")
    spend(one)
    spend(one)
    own = refused(one)
    assert (own.limit, own.scope, own.whose) == ("requests", "agent", "a1")
    assert own.sentence == "the budget of 2 requests for agent a1 is spent (2 requests)"
    spend(two)
    typed = refused(two)
    assert (typed.scope, typed.whose) == ("kind", "Explore")
    lead = purse.account(LEAD, "lead")
    for _ in range(7):
        spend(lead)  # the limit of each agent does not bind the lead
    assert (refused(lead).scope, refused(purse.account(agent(3), "Plan")).scope) == ("tree", "tree")


def test_limits_of_its_own_can_only_be_tighter_than_those_of_each_agent() -> None:
    purse = Purse(Limits(), per_agent=Limits(max_requests=2, max_tokens=10**6))
    strict = purse.account(agent(1), "x", Limits(max_requests=1))
    wide = purse.account(agent(2), "x", Limits(max_requests=50))
    spend(strict)
    refused(strict)
    spend(wide)
    spend(wide)
    refused(wide)


def test_an_agent_that_is_started_again_goes_on_with_its_account() -> None:
    purse = Purse(Limits(), per_agent=Limits(max_requests=2))
    spend(purse.account(agent(1), "x"))
    account = purse.account(agent(1), "x")
    held = reserved(account)
    account.write_off(held)
    account.release(held)
    assert refused(purse.account(agent(1), "x")).scope == "agent"
    assert list(purse.by_agent) == [agent(1)]


@pytest.mark.spec("USR-19")
def test_the_sums_by_agent_by_type_and_by_model_are_the_whole() -> None:
    purse = Purse(Limits())
    for number, kind, card in ((1, "x", CARD), (2, "x", OTHER), (3, "y", CARD), (1, "x", OTHER)):
        spend(purse.account(agent(number), kind), Usage(input_tokens=number, output_tokens=7), card)
    for sums in (purse.by_agent, purse.by_kind, purse.by_model):
        assert sum((usage for usage, _ in sums.values()), Usage()) == purse.usage  # type: ignore[attr-defined]
        assert sum(usd for _, usd in sums.values()) == pytest.approx(purse.usd)  # type: ignore[attr-defined]
    assert purse.usage == Usage(input_tokens=7, output_tokens=28)
    assert purse.by_kind["x"][0] == Usage(input_tokens=4, output_tokens=21)
    assert purse.account(agent(1), "x").usage == Usage(input_tokens=2, output_tokens=14)


@pytest.mark.spec("USR-19")
def test_a_budget_in_dollars_admits_no_model_of_unknown_price() -> None:
    with pytest.raises(BudgetError, match="price of stranger is not known"):
        Purse(Limits(max_usd=1)).admit(UNPRICED)
    of_type = Purse(Limits(), per_type={"x": Limits(max_usd=1)})
    of_type.admit(UNPRICED)
    of_type.admit(UNPRICED, "y")
    with pytest.raises(BudgetError, match="price of stranger is not known"):
        of_type.admit(UNPRICED, "x")
    account = of_type.account(agent(1), "x")
    with pytest.raises(BudgetError, match="price of stranger is not known"):
        account.admit(UNPRICED)
    assert isinstance(account.reserve(UNPRICED, 1), Refusal)
    unlimited = of_type.account(LEAD, "lead")
    spend(unlimited, card=UNPRICED)
    assert (of_type.priced, unlimited.priced, account.priced) == (False, False, True)


def test_an_attempt_that_may_be_billed_counts_against_the_limits_and_not_in_the_sums() -> None:
    purse = Purse(Limits(max_requests=2))
    account = purse.account(LEAD, "lead")
    held = reserved(account)
    account.write_off(held)  # the answer broke off, and is asked for again
    account.settle(held, ASKED)
    assert purse.usage == ASKED
    assert "2 requests" in refused(account).sentence


def test_settling_twice_gives_back_what_was_held_once() -> None:
    purse = Purse(Limits(max_tokens=10_000))
    account = purse.account(LEAD, "lead")
    held = reserved(account)
    account.settle(held, ASKED)
    account.release(held)
    assert purse.meters[0].held == 0
    assert purse.meters[0].spent == 1_100


@pytest.mark.spec("USR-01")
def test_each_mark_of_a_limit_is_told_once() -> None:
    told: list[BudgetWarned] = []
    purse = Purse(Limits(max_requests=10), per_type={"x": Limits(max_requests=4)}, warn=told.append)
    account = purse.account(agent(1), "x")
    for _ in range(4):
        spend(account)
    lead = purse.account(LEAD, "lead")
    for _ in range(6):
        spend(lead)
    assert [(event.whose, event.percent, event.spent) for event in told] == [
        ("x", 50, 2),
        ("x", 100, 4),
        ("", 50, 5),
        ("", 80, 8),
        ("", 100, 10),
    ]
    assert {(event.limit, event.agent) for event in told} == {("requests", LEAD)}


@pytest.mark.spec("USR-01")
async def test_time_is_limited_for_the_tree_and_for_the_work_of_one_agent() -> None:
    clock = FakeClock()
    told: list[BudgetWarned] = []
    purse = Purse(Limits(max_seconds=100), per_agent=Limits(max_seconds=10), clock=clock, warn=told.append)
    account = purse.account(agent(1), "x")
    assert account.begin() == 10
    await clock.advance(6)
    account.end()
    await clock.advance(20)  # it waits
    assert account.begin() == 4
    await clock.advance(4)
    own = refused(account)
    assert (own.limit, own.scope, own.whose) == ("seconds", "agent", "a1")
    account.end()
    spend(purse.account(LEAD, "lead"))
    await clock.advance(30)
    spend(purse.account(LEAD, "lead"))
    assert [(event.limit, event.percent) for event in told] == [("seconds", 50)]
    await clock.advance(40)
    assert refused(purse.account(LEAD, "lead")).sentence == "the 100 s for the whole run have passed"


def test_what_earlier_processes_spent_counts() -> None:
    told: list[BudgetWarned] = []
    purse = Purse(Limits(max_usd=1.0, max_requests=5), Caps(max_total=2), warn=told.append)
    purse.carry(LEAD, "lead", "m", Spent(usage=ASKED, usd=0.9, requests=3))
    purse.carry(agent(1), "x", "m", Spent(usage=ASKED, usd=0.05, requests=1, unpriced=1))
    purse.carry_started(1)
    assert (purse.usd, purse.usage) == (pytest.approx(0.95), ASKED + ASKED)
    assert not purse.priced
    assert told == []  # they were told then
    spend(purse.account(LEAD, "lead"))
    assert [(event.limit, event.percent) for event in told] == [("requests", 100)]
    assert refused(purse.account(agent(1), "x")).limit == "requests"


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize(
    ("caps", "passed", "limit"),
    [
        (Caps(max_concurrent=20), 20, "concurrent"),
        (Caps(max_concurrent=None, max_total=7), 7, "total"),
        (Caps(max_depth=1, max_concurrent=None), 50, "depth"),
    ],
)
def test_a_hundred_spawns_at_once_pass_no_cap(caps: Caps, passed: int, limit: str) -> None:
    purse = Purse(Limits(), caps)
    spawned = [purse.start("x", 1 + number % 2) for number in range(100)]
    started = [got for got in spawned if isinstance(got, Started)]
    assert len(started) == purse.running == purse.started == passed
    assert {got.limit for got in spawned if isinstance(got, Refusal)} == {limit}
    for one in (*started, *started):
        purse.ended(one)
    assert (purse.running, purse.started) == (0, passed)
    assert isinstance(purse.start("x", 1, again=True), Started)
    assert purse.started == passed


def test_an_agent_that_could_not_begin_does_not_count_as_started() -> None:
    purse = Purse(Limits(), Caps(max_total=1))
    for again in (False, True, False):
        counted = purse.start("x", 1, again=again)
        assert isinstance(counted, Started)
        purse.ended(counted, begun=False)
        purse.ended(counted)
        assert (purse.running, purse.started) == (0, 0)


def test_no_agent_is_started_on_a_spent_budget() -> None:
    purse = Purse(Limits(max_requests=1))
    spend(purse.account(LEAD, "lead"))
    refusal = purse.start("x", 1)
    assert isinstance(refusal, Refusal)
    assert (refusal.limit, purse.running) == ("requests", 0)


ACTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["reserve", "settle", "release", "write off"]),
        st.integers(0, 50_000),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(acts=ACTS, cards=st.lists(st.sampled_from([CARD, OTHER]), min_size=60, max_size=60))
def test_in_any_order_of_acts_the_sums_are_those_of_what_was_settled(
    acts: list[tuple[int, str, int]], cards: list[ModelCard]
) -> None:
    limits = Limits(max_usd=3.0, max_tokens=400_000, max_requests=30)
    purse = Purse(limits, per_agent=limits, per_type={"even": limits})
    flying: dict[int, list[Reservation]] = {number: [] for number in range(4)}
    settled: list[tuple[int, ModelCard, Usage]] = []
    written_off = 0
    for (number, act, tokens), card in zip(acts, cards, strict=False):
        account = purse.account(agent(number), "odd" if number % 2 else "even")
        if act == "reserve":
            full = [meter for meter in account._meters if meter.spent + meter.held >= meter.of]
            got = account.reserve(card, tokens)
            assert isinstance(got, Refusal) == bool(full)
            if isinstance(got, Reservation):
                flying[number].append(got)
        elif flying[number]:
            held = flying[number][-1]
            usage = Usage(input_tokens=tokens, output_tokens=tokens // 10, cache_read_input_tokens=tokens * 2)
            if act == "settle":
                account.settle(flying[number].pop(), usage)
                settled.append((number, held.card, usage))
            elif act == "release":
                account.release(flying[number].pop())
            else:
                account.write_off(held)
                written_off += 1
    open_now = [held for of_agent in flying.values() for held in of_agent]
    by_limit: dict[str, Meter] = {meter.limit: meter for meter in purse.meters}
    assert by_limit["tokens"].held == sum(held.tokens for held in open_now)
    assert by_limit["usd"].held == sum(held.usd for held in open_now)
    assert by_limit["requests"].held == len(open_now)
    assert by_limit["requests"].spent == len(settled) + written_off
    assert purse.usage == sum((usage for _, _, usage in settled), Usage())
    assert purse.usd == pytest.approx(sum(card.price.of(u) for _, card, u in settled if card.price))
    for number in range(4):
        own = sum((usage for of, _, usage in settled if of == number), Usage())
        assert purse.by_agent.get(agent(number), (Usage(), 0.0))[0] == own
    for number, of_agent in flying.items():
        for held in of_agent:
            purse.account(agent(number), "odd" if number % 2 else "even").release(held)
    assert [meter.held for meter in purse.meters] == [0, 0, 0]
