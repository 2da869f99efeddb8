"""Cost estimate that is shown before many agents are started."""

from __future__ import annotations

import pytest

from shoal.core.budgets.spawn_estimates import estimate_spawn_cost
from shoal.core.budgets.usage import ModelCard, TokenPrice

CACHED = ModelCard(id="m", provider="x", price=TokenPrice(input=3.0, output=15.0, cache_read=0.3))
UNCACHED = ModelCard(id="n", provider="x", price=TokenPrice(input=3.0, output=15.0))


def test_twelve_agents_cost_twelve_times_one() -> None:
    one, twelve = estimate_spawn_cost(1, 5_000, CACHED), estimate_spawn_cost(12, 5_000, CACHED)
    assert one.usd is not None
    assert twelve.usd == pytest.approx(12 * one.usd)
    assert (twelve.agents, twelve.tokens, twelve.measured) == (12, 12 * one.tokens, False)


def test_an_agent_is_assumed_to_need_eight_requests_of_growing_prompts() -> None:
    """Written: 5,000 tokens and 7 rounds of 1,500. Reread: these prompts. Answered: 400 tokens each."""
    one = estimate_spawn_cost(1, 5_000, CACHED)
    assert one.tokens == 15_500 + 3_200
    assert one.usd == pytest.approx((15_500 * 3 + 66_500 * 0.3 + 3_200 * 15) / 1_000_000)


def test_a_longer_prefix_or_no_cache_costs_more() -> None:
    base, longer, dearer = (
        estimate_spawn_cost(1, 5_000, CACHED),
        estimate_spawn_cost(1, 50_000, CACHED),
        estimate_spawn_cost(1, 5_000, UNCACHED),
    )
    assert base.usd is not None
    assert longer.usd is not None
    assert dearer.usd is not None
    assert base.usd < dearer.usd
    assert base.usd < longer.usd
    assert 0.01 < base.usd < 1.0


def test_the_mean_cost_so_far_replaces_the_estimate() -> None:
    estimate = estimate_spawn_cost(12, 5_000, CACHED, mean_usd_so_far=0.05)
    assert estimate.usd == pytest.approx(0.6)
    assert estimate.measured


def test_an_unknown_price_is_not_estimated() -> None:
    estimate = estimate_spawn_cost(12, 5_000, ModelCard(id="stranger", provider="x"))
    assert estimate.usd is None
    assert estimate.tokens > 12 * 5_000
