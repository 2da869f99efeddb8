"""Cost estimates for starting many agents at once, shown to a person before approval."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.budgets.agent_budgets import INITIAL_ANSWER_TOKENS
from shoal.core.budgets.usage import ModelCard, Usage

ASSUMED_REQUESTS = 8
"""Number of requests that an agent is assumed to need before any agent of the tree has run."""
_TOKENS_PER_ROUND = 1_500
"""Number of tokens that each round adds to the next prompt: an answer and its tool results."""


class SpawnCostEstimate(Struct, frozen=True, kw_only=True):
    agents: int
    tokens: int
    """Number of tokens the models would read, excluding cached ones, and write."""
    usd: float | None
    """None if the price is unknown."""
    measured: bool = False
    """True if it is based on the actual cost of agents of this tree."""


def estimate_spawn_cost(
    count: int, start_tokens: int, card: ModelCard, mean_usd_so_far: float | None = None
) -> SpawnCostEstimate:
    """Estimate the cost of `count` agents that each start with a prompt of `start_tokens`.

    `mean_usd_so_far` is the mean cost of the tree's agents, if some have ended.
    """
    usage = _estimate_agent_usage(start_tokens)
    usd = None if card.price is None else count * card.price.compute_cost(usage)
    if mean_usd_so_far is not None:
        usd = count * mean_usd_so_far
    return SpawnCostEstimate(
        agents=count,
        tokens=count * (usage.total_tokens - usage.cache_read_input_tokens),
        usd=usd,
        measured=mean_usd_so_far is not None,
    )


def _estimate_agent_usage(start_tokens: int) -> Usage:
    """Estimate one agent: each round rereads the cached prompt, which costs full price without a cache."""
    reread_tokens = sum(start_tokens + _TOKENS_PER_ROUND * round_ for round_ in range(ASSUMED_REQUESTS - 1))
    return Usage(
        input_tokens=start_tokens + _TOKENS_PER_ROUND * (ASSUMED_REQUESTS - 1),
        cache_read_input_tokens=reread_tokens,
        output_tokens=INITIAL_ANSWER_TOKENS * ASSUMED_REQUESTS,
    )
