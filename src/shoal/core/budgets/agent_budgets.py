"""Budget of one agent: reservations before each request, settlement after it, and usage totals."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from shoal.core.budgets.limits import (
    NO_LIMITS,
    BudgetLimits,
    BudgetMeter,
    BudgetRefusal,
    LimitScope,
    create_budget_meters,
    format_limit_amount,
)
from shoal.core.budgets.usage import LongPromptPrice, ModelCard, TokenPrice, Usage, UsageAndCostTotals
from shoal.core.core_texts import format_core_notice
from shoal.core.errors import BudgetError
from shoal.core.ids import AgentId

if TYPE_CHECKING:
    from shoal.core.budgets.budget import Budget

INITIAL_ANSWER_TOKENS = 400
"""Expected tokens of an answer before any agent of the tree has answered."""
MAX_EXPECTED_TOKENS = 8_000
_NEAR_END_SHARE = 0.9
"""Share of a limit above which a request reserves its longest possible answer, not its expected one."""
_USD_GRAIN = 2**40
"""Estimates are binary fractions of a dollar, so that reserving and releasing sum to exactly zero."""


_Meters: TypeAlias = tuple[BudgetMeter, ...]


class BudgetReservation(Struct):
    """Amount set aside for one request until it is settled or released."""

    card: ModelCard
    usd: float
    tokens: int
    meters: tuple[_Meters, _Meters, _Meters]
    """Meters that hold it: for dollars, tokens and requests."""
    is_open: bool = True


class AgentModelSpending:
    """Spending of one agent on one model."""

    __slots__ = ("cache_read", "cache_written", "input", "output", "requests", "unpriced", "usd")

    def __init__(self) -> None:
        self.requests = self.unpriced = 0
        self.input = self.output = self.cache_written = self.cache_read = 0
        self.usd = 0.0

    def add_request_usage(self, usage: Usage, cost: float | None) -> None:
        self.requests += 1
        self.input += usage.input_tokens
        self.output += usage.output_tokens
        self.cache_written += usage.cache_creation_input_tokens
        self.cache_read += usage.cache_read_input_tokens
        if cost is None:
            self.unpriced += 1
        else:
            self.usd += cost

    def add_earlier_spending(self, spent: UsageAndCostTotals) -> None:
        self.add_request_usage(spent.usage, spent.usd)
        self.requests += spent.requests - 1
        self.unpriced += spent.unpriced


def sum_spending_usage(tallies: Iterable[AgentModelSpending]) -> Usage:
    tallies = tuple(tallies)
    return Usage(
        input_tokens=sum(tally.input for tally in tallies),
        output_tokens=sum(tally.output for tally in tallies),
        cache_creation_input_tokens=sum(tally.cache_written for tally in tallies),
        cache_read_input_tokens=sum(tally.cache_read for tally in tallies),
    )


def sum_spending_usage_and_cost(tallies: Iterable[AgentModelSpending]) -> tuple[Usage, float]:
    tallies = tuple(tallies)
    return sum_spending_usage(tallies), sum(tally.usd for tally in tallies)


class AgentBudget:
    """Budget of one agent under the limits of its tree, of its type and its own."""

    __slots__ = (
        "_answers",
        "_deadline",
        "_expected",
        "_full_usd",
        "_max_seconds",
        "_meters",
        "_meters_by_unit",
        "_output_tokens",
        "_prompt_discount",
        "_prompt_usd",
        "_requests",
        "_since",
        "_tokens",
        "_unsettled_requests",
        "_unsettled_tokens",
        "_unsettled_usd",
        "_usd",
        "_worked",
        "agent",
        "budget",
        "kind",
        "tallies",
    )

    def __init__(self, budget: Budget, agent: AgentId, kind: str, limits: BudgetLimits) -> None:
        self.budget = budget
        self.agent = agent
        self.kind = kind
        self.tallies: dict[str, AgentModelSpending] = {}
        self._unsettled_usd, self._unsettled_tokens, self._unsettled_requests = 0.0, 0, 0
        self._answers = self._output_tokens = 0
        self._expected = budget.expected_answer_tokens
        self._full_usd = self._prompt_usd = 0.0
        self._prompt_discount = 1.0
        self._worked = 0.0
        self._since: float | None = None
        self._deadline = budget.deadline
        self.apply_limits(kind, limits)

    def apply_limits(self, kind: str, limits: BudgetLimits) -> None:
        """Apply these limits from now on; earlier spending counts."""
        self.kind = kind
        own_meters = create_budget_meters(limits, "agent", self.agent)
        if own_meters:
            self._charge_past_spending(own_meters)
        type_limits = self.budget.per_type.get(kind, NO_LIMITS)
        self._max_seconds = limits.tighten_with(type_limits).max_seconds
        self._meters = (*self.budget.meters, *self.budget.meters_for_agent_type(kind), *own_meters)
        self._usd = tuple(meter for meter in self._meters if meter.limit == "usd")
        self._tokens = tuple(meter for meter in self._meters if meter.limit == "tokens")
        self._requests = tuple(meter for meter in self._meters if meter.limit == "requests")
        self._meters_by_unit = (self._usd, self._tokens, self._requests)

    def _charge_past_spending(self, own_meters: _Meters) -> None:
        """Charge what the agent has spent so far to its own meters."""
        spent = {
            "usd": self.usd + self._unsettled_usd,
            "tokens": self.usage.total_tokens + self._unsettled_tokens,
            "requests": sum(tally.requests for tally in self.tallies.values()) + self._unsettled_requests,
        }
        for meter in own_meters:
            meter.spent = spent[meter.limit]
            meter.take_passed_warning_percent()

    @property
    def usage(self) -> Usage:
        """Usage of this agent alone; `budget.usage` is that of the whole tree."""
        return sum_spending_usage(self.tallies.values())

    @property
    def usd(self) -> float:
        return sum(tally.usd for tally in self.tallies.values())

    @property
    def has_only_priced_requests(self) -> bool:
        return not any(tally.unpriced for tally in self.tallies.values())

    @property
    def spending_by_model(self) -> dict[str, tuple[Usage, float]]:
        return {model: sum_spending_usage_and_cost((tally,)) for model, tally in self.tallies.items()}

    def require_priced_model(self, card: ModelCard) -> None:
        """Raise `BudgetError` if there is a dollar limit and the price of the model is unknown."""
        if self._usd and card.price is None:
            raise BudgetError(explain_unpriced_model(card, self._usd[0].maximum))

    def start_work_timer(self) -> float | None:
        """Start counting working time; return the seconds left, or None without a limit."""
        now = self._since = self.budget.clock.monotonic()
        self._deadline = self.budget.deadline
        if self._max_seconds is not None:
            own_deadline = now + self._max_seconds - self._worked
            self._deadline = own_deadline if self._deadline is None else min(own_deadline, self._deadline)
        return None if self._deadline is None else max(0.0, self._deadline - now)

    def stop_work_timer(self) -> None:
        """Stop counting working time: idle time does not count against the agent's limit."""
        if self._since is not None:
            self._worked += self.budget.clock.monotonic() - self._since
            self._since = None
            self._deadline = self.budget.deadline

    def check_time_limit(self) -> BudgetRefusal | None:
        """Return a refusal if the time limit is reached."""
        deadline = self._deadline
        return (
            None
            if deadline is None or self.budget.clock.monotonic() < deadline
            else self._build_time_refusal(deadline)
        )

    def _build_time_refusal(self, deadline: float) -> BudgetRefusal:
        is_tree_limit = deadline == self.budget.deadline
        scope: LimitScope = "tree" if is_tree_limit else "agent"
        owner = "" if is_tree_limit else self.agent
        max_seconds = self.budget.limits.max_seconds if is_tree_limit else self._max_seconds
        limit = format_limit_amount("seconds", max_seconds or 0)
        sentence = (
            format_core_notice("run_time_passed", limit=limit)
            if is_tree_limit
            else format_core_notice("agent_time_passed", limit=limit, agent=owner)
        )
        return BudgetRefusal(limit="seconds", scope=scope, whose=owner, sentence=sentence)

    async def wait_and_reserve(
        self, card: ModelCard, prompt_tokens: int, max_tokens: int | None = None
    ) -> BudgetReservation | BudgetRefusal:
        """Reserve as `reserve` does, but wait while the rest of a budget is only reserved for other
        requests."""
        result = self.reserve(card, prompt_tokens, max_tokens)
        if isinstance(result, BudgetReservation) or not result.for_now:
            return result
        while isinstance(result, BudgetRefusal) and result.for_now:
            await self.budget.wait_for_released_reservation()
            result = self.reserve(card, prompt_tokens, max_tokens)
        self.budget.wake_next_reservation_waiter()
        return result

    def reserve(
        self, card: ModelCard, prompt_tokens: int, max_tokens: int | None = None
    ) -> BudgetReservation | BudgetRefusal:
        """Reserve the expected cost of a request; it counts as spent until settled or released."""
        deadline = self._deadline
        if deadline is not None and self.budget.clock.monotonic() >= deadline:
            return self._build_time_refusal(deadline)
        for meter in self._meters:
            if meter.spent + meter.held >= meter.maximum:
                return meter.build_refusal()
        if self._usd and card.price is None:
            meter = self._usd[0]
            sentence = explain_unpriced_model(card, meter.maximum)
            return BudgetRefusal(limit="usd", scope=meter.scope, whose=meter.owner, sentence=sentence)
        max_output = max_tokens or card.max_output
        output_tokens = min(self._expected, max_output)
        usd, tokens = self._estimate_request(card, prompt_tokens, output_tokens)
        if (self._usd or self._tokens) and self._is_near_limit(usd, tokens):
            usd, tokens = self._estimate_request(card, prompt_tokens, max_output)
        for meter in self._usd:
            meter.held += usd
        for meter in self._tokens:
            meter.held += tokens
        for meter in self._requests:
            meter.held += 1
        return BudgetReservation(card, usd, tokens, self._meters_by_unit)

    def settle(self, reservation: BudgetReservation, usage: Usage) -> float | None:
        """Record the usage of a request and return its cost, or None if the price is unknown."""
        self.release(reservation)
        card = reservation.card
        price = card.price
        cost = None if price is None else price.compute_cost(usage)
        tally = self.tallies.get(card.id)
        if tally is None:
            tally = self.tallies[card.id] = AgentModelSpending()
        tally.add_request_usage(usage, cost)
        budget = self.budget
        prompt_tokens, output_tokens = usage.prompt_tokens, usage.output_tokens
        self._answers += 1
        self._output_tokens += output_tokens
        self._expected = budget.expected_answer_tokens = min(
            self._output_tokens // self._answers, MAX_EXPECTED_TOKENS
        )
        if price is None or cost is None:
            budget.is_priced = False
        else:
            budget.usd += cost
            self._update_prompt_discount(price, prompt_tokens, output_tokens, cost)
        if self._meters or budget.deadline is not None:
            self._charge_meters(cost or 0.0, prompt_tokens + output_tokens, 1)
            self._emit_due_warnings()
        return cost

    def release(self, reservation: BudgetReservation) -> None:
        """Release the reservation of a request that was not billed; does nothing if it is settled."""
        if not reservation.is_open:
            return
        reservation.is_open = False
        usd_meters, token_meters, request_meters = reservation.meters
        for meter in usd_meters:
            meter.held -= reservation.usd
        for meter in token_meters:
            meter.held -= reservation.tokens
        for meter in request_meters:
            meter.held -= 1
        if self.budget.waiting:
            self.budget.wake_next_reservation_waiter()

    def write_off(self, reservation: BudgetReservation, estimated_usage: Usage | None = None) -> None:
        """Charge an estimate for an attempt that may be billed and whose cost is unknown.

        The estimate is the reservation, unless the size of the reply is known.
        """
        usd, tokens = reservation.usd, reservation.tokens
        if estimated_usage is not None:
            usd, tokens = self.estimate_usage_cost(reservation.card, estimated_usage)
        self._charge_unsettled(usd, tokens)
        self._emit_due_warnings()

    def restore_unsettled_request(self, usd: float, tokens: int) -> None:
        """Charge a request of an earlier process whose cost is unknown, without repeating warnings."""
        self._charge_unsettled(usd, tokens)
        for meter in self._meters:
            meter.take_passed_warning_percent()

    def _charge_unsettled(self, usd: float, tokens: int) -> None:
        self._unsettled_requests += 1
        self._unsettled_usd += usd
        self._unsettled_tokens += tokens
        self._charge_meters(usd, tokens, 1)

    def restore_spending(self, model: str, spent: UsageAndCostTotals) -> None:
        """Add what earlier processes of the session spent, without repeating their warnings."""
        self.tallies.setdefault(model, AgentModelSpending()).add_earlier_spending(spent)
        self.budget.restore_total(spent)
        self._charge_meters(spent.usd, spent.usage.total_tokens, spent.requests)
        for meter in self._meters:
            meter.take_passed_warning_percent()

    def _charge_meters(self, usd: float, tokens: int, requests: int) -> None:
        for meter in self._usd:
            meter.spent += usd
        for meter in self._tokens:
            meter.spent += tokens
        for meter in self._requests:
            meter.spent += requests

    def _emit_due_warnings(self) -> None:
        """Emit the warnings that are due."""
        for meter in self._meters:
            self.budget.warn_if_threshold_passed(meter, self.agent)
        if self.budget.deadline is not None:
            self.budget.warn_if_time_threshold_passed()

    def estimate_usage_cost(self, card: ModelCard, usage: Usage) -> tuple[float, int]:
        """Return the estimated dollars and tokens of a reply whose usage the provider did not report."""
        return self._estimate_request(card, usage.prompt_tokens, usage.output_tokens)

    def _is_near_limit(self, usd: float, tokens: int) -> bool:
        """Return True if a request of this size would use the last part of a limit."""
        return any(
            meter.spent + meter.held + usd > meter.maximum * _NEAR_END_SHARE for meter in self._usd
        ) or any(
            meter.spent + meter.held + tokens > meter.maximum * _NEAR_END_SHARE for meter in self._tokens
        )

    def _estimate_request(self, card: ModelCard, prompt_tokens: int, output_tokens: int) -> tuple[float, int]:
        """Return the estimated dollars and tokens of a request."""
        price = card.price
        usd = 0.0 if price is None else self._estimate_request_usd(price, prompt_tokens, output_tokens)
        return usd, prompt_tokens + output_tokens

    def _estimate_request_usd(self, price: TokenPrice, prompt_tokens: int, output_tokens: int) -> float:
        if price.beyond is not None:
            price = _choose_price_by_prompt_size(price.beyond, price, prompt_tokens)
        usd = (prompt_tokens * price.input * self._prompt_discount + output_tokens * price.output) / 1_000_000
        return ceil(usd * _USD_GRAIN) / _USD_GRAIN

    def _update_prompt_discount(
        self, price: TokenPrice, prompt_tokens: int, output_tokens: int, cost: float
    ) -> None:
        """Update the share of the full prompt price that is really paid, which caching lowers."""
        if price.beyond is not None:
            price = _choose_price_by_prompt_size(price.beyond, price, prompt_tokens)
        self._full_usd += prompt_tokens * price.input / 1_000_000
        self._prompt_usd += cost - output_tokens * price.output / 1_000_000
        if self._full_usd:
            self._prompt_discount = self._prompt_usd / self._full_usd


def _choose_price_by_prompt_size(
    beyond: LongPromptPrice, normal: TokenPrice, prompt_tokens: int
) -> TokenPrice:
    return beyond.price if prompt_tokens > beyond.tokens else normal


def explain_unpriced_model(card: ModelCard, maximum: float) -> str:
    """Explain that a dollar budget cannot be enforced for a model of unknown price."""
    return (
        f"Shoal cannot enforce a budget of ${maximum:g} because the price of {card.id} is unknown. Add "
        f'{{"{card.id}": {{"input": …, "output": …}}}} in settings.json under "shoal", "models", '
        "or leave out the budget."
    )
