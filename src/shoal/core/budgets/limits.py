"""Limits of a tree of agents, and the meters that track what is left of them."""

from __future__ import annotations

import asyncio
import math
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from shoal.core.core_texts import format_core_notice

LimitKind: TypeAlias = Literal["usd", "tokens", "requests", "seconds", "depth", "concurrent", "total"]
"""What a limit counts."""
LimitScope: TypeAlias = Literal["tree", "kind", "agent"]

_Number = TypeVar("_Number", int, float)
_WARNING_PERCENTS = (50, 80, 100)


class BudgetLimits(Struct, frozen=True, kw_only=True):
    """Spending and time limits. None means no limit."""

    max_usd: float | None = None
    max_tokens: int | None = None
    """All tokens that the models read, cached or not, and wrote."""
    max_requests: int | None = None
    max_seconds: float | None = None

    def tighten_with(self, other: BudgetLimits) -> BudgetLimits:
        """Return the lower of each limit."""
        if other == NO_LIMITS:
            return self
        return BudgetLimits(
            max_usd=_lower_limit(self.max_usd, other.max_usd),
            max_tokens=_lower_limit(self.max_tokens, other.max_tokens),
            max_requests=_lower_limit(self.max_requests, other.max_requests),
            max_seconds=_lower_limit(self.max_seconds, other.max_seconds),
        )


NO_LIMITS = BudgetLimits()


def _lower_limit(one: _Number | None, other: _Number | None) -> _Number | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class AgentCountLimits(Struct, frozen=True, kw_only=True):
    """Limits on the number of agents besides the lead. None means any number."""

    max_depth: int = 3
    """The lead has depth 0, the agents it starts have depth 1."""
    max_concurrent: int | None = 20
    max_total: int | None = None


class BudgetRefusal(Struct, frozen=True, kw_only=True):
    """Reason why a request is not sent or an agent not started; the model reads the sentence."""

    limit: LimitKind
    scope: LimitScope
    whose: str
    """Type or agent that the limit belongs to; empty for the whole tree."""
    sentence: str
    for_now: bool = False
    """True if the rest is only reserved for requests in flight, which may turn out cheaper."""


class AgentSlot(Struct, kw_only=True):
    """Slot of one agent: open until the agent ends, and counted as running while it works."""

    kind: str
    depth: int
    is_resumed: bool = False
    is_open: bool = True
    is_running: bool = True
    """True if it occupies one of the concurrent slots."""


class AgentCountLimiter:
    """Counts the agents of a tree and enforces their caps."""

    __slots__ = ("_waiting", "caps", "running", "total")

    def __init__(self, caps: AgentCountLimits) -> None:
        self.caps = caps
        self.running = 0
        self.total = 0
        self._waiting: list[asyncio.Future[None]] = []
        """Waiters for a place, in order of arrival."""

    def restore_started_count(self, agents: int) -> None:
        """Add the number of agents that earlier processes started."""
        self.total += agents

    def open_slot(
        self, kind: str, depth: int, *, is_resumed: bool, idle: bool = False
    ) -> AgentSlot | BudgetRefusal:
        """Open a slot; an `idle` one counts only when it is activated."""
        caps = self.caps
        if depth > caps.max_depth:
            return _build_agent_start_refusal(
                "depth",
                format_core_notice("too_deep", maximum=caps.max_depth, depth=depth),
            )
        if not idle and self._is_full:
            limit = caps.max_concurrent
            return _build_agent_start_refusal(
                "concurrent", format_core_notice("too_many_running", running=self.running, maximum=limit)
            )
        if caps.max_total is not None and self.total >= caps.max_total and not is_resumed:
            return _build_agent_start_refusal(
                "total", format_core_notice("too_many_started", maximum=caps.max_total, started=self.total)
            )
        self.running += not idle
        self.total += not is_resumed
        return AgentSlot(kind=kind, depth=depth, is_resumed=is_resumed, is_running=not idle)

    def close_slot(self, slot: AgentSlot, *, was_started: bool) -> None:
        if slot.is_open:
            slot.is_open = False
            self.deactivate_slot(slot)
            if not was_started and not slot.is_resumed:
                self.total -= 1

    async def activate_slot(self, slot: AgentSlot) -> None:
        """Wait until the slot has a place."""
        if self.try_activate_slot(slot):
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release_place()
            raise
        slot.is_running = True

    def try_activate_slot(self, slot: AgentSlot) -> bool:
        """Give the slot a place if there is one."""
        if not slot.is_running:
            if self._is_full:
                return False
            self.running += 1
            slot.is_running = True
        return True

    def deactivate_slot(self, slot: AgentSlot) -> None:
        """Free the place of an agent that waits for work."""
        if slot.is_running:
            slot.is_running = False
            self._release_place()

    @property
    def _is_full(self) -> bool:
        return self.caps.max_concurrent is not None and self.running >= self.caps.max_concurrent

    def _release_place(self) -> None:
        # Handed over directly, so that a new agent cannot overtake the waiters.
        while self._waiting:
            waiter = self._waiting.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return
        self.running -= 1


