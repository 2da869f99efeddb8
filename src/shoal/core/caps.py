"""Limits of a tree of agents, and the meters that track what is left of them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

Limit: TypeAlias = Literal["usd", "tokens", "requests", "seconds", "depth", "concurrent", "total"]
Scope: TypeAlias = Literal["tree", "kind", "agent"]

_Number = TypeVar("_Number", int, float)
_MARKS = (50, 80, 100)


class Limits(Struct, frozen=True, kw_only=True):
    """Spending and time limits. None means no limit."""

    max_usd: float | None = None
    max_tokens: int | None = None
    """All tokens that the models read, cached or not, and wrote."""
    max_requests: int | None = None
    max_seconds: float | None = None

    def tightened(self, other: Limits) -> Limits:
        """Return the lower of each limit."""
        if other == NO_LIMITS:
            return self
        return Limits(
            max_usd=_lower(self.max_usd, other.max_usd),
            max_tokens=_lower(self.max_tokens, other.max_tokens),
            max_requests=_lower(self.max_requests, other.max_requests),
            max_seconds=_lower(self.max_seconds, other.max_seconds),
        )


NO_LIMITS = Limits()


def _lower(one: _Number | None, other: _Number | None) -> _Number | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class Caps(Struct, frozen=True, kw_only=True):
    """Limits on the number of agents besides the lead. None means any number."""

    max_depth: int = 3
    """The lead has depth 0, the agents it starts have depth 1."""
    max_concurrent: int | None = 20
    max_total: int | None = None


class Refusal(Struct, frozen=True, kw_only=True):
    """Reason why a request is not sent or an agent not started; the model reads the sentence."""

    limit: Limit
    scope: Scope
    whose: str
    """Type or agent that the limit belongs to; empty for the whole tree."""
    sentence: str
    for_now: bool = False
    """True if the rest is only reserved for requests in flight, which may turn out cheaper."""


class Started(Struct, kw_only=True):
    """Slot of one agent: open until the agent ends, and counted as running while it works."""

    kind: str
    depth: int
    again: bool = False
    open: bool = True
    works: bool = True
    """True if it holds one of the concurrent places."""


class Gate:
    """Counts the agents of a tree and enforces their caps."""

    __slots__ = ("_waiting", "caps", "running", "total")

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.running = 0
        self.total = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Waiters for a place, in order of arrival."""

    def enter(self, kind: str, depth: int, *, again: bool, idle: bool = False) -> Started | Refusal:
        """Open a slot; an `idle` one takes a place only when it is activated."""
        caps = self.caps
        if depth > caps.max_depth:
            return _closed("depth", f"agents may start agents to a depth of {caps.max_depth}, not {depth}")
        if not idle and self._is_full:
            most = caps.max_concurrent
            return _closed("concurrent", f"{self.running} agents are running, and {most} may run at once")
        if caps.max_total is not None and self.total >= caps.max_total and not again:
            return _closed("total", f"{self.total} of the {caps.max_total} agents of this run were started")
        self.running += not idle
        self.total += not again
        return Started(kind=kind, depth=depth, again=again, works=not idle)

    def leave(self, started: Started, *, begun: bool) -> None:
        if started.open:
            started.open = False
            self.rest(started)
            if not begun and not started.again:
                self.total -= 1

    async def work(self, started: Started) -> None:
        """Wait until the slot has a place."""
        if started.works:
            return
        if self._is_full:
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._free_place()
                raise
        else:
            self.running += 1
        started.works = True

    def rest(self, started: Started) -> None:
        """Free the place of an agent that waits for work."""
        if started.works:
            started.works = False
            self._free_place()

    @property
    def _is_full(self) -> bool:
        return self.caps.max_concurrent is not None and self.running >= self.caps.max_concurrent

    def _free_place(self) -> None:
        # Handed over directly, so that a newcomer cannot overtake the waiters.
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.running -= 1


def _closed(limit: Limit, sentence: str) -> Refusal:
    return Refusal(limit=limit, scope="tree", whose="", sentence=sentence)


class Meter:
    """Meter of one limit: the amount spent, and the amount reserved for requests in flight."""

    __slots__ = ("held", "limit", "mark", "of", "scope", "spent", "whose")

    def __init__(self, limit: Limit, of: float, scope: Scope, whose: str = "") -> None:
        self.limit = limit
        self.of = of
        self.scope = scope
        self.whose = whose
        self.spent: float = 0
        self.held: float = 0
        self.mark = of * _MARKS[0] / 100
        """Amount at which the next warning is due."""

    def passed(self) -> int:
        """Return the highest newly passed mark in percent, each once; 0 if none is new."""
        if self.spent < self.mark:
            return 0
        passed = [mark for mark in _MARKS if self.spent >= self.of * mark / 100]
        left = _MARKS[len(passed) :]
        self.mark = self.of * left[0] / 100 if left else math.inf
        return passed[-1]

    def refusal(self) -> Refusal:
        return Refusal(
            limit=self.limit,
            scope=self.scope,
            whose=self.whose,
            sentence=self._sentence(),
            for_now=self.spent < self.of,
        )

    def _sentence(self) -> str:
        """Say that the limit is spent, or that the rest is reserved for requests in flight."""
        whom = {"tree": "", "kind": f" for agents of type {self.whose}", "agent": f" for agent {self.whose}"}
        of, spent = amount(self.limit, self.of), amount(self.limit, self.spent)
        budget = f"the budget of {of}{whom[self.scope]}"
        if self.spent >= self.of:
            return f"{budget} is spent ({spent})"
        held = amount(self.limit, self.held)
        return f"{budget} is spoken for ({spent} spent, {held} for requests in flight)"


def amount(limit: Limit, value: float) -> str:
    """Format an amount for people and models."""
    match limit:
        case "usd":
            return f"${value:.4f}".rstrip("0").rstrip(".")
        case "seconds":
            return f"{value:,.1f}".removesuffix(".0") + " s"
        case _:
            return f"{value:,.0f} {limit}"


def meters(limits: Limits, scope: Scope, whose: str = "") -> tuple[Meter, ...]:
    """Create a meter for each limit that is set, except time, which needs none."""
    given: tuple[tuple[Limit, float | None], ...] = (
        ("usd", limits.max_usd),
        ("tokens", limits.max_tokens),
        ("requests", limits.max_requests),
    )
    return tuple(Meter(limit, of, scope, whose) for limit, of in given if of is not None)
