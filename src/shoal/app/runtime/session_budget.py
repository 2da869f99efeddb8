"""Budget of a session: its limits from options and settings, and the spending of earlier processes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from shoal.app.config.session_config import OpenedSessionStore, SessionConfig
from shoal.app.options import Options
from shoal.app.runtime.event_bus import EventBus
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import AgentCountLimits, BudgetLimits
from shoal.core.events import BudgetThresholdReached
from shoal.core.ids import LEAD_ID, LEAD_KIND
from shoal.core.ports import Journal, Model
from shoal.stores.files.sessions.usage_summary import RunUsageState
from shoal.wire.settings_codec import AgentLimitSettings, ShoalSettings


def open_session_budget(
    config: SessionConfig, model: Model, store: OpenedSessionStore, events: EventBus
) -> Budget:
    """Open the budget of the whole tree, with the agent budget of its lead."""
    if (lead_channel := config.options.lead_channel) is not None:
        return lead_channel.budget
    budget = _create_session_budget(config.options, config.settings.own, events.emit_event)
    spent_before = () if budget.shared is None else budget.shared.list_spent()
    _restore_spending_from_journal(budget, store.journal)
    if budget.shared is not None:
        budget.shared.count_session(config.history.session, spent_before)
    budget.get_or_create_agent_budget(LEAD_ID, LEAD_KIND).require_priced_model(model.card)
    return budget


def _create_session_budget(
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
        shared=options.budget,
    )


def _budget_limits_from_settings(settings: AgentLimitSettings) -> BudgetLimits:
    return BudgetLimits(
        max_usd=settings.usd,
        max_tokens=settings.tokens,
        max_requests=settings.requests,
        max_seconds=settings.seconds,
    )


def _restore_spending_from_journal(budget: Budget, journal: Journal) -> None:
    """Add the spending of earlier processes; the number of their agents comes from recovery.

    For a request without a reported cost, such as one in flight when a process was killed, Shoal counts the
    reservation.
    """
    usage_summary = journal.replay(RunUsageState).build_summary()
    for (agent, model), spent in usage_summary.spent.items():
        budget.restore_spending(agent, usage_summary.get_agent(agent).kind, model, spent)
    for request in usage_summary.unsettled:
        kind = usage_summary.get_agent(request.agent).kind
        budget.restore_unsettled_request(request.agent, kind, request.usd, request.tokens)