def _build_agent_start_refusal(limit: LimitKind, sentence: str) -> BudgetRefusal:
    return BudgetRefusal(limit=limit, scope="tree", whose="", sentence=sentence)


class BudgetMeter:
    """Meter of one limit: the amount spent, and the amount reserved for requests in flight."""

    __slots__ = ("held", "limit", "maximum", "next_mark", "owner", "scope", "spent")

    def __init__(self, limit: LimitKind, maximum: float, scope: LimitScope, owner: str = "") -> None:
        self.limit = limit
        self.maximum = maximum
        self.scope = scope
        self.owner = owner
        self.spent: float = 0
        self.held: float = 0
        self.next_mark = maximum * _WARNING_PERCENTS[0] / 100
        """Amount at which the next warning is due."""

    def take_passed_warning_percent(self) -> int:
        """Return the highest newly passed mark in percent, each once; 0 if none is new."""
        if self.spent < self.next_mark:
            return 0
        passed = [mark for mark in _WARNING_PERCENTS if self.spent >= self.maximum * mark / 100]
        remaining = _WARNING_PERCENTS[len(passed) :]
        self.next_mark = self.maximum * remaining[0] / 100 if remaining else math.inf
        return passed[-1]

    def build_refusal(self) -> BudgetRefusal:
        return BudgetRefusal(
            limit=self.limit,
            scope=self.scope,
            whose=self.owner,
            sentence=self._describe_refusal(),
            for_now=self.spent < self.maximum,
        )

    def _describe_refusal(self) -> str:
        """State that the limit is spent, or that the rest is reserved for requests in flight."""
        maximum = format_limit_amount(self.limit, self.maximum)
        match self.scope:
            case "tree":
                budget = format_core_notice("budget_of_run", maximum=maximum)
            case "kind":
                budget = format_core_notice("budget_of_kind", maximum=maximum, kind=self.owner)
            case "agent":
                budget = format_core_notice("budget_of_agent", maximum=maximum, agent=self.owner)
        spent = format_limit_amount(self.limit, self.spent)
        if self.spent >= self.maximum:
            return format_core_notice("budget_spent", budget=budget, spent=spent)
        held = format_limit_amount(self.limit, self.held)
        return format_core_notice("budget_reserved", budget=budget, spent=spent, held=held)


def format_limit_amount(limit: LimitKind, value: float) -> str:
    """Format an amount for people and models."""
    match limit:
        case "usd":
            return f"${value:.4f}".rstrip("0").rstrip(".")
        case "seconds":
            return f"{value:,.1f}".removesuffix(".0") + " s"
        case _:
            return f"{value:,.0f} {limit}"


def create_budget_meters(limits: BudgetLimits, scope: LimitScope, owner: str = "") -> tuple[BudgetMeter, ...]:
    """Create a meter for each limit that is set, except time, which needs none."""
    maximums: tuple[tuple[LimitKind, float | None], ...] = (
        ("usd", limits.max_usd),
        ("tokens", limits.max_tokens),
        ("requests", limits.max_requests),
    )
    return tuple(BudgetMeter(limit, of, scope, owner) for limit, of in maximums if of is not None)
