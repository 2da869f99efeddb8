"""What it would cost to start many agents at once, said before a person lets it happen."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.accounts import FIRST_ANSWER
from shoal.core.usage import ModelCard, Usage

ROUNDS = 8
"""Requests that an agent is taken to need where none of the tree has worked yet."""
_GROWTH = 1_500
"""Tokens by which each round makes the next prompt longer: an answer and what its tools bring."""


class Estimate(Struct, frozen=True, kw_only=True):
    agents: int
    tokens: int
    """What the models would read, without what was cached, and write."""
    usd: float | None
    """None where the price is not known."""
    measured: bool = False
    """Whether it comes from what agents of this tree have cost so far."""


def estimate(
    count: int, start_tokens: int, card: ModelCard, mean_usd_so_far: float | None = None
) -> Estimate:
    """For `count` agents, each of which starts with so many tokens of prompt.

    `mean_usd_so_far` is what an agent of the tree has cost, where some have ended.
    """
    usage = _one_agent(start_tokens)
    usd = None if card.price is None else count * card.price.of(usage)
    if mean_usd_so_far is not None:
        usd = count * mean_usd_so_far
    return Estimate(
        agents=count,
        tokens=count * (usage.total_tokens - usage.cache_read_input_tokens),
        usd=usd,
        measured=mean_usd_so_far is not None,
    )


def _one_agent(start_tokens: int) -> Usage:
    """Each round reads what the one before it left in the cache; where none is, that costs the full price."""
    reread = sum(start_tokens + _GROWTH * round_ for round_ in range(ROUNDS - 1))
    return Usage(
        input_tokens=start_tokens + _GROWTH * (ROUNDS - 1),
        cache_read_input_tokens=reread,
        output_tokens=FIRST_ANSWER * ROUNDS,
    )
