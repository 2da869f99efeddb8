"""The estimate that a person sees before many agents are started."""

from __future__ import annotations

import pytest

from shoal.core.fanout import estimate
from shoal.core.usage import ModelCard, Price

CACHED = ModelCard(id="m", provider="x", price=Price(input=3.0, output=15.0, cache_read=0.3))
UNCACHED = ModelCard(id="n", provider="x", price=Price(input=3.0, output=15.0))


def test_twelve_agents_cost_twelve_times_one() -> None:
    one, twelve = estimate(1, 5_000, CACHED), estimate(12, 5_000, CACHED)
    assert one.usd is not None
    assert twelve.usd == pytest.approx(12 * one.usd)
    assert (twelve.agents, twelve.tokens, twelve.measured) == (12, 12 * one.tokens, False)


def test_a_longer_start_and_a_provider_without_a_cache_cost_more() -> None:
    base, longer, dearer = (
        estimate(1, 5_000, CACHED),
        estimate(1, 50_000, CACHED),
        estimate(1, 5_000, UNCACHED),
    )
    assert base.usd is not None
    assert longer.usd is not None
    assert dearer.usd is not None
    assert base.usd < dearer.usd
    assert base.usd < longer.usd
    assert 0.01 < base.usd < 1.0


def test_what_agents_have_cost_so_far_is_the_better_guess() -> None:
    told = estimate(12, 5_000, CACHED, mean_usd_so_far=0.05)
    assert told.usd == pytest.approx(0.6)
    assert told.measured


def test_a_price_nobody_knows_is_not_guessed() -> None:
    told = estimate(12, 5_000, ModelCard(id="stranger", provider="x"))
    assert told.usd is None
    assert told.tokens > 12 * 5_000
