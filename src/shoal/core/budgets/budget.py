"""Budget of a tree of agents: reserved before each request and settled after it.

Checking and reserving is one step without an await, so two requests can never spend the same money.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from shoal.core.budgets.agent_budgets import (
    INITIAL_ANSWER_TOKENS,
    AgentBudget,
    AgentModelSpending,
    explain_unpriced_model,
    sum_spending_usage,
    sum_spending_usage_and_cost,
)
from shoal.core.budgets.limits import (
    NO_LIMITS,
    AgentCountLimiter,
    AgentCountLimits,
    AgentSlot,
    BudgetLimits,
    BudgetMeter,
    BudgetRefusal,
    create_budget_meters,
)
from shoal.core.budgets.shared_budget import SharedBudget
from shoal.core.budgets.usage import ModelCard, Usage, UsageAndCostTotals
from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import BudgetError
from shoal.core.events import BudgetThresholdReached
from shoal.core.ids import LEAD_ID, AgentId


def _ignore_budget_warning(_: BudgetThresholdReached) -> None: ...


class Budget:
    """Budget shared by a whole tree of agents; each has an `AgentBudget` of it."""

    def __init__(
        self,
        limits: BudgetLimits,
        caps: AgentCountLimits | None = None,
        *,
        per_agent: BudgetLimits | None = None,
        per_type: Mapping[str, BudgetLimits] | None = None,
        clock: Clock | None = None,
        on_warning: Callable[[BudgetThresholdReached], None] = _ignore_budget_warning,
        shared: SharedBudget | None = None,
    ) -> None:
        """`per_agent` limits each agent except the lead, `per_type` all agents of a type together.

        Only time is counted separately for each agent of a type. `shared` limits other trees too.
        """
        self.limits = limits
        self.per_agent = per_agent or NO_LIMITS
        self.per_type = per_type or {}
        self.clock = clock or SystemClock()
        self.shared = shared
        self.meters = (
            *create_budget_meters(limits, "tree"),
            *(() if shared is None else shared.meters),
        )
        self.usd = 0.0
        self.is_priced = True
        self.expected_answer_tokens = INITIAL_ANSWER_TOKENS
        """Expected tokens of an answer for an agent that has not answered yet."""
        self.waiting: list[asyncio.Future[None]] = [] if shared is None else shared.waiting
        """Requests that can be sent only if others in flight turn out cheaper."""
        self._on_warning = on_warning
        self._gate = AgentCountLimiter(caps or AgentCountLimits())
        self._agent_budgets: dict[AgentId, AgentBudget] = {}
        self._type_meters: dict[str, tuple[BudgetMeter, ...]] = {}
        self._started = self.clock.monotonic()
        self._time_meter: BudgetMeter | None = None
        self.deadline: float | None = None
        """Time at which the time limit of the whole tree is reached."""
        if limits.max_seconds is not None:
            self.deadline = self._started + limits.max_seconds
            self._time_meter = BudgetMeter("seconds", limits.max_seconds, "tree")

    async def wait_for_released_reservation(self) -> None:
        """Wait until a reservation is released; the longest waiter is woken first."""
        waiter = asyncio.get_running_loop().create_future()
        self.waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # It was woken and can no longer use its turn.
            if waiter.done() and not waiter.cancelled():
                self.wake_next_reservation_waiter()
            raise

    def wake_next_reservation_waiter(self) -> None:
        """Wake one waiter to try again; it wakes the next as soon as it can proceed."""
        while self.waiting:
            waiter = self.waiting.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return

    def get_or_create_agent_budget(
        self, agent: AgentId, kind: str, limits: BudgetLimits | None = None
    ) -> AgentBudget:
        """Return the one budget of an agent, however often it is started, with additional `limits`."""
        agent_limits = limits or NO_LIMITS
        if agent != LEAD_ID:
            agent_limits = agent_limits.tighten_with(self.per_agent)
        found_budget = self._agent_budgets.get(agent)
        if found_budget is None:
            found_budget = self._agent_budgets[agent] = AgentBudget(self, agent, kind, agent_limits)
        else:
            found_budget.apply_limits(kind, agent_limits)
        return found_budget

    def require_priced_model(self, card: ModelCard, kind: str | None = None) -> None:
        """Raise `BudgetError` if there is a dollar limit and the price of the model is unknown.

        `kind` is the type of an agent that is not started yet.
        """
        limits = self.limits
        if kind is not None:
            limits = limits.tighten_with(self.per_agent).tighten_with(self.per_type.get(kind, NO_LIMITS))
        if self.shared is not None:
            limits = limits.tighten_with(self.shared.limits)
        if limits.max_usd is not None and card.price is None:
            raise BudgetError(explain_unpriced_model(card, limits.max_usd))

    def open_agent_slot(
        self, kind: str, depth: int, *, is_resumed: bool = False, idle: bool = False
    ) -> AgentSlot | BudgetRefusal:
        """Open a slot for an agent before it is created; `is_resumed` for one that continues after a pause.

        An `idle` slot does not count as running until it is activated. A resumed idle agent is admitted
        even if nothing is left to spend; its requests are refused.
        """
        if not (is_resumed and idle) and (refusal := self.find_spent_limit(kind)) is not None:
            return refusal
        return self._gate.open_slot(kind, depth, is_resumed=is_resumed, idle=idle)

    def find_spent_limit(self, kind: str) -> BudgetRefusal | None:
        """Return the refusal if a limit leaves nothing for an agent of this type; None if none does."""
        for meter in (*self.meters, *self.meters_for_agent_type(kind)):
            if meter.spent >= meter.maximum:
                return meter.build_refusal()
        return None

    def find_agent_cost(self, agent: AgentId) -> float | None:
        """Return the dollars that an agent spent; None if the price of a model is unknown."""
        found = self._agent_budgets.get(agent)
        return found.usd if found is not None and found.has_only_priced_requests else None

    async def activate_agent_slot(self, slot: AgentSlot) -> None:
        """Wait until the agent may run; waiters are admitted in order."""
        await self._gate.activate_slot(slot)

    def try_activate_agent_slot(self, slot: AgentSlot) -> bool:
        """Let the agent run if it need not wait."""
        return self._gate.try_activate_slot(slot)

    def deactivate_agent_slot(self, slot: AgentSlot) -> None:
        """Stop counting an agent as running while it waits for work."""
        self._gate.deactivate_slot(slot)

    async def request_agent_slot(
        self, kind: str, depth: int, *, is_resumed: bool = False
    ) -> AgentSlot | BudgetRefusal:
        """Open a slot as `open_slot` does, even if the budget is in another process."""
        return self.open_agent_slot(kind, depth, is_resumed=is_resumed)

    def close_agent_slot(self, slot: AgentSlot, *, was_started: bool = True) -> None:
        """Close a slot; a second call does nothing. An agent that never began does not count as started."""
        self._gate.close_slot(slot, was_started=was_started)

    @property
    def agent_caps(self) -> AgentCountLimits:
        return self._gate.caps

    @property
    def running_agent_count(self) -> int:
        """Number of running agents, without the lead."""
        return self._gate.running

    @property
    def started_agent_count(self) -> int:
        """Number of agents ever started, without the lead."""
        return self._gate.total

    def restore_spending(self, agent: AgentId, kind: str, model: str, spent: UsageAndCostTotals) -> None:
        """Add what an agent spent on a model in earlier processes of this session."""
        agent_budget = self._agent_budgets.get(agent) or self.get_or_create_agent_budget(agent, kind)
        agent_budget.restore_spending(model, spent)

    def restore_total(self, spent: UsageAndCostTotals) -> None:
        self.usd += spent.usd
        self.is_priced = self.is_priced and not spent.unpriced

    def restore_unsettled_request(self, agent: AgentId, kind: str, usd: float, tokens: int) -> None:
        """Charge a request of an earlier process whose cost was never reported."""
        agent_budget = self._agent_budgets.get(agent) or self.get_or_create_agent_budget(agent, kind)
        agent_budget.restore_unsettled_request(usd, tokens)

    def restore_started_agent_count(self, agents: int) -> None:
        """Add the number of agents that earlier processes of this session started."""
        self._gate.restore_started_count(agents)

    @property
    def usage(self) -> Usage:
        return sum_spending_usage(
            tally for account in self._agent_budgets.values() for tally in account.tallies.values()
        )

    @property
    def spending_by_model(self) -> dict[str, tuple[Usage, float]]:
        tallies: dict[str, list[AgentModelSpending]] = {}
        for agent_budget in self._agent_budgets.values():
            for model, tally in agent_budget.tallies.items():
                tallies.setdefault(model, []).append(tally)
        return {model: sum_spending_usage_and_cost(of_model) for model, of_model in tallies.items()}

    @property
    def spending_by_agent(self) -> dict[AgentId, tuple[Usage, float]]:
        agent_budgets = self._agent_budgets.items()
        return {
            agent: sum_spending_usage_and_cost(account.tallies.values())
            for agent, account in agent_budgets
            if account.tallies
        }

    @property
    def spending_by_agent_type(self) -> dict[str, tuple[Usage, float]]:
        tallies: dict[str, list[AgentModelSpending]] = {}
        for agent_budget in self._agent_budgets.values():
            if agent_budget.tallies:
                tallies.setdefault(agent_budget.kind, []).extend(agent_budget.tallies.values())
        return {kind: sum_spending_usage_and_cost(of_kind) for kind, of_kind in tallies.items()}

    def meters_for_agent_type(self, kind: str) -> tuple[BudgetMeter, ...]:
        """Return the meters shared by all agents of the type."""
        if kind not in self.per_type:
            return ()
        if kind not in self._type_meters:
            self._type_meters[kind] = create_budget_meters(self.per_type[kind], "kind", kind)
        return self._type_meters[kind]

    def warn_if_threshold_passed(self, meter: BudgetMeter, agent: AgentId) -> None:
        if percent := meter.take_passed_warning_percent():
            self._on_warning(
                BudgetThresholdReached(
                    agent=agent if meter.scope == "agent" else LEAD_ID,
                    limit=meter.limit,
                    percent=percent,
                    spent=meter.spent,
                    of=meter.maximum,
                    whose=meter.owner,
                )
            )

    def warn_if_time_threshold_passed(self) -> None:
        meter = self._time_meter
        if meter is not None:
            meter.spent = self.clock.monotonic() - self._started
            self.warn_if_threshold_passed(meter, LEAD_ID)
