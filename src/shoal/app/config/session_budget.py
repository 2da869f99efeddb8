"""Budget of a session: its limits from flags and settings, and the spending before a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from shoal.agent.agent_runner import LoopLimits
from shoal.app.options import Options
from shoal.core.budget import Budget
from shoal.core.events import BudgetThresholdReached
from shoal.core.limits import AgentCountLimits, BudgetLimits
from shoal.stores.files.usage_summary import summarize_journal_usage
from shoal.wire.settings_codec import AgentLimitSettings, ShoalSettings


def create_session_budget(
    options: Options, own: ShoalSettings, warn: Callable[[BudgetThresholdReached], None]
) -> Budget:
    flags = BudgetLimits(max_usd=options.max_budget_usd, max_tokens=options.max_total_tokens)
    configured = BudgetLimits(
        max_usd=own.max_budget_usd,
        max_tokens=own.max_total_tokens,
        max_requests=own.max_requests,
        max_seconds=own.max_seconds,
    )
    return Budget(
        replace(
            configured,
            max_usd=configured.max_usd if flags.max_usd is None else flags.max_usd,
            max_tokens=configured.max_tokens if flags.max_tokens is None else flags.max_tokens,
        ),
        AgentCountLimits(
            max_depth=own.max_depth,
            max_concurrent=own.max_concurrent,
            max_total=own.max_agents if options.max_agents is None else options.max_agents,
        ),
        per_agent=_budget_limits_from_settings(own.agent_limits),
        per_type={
            kind: _budget_limits_from_settings(limits) for kind, limits in own.agent_type_limits.items()
        },
        clock=options.clock,
        on_warning=warn,
    )


def restore_spending_from_journal(budget: Budget, journal: Path) -> None:
    """Add the spending of earlier processes; the number of their agents comes from recovery."""
    usage_summary = summarize_journal_usage(journal)
    for (agent, model), spent in usage_summary.spent.items():
        budget.restore_spending(agent, usage_summary.get_agent(agent).kind, model, spent)


def _budget_limits_from_settings(settings: AgentLimitSettings) -> BudgetLimits:
    return BudgetLimits(
        max_usd=settings.usd,
        max_tokens=settings.tokens,
        max_requests=settings.requests,
        max_seconds=settings.seconds,
    )


def create_default_loop_limits(options: Options, own: ShoalSettings) -> LoopLimits:
    """Create the default limits of each agent, unless its definition overrides them."""
    return LoopLimits(
        max_turns=options.max_turns or own.max_turns,
        result_limit=own.output_limit,
        compact_at=own.compact_at,
        max_tokens=own.max_output_tokens,
        thinking_tokens=own.thinking_tokens if options.thinking_tokens is None else options.thinking_tokens,
    )
