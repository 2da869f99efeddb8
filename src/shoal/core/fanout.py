"""Cost estimates for starting many agents at once, shown to a person before approval."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.accounts import FIRST_ANSWER
from shoal.core.usage import ModelCard, Usage

ROUNDS = 8
"""Requests that an agent is assumed to need before any of the tree has run."""
_GROWTH = 1_500
"""Tokens that each round adds to the next prompt: an answer and its tool results."""


class Estimate(Struct, frozen=True, kw_only=True):
    agents: int
    tokens: int
    """Tokens the models would read, excluding cached ones, and write."""
    usd: float | None
    """None if the price is unknown."""
    measured: bool = False
    """True if it is based on the actual cost of agents of this tree."""


def estimate(
    count: int, start_tokens: int, card: ModelCard, mean_usd_so_far: float | None = None
) -> Estimate:
    """Estimate the cost of `count` agents that each start with a prompt of `start_tokens`.

    `mean_usd_so_far` is the mean cost of the tree's agents, if some have ended.
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
    """Estimate one agent: each round rereads the cached prompt, which costs full price without a cache."""
    reread = sum(start_tokens + _GROWTH * round_ for round_ in range(ROUNDS - 1))
    return Usage(
        input_tokens=start_tokens + _GROWTH * (ROUNDS - 1),
        cache_read_input_tokens=reread,
        output_tokens=FIRST_ANSWER * ROUNDS,
    )
