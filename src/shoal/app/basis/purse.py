"""Budget of a session: its limits from flags and settings, and the spending before a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from shoal.agent.agent import Bounds
from shoal.app.options import Options
from shoal.core.budget import Purse
from shoal.core.caps import Caps, Limits
from shoal.core.events import BudgetWarned
from shoal.stores.files.ledger import usage_of
from shoal.wire.settings import AgentLimits, Own


def open_purse(options: Options, own: Own, warn: Callable[[BudgetWarned], None]) -> Purse:
    flags = Limits(max_usd=options.max_budget_usd, max_tokens=options.max_total_tokens)
    configured = Limits(
        max_usd=own.max_budget_usd,
        max_tokens=own.max_total_tokens,
        max_requests=own.max_requests,
        max_seconds=own.max_seconds,
    )
    return Purse(
        replace(
            configured,
            max_usd=configured.max_usd if flags.max_usd is None else flags.max_usd,
            max_tokens=configured.max_tokens if flags.max_tokens is None else flags.max_tokens,
        ),
        Caps(
            max_depth=own.max_depth,
            max_concurrent=own.max_concurrent,
            max_total=own.max_agents if options.max_agents is None else options.max_agents,
        ),
        per_agent=_limits(own.agent_limits),
        per_type={kind: _limits(limits) for kind, limits in own.agent_type_limits.items()},
        clock=options.clock,
        warn=warn,
    )


def carry_over(purse: Purse, journal: Path) -> None:
    """Add the spending of earlier processes; the number of their agents comes from recovery."""
    ledger = usage_of(journal)
    for (agent, model), spent in ledger.spent.items():
        purse.carry(agent, ledger.worker(agent).kind, model, spent)


def _limits(given: AgentLimits) -> Limits:
    return Limits(
        max_usd=given.usd,
        max_tokens=given.tokens,
        max_requests=given.requests,
        max_seconds=given.seconds,
    )


def bounds_of(options: Options, own: Own) -> Bounds:
    """Create the default limits of each agent, unless its definition overrides them."""
    return Bounds(
        max_turns=options.max_turns or own.max_turns,
        result_limit=own.output_limit,
        compact_at=own.compact_at,
        max_tokens=own.max_output_tokens,
        thinking_tokens=own.thinking_tokens if options.thinking_tokens is None else options.thinking_tokens,
    )
