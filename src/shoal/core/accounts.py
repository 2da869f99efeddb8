"""Budget of one agent: reservations before each request, settlement after it, and usage totals."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from shoal.core.caps import NO_LIMITS, Limits, Meter, Refusal, Scope, amount, meters
from shoal.core.errors import BudgetError
from shoal.core.ids import AgentId
from shoal.core.usage import LongPrompt, ModelCard, Price, Spent, Usage

if TYPE_CHECKING:
    from shoal.core.budget import Purse

FIRST_ANSWER = 400
"""Expected tokens of an answer before any agent of the tree has answered."""
LONGEST_EXPECTED = 8_000
_GRAIN = 2**40
"""Estimates are binary fractions of a dollar, so that reserving and releasing sum to exactly zero."""


_Meters: TypeAlias = tuple[Meter, ...]


class Reservation(Struct):
    """Amount set aside for one request until it is settled or released."""

    card: ModelCard
    usd: float
    tokens: int
    at: tuple[_Meters, _Meters, _Meters]
    """Meters that hold it: for dollars, tokens and requests."""
    open: bool = True


class Tally:
    """Spending of one agent on one model."""

    __slots__ = ("cache_read", "cache_written", "input", "output", "requests", "unpriced", "usd")

    def __init__(self) -> None:
        self.requests = self.unpriced = 0
        self.input = self.output = self.cache_written = self.cache_read = 0
        self.usd = 0.0

    def enter(self, usage: Usage, cost: float | None) -> None:
        self.requests += 1
        self.input += usage.input_tokens
        self.output += usage.output_tokens
        self.cache_written += usage.cache_creation_input_tokens
        self.cache_read += usage.cache_read_input_tokens
        if cost is None:
            self.unpriced += 1
        else:
            self.usd += cost

    def carry(self, spent: Spent) -> None:
        self.enter(spent.usage, spent.usd)
        self.requests += spent.requests - 1
        self.unpriced += spent.unpriced


def usage_of(tallies: Iterable[Tally]) -> Usage:
    tallies = tuple(tallies)
    return Usage(
        input_tokens=sum(tally.input for tally in tallies),
        output_tokens=sum(tally.output for tally in tallies),
        cache_creation_input_tokens=sum(tally.cache_written for tally in tallies),
        cache_read_input_tokens=sum(tally.cache_read for tally in tallies),
    )


def sums(tallies: Iterable[Tally]) -> tuple[Usage, float]:
    tallies = tuple(tallies)
    return usage_of(tallies), sum(tally.usd for tally in tallies)


class Account:
    """Budget of one agent under the limits of its tree, of its type and its own."""

    __slots__ = (
        "_answers",
        "_at",
        "_expected",
        "_full_usd",
        "_lost",
        "_lost_tokens",
        "_lost_usd",
        "_max_seconds",
        "_meters",
        "_part",
        "_prompt_usd",
        "_requests",
        "_since",
        "_tokens",
        "_until",
        "_usd",
        "_words",
        "_worked",
        "agent",
        "kind",
        "tallies",
        "tree",
    )

    def __init__(self, tree: Purse, agent: AgentId, kind: str, limits: Limits) -> None:
        self.tree = tree
        self.agent = agent
        self.kind = kind
        self.tallies: dict[str, Tally] = {}
        self._lost_usd, self._lost_tokens, self._lost = 0.0, 0, 0
        self._answers = self._words = 0
        self._expected = tree.expected
        self._full_usd = self._prompt_usd = 0.0
        self._part = 1.0
        self._worked = 0.0
        self._since: float | None = None
        self._until = tree.until
        self.bound(kind, limits)

    def bound(self, kind: str, limits: Limits) -> None:
        """Apply these limits from now on; earlier spending counts."""
        self.kind = kind
        own = meters(limits, "agent", self.agent)
        if own:
            self._count_against(own)
        typed = self.tree.per_type.get(kind, NO_LIMITS)
        self._max_seconds = limits.tightened(typed).max_seconds
        self._meters = (*self.tree.meters, *self.tree.meters_of(kind), *own)
        self._usd = tuple(meter for meter in self._meters if meter.limit == "usd")
        self._tokens = tuple(meter for meter in self._meters if meter.limit == "tokens")
        self._requests = tuple(meter for meter in self._meters if meter.limit == "requests")
        self._at = (self._usd, self._tokens, self._requests)

    def _count_against(self, own: _Meters) -> None:
        """Charge what the agent has spent so far to its own meters."""
        spent = {
            "usd": self.usd + self._lost_usd,
            "tokens": self.usage.total_tokens + self._lost_tokens,
            "requests": sum(tally.requests for tally in self.tallies.values()) + self._lost,
        }
        for meter in own:
            meter.spent = spent[meter.limit]
            meter.passed()

    @property
    def usage(self) -> Usage:
        """Usage of this agent alone; `budget.usage` is that of the whole tree."""
        return usage_of(self.tallies.values())

    @property
    def usd(self) -> float:
        return sum(tally.usd for tally in self.tallies.values())

    @property
    def priced(self) -> bool:
        return not any(tally.unpriced for tally in self.tallies.values())

    @property
    def by_model(self) -> dict[str, tuple[Usage, float]]:
        return {model: sums((tally,)) for model, tally in self.tallies.items()}

    def admit(self, card: ModelCard) -> None:
        """Raise `BudgetError` if there is a dollar limit and the price of the model is unknown."""
        if self._usd and card.price is None:
            raise BudgetError(unpriced(card, self._usd[0].of))

    def begin(self) -> float | None:
        """Start counting working time; return the seconds left, or None without a limit."""
        now = self._since = self.tree.clock.monotonic()
        self._until = self.tree.until
        if self._max_seconds is not None:
            own = now + self._max_seconds - self._worked
            self._until = own if self._until is None else min(own, self._until)
        return None if self._until is None else max(0.0, self._until - now)

    def end(self) -> None:
        """Stop counting working time: idle time does not count against the agent's limit."""
        if self._since is not None:
            self._worked += self.tree.clock.monotonic() - self._since
            self._since = None
            self._until = self.tree.until

    def out_of_time(self) -> Refusal | None:
        """Return a refusal if the time limit is reached."""
        until = self._until
        return None if until is None or self.tree.clock.monotonic() < until else self._late(until)

    def _late(self, until: float) -> Refusal:
        whole = until == self.tree.until
        scope: Scope = "tree" if whole else "agent"
        whose = "" if whole else self.agent
        most = self.tree.limits.max_seconds if whole else self._max_seconds
        sentence = f"the {amount('seconds', most or 0)} for {'the whole run' if whole else whose} have passed"
        return Refusal(limit="seconds", scope=scope, whose=whose, sentence=sentence)

    async def hold(
        self, card: ModelCard, prompt_tokens: int, max_tokens: int | None = None
    ) -> Reservation | Refusal:
        """Reserve like `reserve`, but wait while the rest of a budget is only reserved for other requests."""
        got = self.reserve(card, prompt_tokens, max_tokens)
        if not isinstance(got, Refusal) or not got.for_now:
            return got
        while isinstance(got, Refusal) and got.for_now:
            await self.tree.room()
            got = self.reserve(card, prompt_tokens, max_tokens)
        self.tree.wake()
        return got

    def reserve(
        self, card: ModelCard, prompt_tokens: int, max_tokens: int | None = None
    ) -> Reservation | Refusal:
        """Reserve the expected cost of a request; it counts as spent until settled or released."""
        until = self._until
        if until is not None and self.tree.clock.monotonic() >= until:
            return self._late(until)
        for meter in self._meters:
            if meter.spent + meter.held >= meter.of:
                return meter.refusal()
        words = min(self._expected, max_tokens or card.max_output)
        usd = 0.0
        if self._usd:
            if card.price is None:
                meter = self._usd[0]
                sentence = unpriced(card, meter.of)
                return Refusal(limit="usd", scope=meter.scope, whose=meter.whose, sentence=sentence)
            usd = self._expected_usd(card.price, prompt_tokens, words)
        tokens = prompt_tokens + words
        for meter in self._usd:
            meter.held += usd
        for meter in self._tokens:
            meter.held += tokens
        for meter in self._requests:
            meter.held += 1
        return Reservation(card, usd, tokens, self._at)

    def settle(self, held: Reservation, usage: Usage) -> float | None:
        """Record the usage of a request and return its cost, or None if the price is unknown."""
        self.release(held)
        card = held.card
        price = card.price
        cost = None if price is None else price.of(usage)
        tally = self.tallies.get(card.id)
        if tally is None:
            tally = self.tallies[card.id] = Tally()
        tally.enter(usage, cost)
        tree = self.tree
        prompt, words = usage.prompt_tokens, usage.output_tokens
        self._answers += 1
        self._words += words
        self._expected = tree.expected = min(self._words // self._answers, LONGEST_EXPECTED)
        if price is None or cost is None:
            tree.priced = False
        else:
            tree.usd += cost
            if self._usd:
                self._learn(price, prompt, words, cost)
        if self._meters or tree.until is not None:
            self._spend(cost or 0.0, prompt + words, 1)
            self._look()
        return cost

    def release(self, held: Reservation) -> None:
        """Release the reservation of a request that was not billed; does nothing if it is settled."""
        if not held.open:
            return
        held.open = False
        in_dollars, in_tokens, in_requests = held.at
        for meter in in_dollars:
            meter.held -= held.usd
        for meter in in_tokens:
            meter.held -= held.tokens
        for meter in in_requests:
            meter.held -= 1
        if self.tree.waiting:
            self.tree.wake()

    def write_off(self, held: Reservation) -> None:
        """Charge the estimate for an attempt that may be billed and whose cost is unknown."""
        self._lost += 1
        self._lost_usd += held.usd
        self._lost_tokens += held.tokens
        self._spend(held.usd, held.tokens, 1)
        self._look()

    def carry(self, model: str, spent: Spent) -> None:
        """Add what earlier processes of the session spent, without repeating their warnings."""
        self.tallies.setdefault(model, Tally()).carry(spent)
        self.tree.usd += spent.usd
        self.tree.priced = self.tree.priced and not spent.unpriced
        self._spend(spent.usd, spent.usage.total_tokens, spent.requests)
        for meter in self._meters:
            meter.passed()

    def _spend(self, usd: float, tokens: int, requests: int) -> None:
        for meter in self._usd:
            meter.spent += usd
        for meter in self._tokens:
            meter.spent += tokens
        for meter in self._requests:
            meter.spent += requests

    def _look(self) -> None:
        """Emit the warnings that are due."""
        for meter in self._meters:
            if meter.spent >= meter.mark:
                self.tree.warn_of(meter, self.agent)
        if self.tree.until is not None:
            self.tree.look_at_the_clock()

    def _expected_usd(self, price: Price, prompt_tokens: int, words: int) -> float:
        if price.beyond is not None:
            price = _in_force(price.beyond, price, prompt_tokens)
        usd = (prompt_tokens * price.input * self._part + words * price.output) / 1_000_000
        return ceil(usd * _GRAIN) / _GRAIN

    def _learn(self, price: Price, prompt_tokens: int, words: int, cost: float) -> None:
        """Update the share of the full prompt price that is really paid, which caching lowers."""
        if price.beyond is not None:
            price = _in_force(price.beyond, price, prompt_tokens)
        self._full_usd += prompt_tokens * price.input / 1_000_000
        self._prompt_usd += cost - words * price.output / 1_000_000
        if self._full_usd:
            self._part = self._prompt_usd / self._full_usd


def _in_force(beyond: LongPrompt, usual: Price, prompt_tokens: int) -> Price:
    return beyond.price if prompt_tokens > beyond.tokens else usual


def unpriced(card: ModelCard, of: float) -> str:
    """Explain that a dollar budget cannot be enforced for a model of unknown price."""
    return (
        f"A budget of ${of:g} cannot be kept: the price of {card.id} is not known. "
        f'Add {{"{card.id}": {{"input": …, "output": …}}}} in settings.json under "shoal", "models", '
        "or leave the budget out."
    )
