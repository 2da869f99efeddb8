"""Budget of a session: reservations, settlement and limits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.budgets.agent_budgets import AgentBudget, BudgetReservation
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import AgentCountLimits, AgentSlot, BudgetLimits, BudgetMeter, BudgetRefusal
from shoal.core.budgets.shared_budget import SharedBudget
from shoal.core.budgets.usage import LongPromptPrice, ModelCard, TokenPrice, Usage, UsageAndCostTotals
from shoal.core.errors import BudgetError
from shoal.core.events import BudgetThresholdReached
from shoal.core.ids import LEAD_ID, AgentId
from shoal.testing import FakeClock

CARD = ModelCard(id="m", provider="x", price=TokenPrice(input=10.0, output=50.0, cache_read=1.0))
OTHER = ModelCard(id="n", provider="x", price=TokenPrice(input=1.0, output=5.0))
UNPRICED = ModelCard(id="stranger", provider="x")
ASKED = Usage(input_tokens=1_000, output_tokens=100)
COST = CARD.price.compute_cost(ASKED) if CARD.price else 0.0


def make_agent_id(number: int) -> AgentId:
    return AgentId(f"a{number}")


def reserve_or_fail(account: AgentBudget, prompt: int = 1_000) -> BudgetReservation:
    held = account.reserve(CARD, prompt)
    assert isinstance(held, BudgetReservation), held
    return held


def expect_refusal(account: AgentBudget, prompt: int = 1_000) -> BudgetRefusal:
    refusal = account.reserve(CARD, prompt)
    assert isinstance(refusal, BudgetRefusal), refusal
    return refusal


def spend(account: AgentBudget, usage: Usage = ASKED, card: ModelCard = CARD) -> None:
    held = account.reserve(card, usage.prompt_tokens)
    assert isinstance(held, BudgetReservation), held
    account.settle(held, usage)


@pytest.mark.spec("USR-01")
def test_a_reservation_of_one_agent_is_not_available_to_another() -> None:
    budget = Budget(BudgetLimits(max_usd=10 * COST))
    spend(budget.get_or_create_agent_budget(LEAD_ID, "lead"))
    agents = [budget.get_or_create_agent_budget(make_agent_id(n), "worker") for n in range(100)]
    held = [
        got
        for got in (account.reserve(CARD, 1_000) for account in agents)
        if isinstance(got, BudgetReservation)
    ]
    assert [reservation.tokens for reservation in held] == [1_100] * 7 + [1_000 + CARD.max_output]
    refusal = expect_refusal(agents[99])
    assert (refusal.limit, refusal.scope) == ("usd", "tree")
    assert "reserved" in refusal.sentence
    assert refusal.for_now
    agents[7].release(held[-1])
    assert isinstance(agents[99].reserve(CARD, 1_000), BudgetReservation)


@pytest.mark.spec("LIM-03")
@pytest.mark.parametrize("limits", [BudgetLimits(max_usd=1.0), BudgetLimits(max_tokens=60_000)])
def test_near_the_end_of_a_limit_a_request_reserves_its_longest_answer(limits: BudgetLimits) -> None:
    """Answers are short until the end, and then as long as allowed, from every agent at once."""
    budget = Budget(limits)
    (meter,) = budget.meters
    agents = [budget.get_or_create_agent_budget(make_agent_id(n), "worker") for n in range(20)]
    while meter.spent < meter.maximum * 0.85:
        spend(agents[0])
    longest = Usage(input_tokens=1_000, output_tokens=4_000)
    for _ in range(3):
        in_flight = [(account, account.reserve(CARD, 1_000, 4_000)) for account in agents]
        for account, held in in_flight:
            if isinstance(held, BudgetReservation):
                account.settle(held, longest)
    one_request = {"usd": 0.21, "tokens": 5_000}[meter.limit]
    assert meter.maximum <= meter.spent < meter.maximum + 2 * one_request


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize(
    "limits", [BudgetLimits(max_usd=0.1), BudgetLimits(max_tokens=50_000), BudgetLimits(max_requests=7)]
)
def test_a_hundred_agents_exceed_no_limit_by_more_than_one_request_each(limits: BudgetLimits) -> None:
    budget = Budget(limits)
    dearest = Usage(input_tokens=5_000, output_tokens=900)
    accounts = [budget.get_or_create_agent_budget(make_agent_id(n), "worker") for n in range(100)]
    for _ in range(20):
        in_flight = [(account, account.reserve(CARD, 1_000)) for account in accounts]
        for account, held in in_flight:
            if isinstance(held, BudgetReservation):
                account.settle(held, dearest)
    assert CARD.price is not None
    assert budget.usd <= (limits.max_usd or 1e9) + 100 * CARD.price.compute_cost(dearest)
    assert budget.usage.total_tokens <= (limits.max_tokens or 10**12) + 100 * dearest.total_tokens
    requests = budget.usage.input_tokens // 5_000
    assert requests <= (limits.max_requests or 10**9)
    assert 0 < requests < 100


def test_a_reservation_does_not_assume_the_longest_possible_answer() -> None:
    card = ModelCard(id="m", provider="x", max_output=128_000, price=CARD.price)
    budget = Budget(BudgetLimits(max_usd=1.0))
    account = budget.get_or_create_agent_budget(LEAD_ID, "lead")
    held = account.reserve(card, 1_000)
    assert isinstance(held, BudgetReservation)
    assert held.usd < 0.05  # the longest answer would be $6.40


def test_the_next_estimate_learns_from_answers_and_cached_prompts() -> None:
    account = Budget(BudgetLimits(max_usd=100.0)).get_or_create_agent_budget(LEAD_ID, "lead")
    first = reserve_or_fail(account, 100_000)
    assert first.usd == pytest.approx(1.02, rel=1e-8)  # all of the prompt at its full price, 400 tokens out
    cached = Usage(cache_read_input_tokens=100_000, output_tokens=2_000)
    account.settle(first, cached)
    second = reserve_or_fail(account, 100_000)
    assert second.usd == pytest.approx(0.1 + 0.1, rel=1e-8)
    assert second.tokens == 102_000


def test_a_long_prompt_is_reserved_at_its_own_price() -> None:
    long = TokenPrice(input=20.0, output=100.0)
    card = ModelCard(
        id="m",
        provider="x",
        price=TokenPrice(input=10, output=50, beyond=LongPromptPrice(tokens=200_000, price=long)),
    )
    account = Budget(BudgetLimits(max_usd=100.0)).get_or_create_agent_budget(LEAD_ID, "lead")
    held = account.reserve(card, 300_000)
    assert isinstance(held, BudgetReservation)
    assert held.usd == pytest.approx(6.04, rel=1e-8)
    account.settle(held, Usage(input_tokens=300_000, output_tokens=400))
    again = account.reserve(card, 300_000)
    assert isinstance(again, BudgetReservation)
    assert again.usd == pytest.approx(6.04, rel=1e-8)


@pytest.mark.spec("USR-01")
def test_limits_apply_per_agent_per_type_and_in_total() -> None:
    budget = Budget(
        BudgetLimits(max_requests=10),
        per_agent=BudgetLimits(max_requests=2),
        per_type={"Explore": BudgetLimits(max_requests=3)},
    )
    one, two = (
        budget.get_or_create_agent_budget(make_agent_id(1), "Explore"),
        budget.get_or_create_agent_budget(make_agent_id(2), "Explore"),
    )
    spend(one)
    spend(one)
    own = expect_refusal(one)
    assert (own.limit, own.scope, own.whose) == ("requests", "agent", "a1")
    assert own.sentence == "the budget of 2 requests for agent a1 is spent (2 requests)"
    spend(two)
    typed = expect_refusal(two)
    assert (typed.scope, typed.whose) == ("kind", "Explore")
    lead = budget.get_or_create_agent_budget(LEAD_ID, "lead")
    for _ in range(7):
        spend(lead)  # the limit of each agent does not bind the lead
    assert (
        expect_refusal(lead).scope,
        expect_refusal(budget.get_or_create_agent_budget(make_agent_id(3), "Plan")).scope,
    ) == ("tree", "tree")


def test_limits_of_one_agent_can_only_be_stricter_than_the_common_ones() -> None:
    budget = Budget(BudgetLimits(), per_agent=BudgetLimits(max_requests=2, max_tokens=10**6))
    strict = budget.get_or_create_agent_budget(make_agent_id(1), "x", BudgetLimits(max_requests=1))
    wide = budget.get_or_create_agent_budget(make_agent_id(2), "x", BudgetLimits(max_requests=50))
    spend(strict)
    expect_refusal(strict)
    spend(wide)
    spend(wide)
    expect_refusal(wide)


def test_a_restarted_agent_continues_with_its_agent_budget() -> None:
    budget = Budget(BudgetLimits(), per_agent=BudgetLimits(max_requests=2))
    spend(budget.get_or_create_agent_budget(make_agent_id(1), "x"))
    account = budget.get_or_create_agent_budget(make_agent_id(1), "x")
    held = reserve_or_fail(account)
    account.write_off(held)
    account.release(held)
    assert expect_refusal(budget.get_or_create_agent_budget(make_agent_id(1), "x")).scope == "agent"
    assert list(budget.spending_by_agent) == [make_agent_id(1)]


@pytest.mark.spec("USR-19")
def test_the_sums_by_agent_type_and_model_equal_the_total() -> None:
    budget = Budget(BudgetLimits())
    for number, kind, card in ((1, "x", CARD), (2, "x", OTHER), (3, "y", CARD), (1, "x", OTHER)):
        spend(
            budget.get_or_create_agent_budget(make_agent_id(number), kind),
            Usage(input_tokens=number, output_tokens=7),
            card,
        )
    for sums in (budget.spending_by_agent, budget.spending_by_agent_type, budget.spending_by_model):
        assert sum((usage for usage, _ in sums.values()), Usage()) == budget.usage  # type: ignore[attr-defined]
        assert sum(usd for _, usd in sums.values()) == pytest.approx(budget.usd)  # type: ignore[attr-defined]
    assert budget.usage == Usage(input_tokens=7, output_tokens=28)
    assert budget.spending_by_agent_type["x"][0] == Usage(input_tokens=4, output_tokens=21)
    assert budget.get_or_create_agent_budget(make_agent_id(1), "x").usage == Usage(
        input_tokens=2, output_tokens=14
    )


@pytest.mark.spec("USR-19")
def test_a_budget_in_dollars_refuses_models_of_unknown_price() -> None:
    with pytest.raises(BudgetError, match="price of stranger is unknown"):
        Budget(BudgetLimits(max_usd=1)).require_priced_model(UNPRICED)
    of_type = Budget(BudgetLimits(), per_type={"x": BudgetLimits(max_usd=1)})
    of_type.require_priced_model(UNPRICED)
    of_type.require_priced_model(UNPRICED, "y")
    with pytest.raises(BudgetError, match="price of stranger is unknown"):
        of_type.require_priced_model(UNPRICED, "x")
    account = of_type.get_or_create_agent_budget(make_agent_id(1), "x")
    with pytest.raises(BudgetError, match="price of stranger is unknown"):
        account.require_priced_model(UNPRICED)
    assert isinstance(account.reserve(UNPRICED, 1), BudgetRefusal)
    unlimited = of_type.get_or_create_agent_budget(LEAD_ID, "lead")
    spend(unlimited, card=UNPRICED)
    assert (of_type.is_priced, unlimited.has_only_priced_requests, account.has_only_priced_requests) == (
        False,
        False,
        True,
    )


def test_a_possibly_billed_attempt_counts_for_the_limits_but_not_in_the_sums() -> None:
    budget = Budget(BudgetLimits(max_requests=2))
    account = budget.get_or_create_agent_budget(LEAD_ID, "lead")
    held = reserve_or_fail(account)
    account.write_off(held)  # the answer broke off, and is asked for again
    account.settle(held, ASKED)
    assert budget.usage == ASKED
    assert "2 requests" in expect_refusal(account).sentence


def test_settling_twice_releases_the_reservation_once() -> None:
    budget = Budget(BudgetLimits(max_tokens=10_000))
    account = budget.get_or_create_agent_budget(LEAD_ID, "lead")
    held = reserve_or_fail(account)
    account.settle(held, ASKED)
    account.release(held)
    assert budget.meters[0].held == 0
    assert budget.meters[0].spent == 1_100


@pytest.mark.spec("USR-01")
def test_each_threshold_of_a_limit_is_reported_once() -> None:
    warnings: list[BudgetThresholdReached] = []
    budget = Budget(
        BudgetLimits(max_requests=10),
        per_type={"x": BudgetLimits(max_requests=4)},
        on_warning=warnings.append,
    )
    account = budget.get_or_create_agent_budget(make_agent_id(1), "x")
    for _ in range(4):
        spend(account)
    lead = budget.get_or_create_agent_budget(LEAD_ID, "lead")
    for _ in range(6):
        spend(lead)
    assert [(event.whose, event.percent, event.spent) for event in warnings] == [
        ("x", 50, 2),
        ("x", 100, 4),
        ("", 50, 5),
        ("", 80, 8),
        ("", 100, 10),
    ]
    assert {(event.limit, event.agent) for event in warnings} == {("requests", LEAD_ID)}


def test_the_prompt_and_the_total_of_a_request_include_cached_tokens() -> None:
    usage = Usage(
        input_tokens=1, cache_creation_input_tokens=10, cache_read_input_tokens=100, output_tokens=1_000
    )
    assert (usage.prompt_tokens, usage.total_tokens) == (111, 1_111)


@pytest.mark.parametrize(
    ("price", "dollars"),
    [
        (TokenPrice(input=8, output=40), 8 + 40 + 10 + 8),
        (TokenPrice(input=8, output=40, cache_write=9, cache_read=1), 8 + 40 + 9 + 1),
    ],
)
def test_cached_tokens_without_a_price_of_their_own_cost_what_input_costs(
    price: TokenPrice, dollars: float
) -> None:
    """Writing to the cache costs a quarter more."""
    million = 1_000_000
    usage = Usage(
        input_tokens=million,
        output_tokens=million,
        cache_creation_input_tokens=million,
        cache_read_input_tokens=million,
    )
    assert price.compute_cost(usage) == pytest.approx(dollars, rel=1e-9)


def test_the_price_for_long_prompts_applies_above_its_size() -> None:
    long = LongPromptPrice(tokens=1_000, price=TokenPrice(input=20, output=100))
    price = TokenPrice(input=10, output=50, beyond=long)
    assert price.compute_cost(Usage(input_tokens=1_000)) == pytest.approx(0.01)
    assert price.compute_cost(Usage(input_tokens=1_001)) == pytest.approx(0.02002)


@pytest.mark.parametrize(
    ("usage", "is_plausible"),
    [
        (Usage(input_tokens=1, output_tokens=1), True),
        (Usage(cache_creation_input_tokens=1, output_tokens=1), True),
        (Usage(cache_read_input_tokens=1, output_tokens=1), True),
        (Usage(input_tokens=1), False),
        (Usage(output_tokens=1), False),
        (Usage(input_tokens=-1, cache_read_input_tokens=5, output_tokens=1), False),
        (Usage(input_tokens=5, cache_read_input_tokens=-1, output_tokens=1), False),
        (Usage(input_tokens=5, cache_creation_input_tokens=-1, output_tokens=1), False),
    ],
)
def test_a_count_without_a_prompt_or_an_answer_is_not_plausible(usage: Usage, is_plausible: bool) -> None:
    assert usage.is_count_of_reply is is_plausible


def test_a_threshold_of_one_agent_names_the_agent() -> None:
    warnings: list[BudgetThresholdReached] = []
    budget = Budget(
        BudgetLimits(), per_agent=BudgetLimits(max_requests=2, max_tokens=100_000), on_warning=warnings.append
    )
    spend(budget.get_or_create_agent_budget(make_agent_id(1), "x"))
    (warning,) = warnings
    assert (warning.agent, warning.limit, warning.percent) == (make_agent_id(1), "requests", 50)
    assert (warning.spent, warning.of) == (1, 2)


def test_a_limit_that_comes_late_counts_the_requests_of_earlier_processes() -> None:
    budget = Budget(BudgetLimits())
    spent = UsageAndCostTotals(usage=ASKED, usd=0.9, requests=3)
    budget.restore_spending(make_agent_id(1), "x", "m", spent)
    assert budget.is_priced
    account = budget.get_or_create_agent_budget(make_agent_id(1), "x", BudgetLimits(max_requests=4))
    spend(account)
    assert "4 requests" in expect_refusal(account).sentence


@pytest.mark.spec("USR-01")
def test_requests_of_unknown_cost_of_an_earlier_process_count_for_every_limit() -> None:
    warnings: list[BudgetThresholdReached] = []
    limits = BudgetLimits(max_usd=1.0, max_tokens=10_000, max_requests=10)
    budget = Budget(limits, on_warning=warnings.append)
    for _ in range(6):
        budget.restore_unsettled_request(make_agent_id(1), "x", 0.1, 1_000)
    assert {meter.limit: meter.spent for meter in budget.meters} == {
        "usd": pytest.approx(0.6),
        "tokens": 6_000,
        "requests": 6,
    }
    assert warnings == []  # they were told then
    # An own limit that comes later counts them too.
    account = budget.get_or_create_agent_budget(make_agent_id(1), "x", BudgetLimits(max_requests=7))
    spend(account)
    assert "7 requests" in expect_refusal(account).sentence
    assert [(event.agent, event.percent) for event in warnings] == [(make_agent_id(1), 100)]


def test_a_shared_budget_states_what_is_spent_of_each_limit() -> None:
    shared = SharedBudget(usd=1.0, tokens=100_000, requests=10)
    assert (shared.spent_usd, shared.spent_tokens, shared.spent_requests) == (0, 0, 0)
    budget = Budget(BudgetLimits(), shared=shared)
    for _ in range(2):
        spend(budget.get_or_create_agent_budget(LEAD_ID, "lead"))
    assert shared.spent_usd == pytest.approx(2 * COST)
    assert (shared.spent_tokens, shared.spent_requests) == (2_200, 2)
    assert SharedBudget(requests=1).spent_usd == 0


def test_just_below_a_threshold_nothing_is_reported() -> None:
    warnings: list[BudgetThresholdReached] = []
    budget = Budget(BudgetLimits(max_tokens=10_000), on_warning=warnings.append)
    account = budget.get_or_create_agent_budget(LEAD_ID, "lead")
    spend(account, Usage(input_tokens=4_899, output_tokens=100))
    assert warnings == []
    spend(account, Usage(output_tokens=1))
    assert [(event.percent, event.spent) for event in warnings] == [(50, 5_000)]
    spend(account, Usage(input_tokens=2_898, output_tokens=101))
    assert len(warnings) == 1
    spend(account, Usage(output_tokens=1))
    assert [(event.percent, event.spent) for event in warnings[1:]] == [(80, 8_000)]


def test_settling_returns_the_cost_of_the_request() -> None:
    account = Budget(BudgetLimits()).get_or_create_agent_budget(LEAD_ID, "lead")
    assert account.settle(reserve_or_fail(account), ASKED) == COST
    unpriced = account.reserve(UNPRICED, 1_000)
    assert isinstance(unpriced, BudgetReservation)
    assert account.settle(unpriced, ASKED) is None


def test_only_agents_with_requests_are_in_the_sums() -> None:
    budget = Budget(BudgetLimits())
    idle = budget.get_or_create_agent_budget(make_agent_id(1), "idle")
    spend(budget.get_or_create_agent_budget(make_agent_id(2), "x"))
    assert list(budget.spending_by_agent) == [make_agent_id(2)]
    assert list(budget.spending_by_agent_type) == ["x"]
    assert budget.find_agent_cost(make_agent_id(1)) == idle.usd == 0
    assert budget.find_agent_cost(make_agent_id(3)) is None


def test_a_dollar_limit_of_agents_does_not_bind_the_model_of_the_lead() -> None:
    budget = Budget(BudgetLimits(), per_agent=BudgetLimits(max_usd=1.0))
    budget.require_priced_model(UNPRICED)
    with pytest.raises(BudgetError):
        budget.require_priced_model(UNPRICED, "x")


def test_a_limit_that_comes_late_warns_only_of_what_is_spent_from_then_on() -> None:
    warnings: list[BudgetThresholdReached] = []
    budget = Budget(BudgetLimits(), on_warning=warnings.append)
    account = budget.get_or_create_agent_budget(make_agent_id(1), "x")
    for _ in range(6):
        spend(account)
    budget.get_or_create_agent_budget(make_agent_id(1), "x", BudgetLimits(max_requests=10))
    spend(account)
    assert warnings == []
    spend(account)
    assert [(event.percent, event.spent) for event in warnings] == [(80, 8)]


async def test_time_counts_from_the_start_of_the_budget() -> None:
    clock = FakeClock()
    await clock.advance(1_000)
    warnings: list[BudgetThresholdReached] = []
    budget = Budget(BudgetLimits(max_seconds=100), clock=clock, on_warning=warnings.append)
    lead = budget.get_or_create_agent_budget(LEAD_ID, "lead")
    assert lead.start_work_timer() == 100
    await clock.advance(49)
    spend(lead)
    assert warnings == []
    await clock.advance(2)
    spend(lead)
    assert [(event.percent, event.spent) for event in warnings] == [(50, 51)]
    await clock.advance(49)
    refusal = expect_refusal(lead)
    assert (refusal.limit, refusal.scope, refusal.whose) == ("seconds", "tree", "")


@pytest.mark.spec("USR-01")
async def test_time_is_limited_for_the_session_and_for_one_agent() -> None:
    clock = FakeClock()
    warnings: list[BudgetThresholdReached] = []
    budget = Budget(
        BudgetLimits(max_seconds=100),
        per_agent=BudgetLimits(max_seconds=10),
        clock=clock,
        on_warning=warnings.append,
    )
    account = budget.get_or_create_agent_budget(make_agent_id(1), "x")
    assert account.start_work_timer() == 10
    await clock.advance(6)
    account.stop_work_timer()
    await clock.advance(20)  # it waits
    assert account.start_work_timer() == 4
    await clock.advance(4)
    own = expect_refusal(account)
    assert (own.limit, own.scope, own.whose) == ("seconds", "agent", "a1")
    account.stop_work_timer()
    spend(budget.get_or_create_agent_budget(LEAD_ID, "lead"))
    await clock.advance(30)
    spend(budget.get_or_create_agent_budget(LEAD_ID, "lead"))
    assert [(event.limit, event.percent) for event in warnings] == [("seconds", 50)]
    await clock.advance(40)
    assert (
        expect_refusal(budget.get_or_create_agent_budget(LEAD_ID, "lead")).sentence
        == "the time limit of 100 s for the whole run has passed"
    )


def test_spending_of_earlier_processes_counts() -> None:
    warnings: list[BudgetThresholdReached] = []
    budget = Budget(
        BudgetLimits(max_usd=1.0, max_requests=5), AgentCountLimits(max_total=2), on_warning=warnings.append
    )
    budget.restore_spending(LEAD_ID, "lead", "m", UsageAndCostTotals(usage=ASKED, usd=0.9, requests=3))
    budget.restore_spending(
        make_agent_id(1), "x", "m", UsageAndCostTotals(usage=ASKED, usd=0.05, requests=1, unpriced=1)
    )
    budget.restore_started_agent_count(1)
    assert (budget.usd, budget.usage) == (pytest.approx(0.95), ASKED + ASKED)
    assert not budget.is_priced
    assert budget.get_or_create_agent_budget(LEAD_ID, "lead").has_only_priced_requests
    assert not budget.get_or_create_agent_budget(make_agent_id(1), "x").has_only_priced_requests
    assert warnings == []  # they were told then
    spend(budget.get_or_create_agent_budget(LEAD_ID, "lead"))
    assert [(event.limit, event.percent) for event in warnings] == [("requests", 100)]
    assert expect_refusal(budget.get_or_create_agent_budget(make_agent_id(1), "x")).limit == "requests"


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize(
    ("caps", "passed", "limit"),
    [
        (AgentCountLimits(max_concurrent=20), 20, "concurrent"),
        (AgentCountLimits(max_concurrent=None, max_total=7), 7, "total"),
        (AgentCountLimits(max_depth=1, max_concurrent=None), 50, "depth"),
    ],
)
def test_a_hundred_concurrent_spawns_exceed_no_cap(
    caps: AgentCountLimits, passed: int, limit: str, record_property: Callable[[str, object], None]
) -> None:
    budget = Budget(BudgetLimits(), caps)
    spawned = [budget.open_agent_slot("x", 1 + number % 2) for number in range(100)]
    started = [got for got in spawned if isinstance(got, AgentSlot)]
    assert len(started) == budget.running_agent_count == budget.started_agent_count == passed
    assert {got.limit for got in spawned if isinstance(got, BudgetRefusal)} == {limit}
    record_property("measured", f"{len(spawned)} spawns, {len(started)} started")
    for one in (*started, *started):
        budget.close_agent_slot(one)
    assert (budget.running_agent_count, budget.started_agent_count) == (0, passed)
    assert isinstance(budget.open_agent_slot("x", 1, is_resumed=True), AgentSlot)
    assert budget.started_agent_count == passed


def test_an_agent_that_failed_to_start_does_not_count_as_started() -> None:
    budget = Budget(BudgetLimits(), AgentCountLimits(max_total=1))
    for again in (False, True, False):
        counted = budget.open_agent_slot("x", 1, is_resumed=again)
        assert isinstance(counted, AgentSlot)
        budget.close_agent_slot(counted, was_started=False)
        budget.close_agent_slot(counted)
        assert (budget.running_agent_count, budget.started_agent_count) == (0, 0)


def test_agents_of_earlier_processes_count_as_started() -> None:
    budget = Budget(BudgetLimits(), AgentCountLimits(max_total=3))
    budget.restore_started_agent_count(2)
    assert [isinstance(budget.open_agent_slot("x", 1), AgentSlot) for _ in range(2)] == [True, False]


def test_a_slot_that_is_closed_twice_frees_one_place() -> None:
    budget = Budget(BudgetLimits(), AgentCountLimits(max_concurrent=2, max_total=2))
    first, second = (budget.open_agent_slot("x", 1) for _ in range(2))
    assert isinstance(first, AgentSlot)
    assert isinstance(second, AgentSlot)
    budget.close_agent_slot(first, was_started=False)
    budget.close_agent_slot(first, was_started=False)
    assert [isinstance(budget.open_agent_slot("x", 1), AgentSlot) for _ in range(2)] == [True, False]


async def test_only_the_time_between_start_and_stop_counts_as_work() -> None:
    clock = FakeClock()
    budget = Budget(BudgetLimits(), per_agent=BudgetLimits(max_seconds=100), clock=clock)
    account = budget.get_or_create_agent_budget(make_agent_id(1), "x")
    account.stop_work_timer()  # was not started
    for left in (100, 70, 40, 10):
        await clock.advance(500)
        assert account.start_work_timer() == left
        await clock.advance(30)
        account.stop_work_timer()
        account.stop_work_timer()
    assert account.start_work_timer() == 0


def test_no_agent_is_started_on_a_spent_budget() -> None:
    budget = Budget(BudgetLimits(max_requests=1))
    spend(budget.get_or_create_agent_budget(LEAD_ID, "lead"))
    refusal = budget.open_agent_slot("x", 1)
    assert isinstance(refusal, BudgetRefusal)
    assert (refusal.limit, budget.running_agent_count) == ("requests", 0)


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
def test_the_sums_equal_the_settled_usage_in_any_order_of_operations(
    acts: list[tuple[int, str, int]], cards: list[ModelCard]
) -> None:
    limits = BudgetLimits(max_usd=3.0, max_tokens=400_000, max_requests=30)
    budget = Budget(limits, per_agent=limits, per_type={"even": limits})
    in_flight: dict[int, list[BudgetReservation]] = {number: [] for number in range(4)}
    settled: list[tuple[int, ModelCard, Usage]] = []
    written_off = 0
    for (number, act, tokens), card in zip(acts, cards, strict=False):
        account = budget.get_or_create_agent_budget(make_agent_id(number), "odd" if number % 2 else "even")
        if act == "reserve":
            full = [meter for meter in account._meters if meter.spent + meter.held >= meter.maximum]
            got = account.reserve(card, tokens)
            assert isinstance(got, BudgetRefusal) == bool(full)
            if isinstance(got, BudgetReservation):
                in_flight[number].append(got)
        elif in_flight[number]:
            held = in_flight[number][-1]
            usage = Usage(input_tokens=tokens, output_tokens=tokens // 10, cache_read_input_tokens=tokens * 2)
            if act == "settle":
                account.settle(in_flight[number].pop(), usage)
                settled.append((number, held.card, usage))
            elif act == "release":
                account.release(in_flight[number].pop())
            else:
                account.write_off(held)
                written_off += 1
    open_now = [held for of_agent in in_flight.values() for held in of_agent]
    by_limit: dict[str, BudgetMeter] = {meter.limit: meter for meter in budget.meters}
    assert by_limit["tokens"].held == sum(held.tokens for held in open_now)
    assert by_limit["usd"].held == sum(held.usd for held in open_now)
    assert by_limit["requests"].held == len(open_now)
    assert by_limit["requests"].spent == len(settled) + written_off
    assert budget.usage == sum((usage for _, _, usage in settled), Usage())
    assert budget.usd == pytest.approx(
        sum(card.price.compute_cost(u) for _, card, u in settled if card.price)
    )
    for number in range(4):
        own = sum((usage for of, _, usage in settled if of == number), Usage())
        assert budget.spending_by_agent.get(make_agent_id(number), (Usage(), 0.0))[0] == own
    for number, of_agent in in_flight.items():
        for held in of_agent:
            budget.get_or_create_agent_budget(make_agent_id(number), "odd" if number % 2 else "even").release(
                held
            )
    assert [meter.held for meter in budget.meters] == [0, 0, 0]
