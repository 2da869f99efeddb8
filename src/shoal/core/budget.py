"""The purse: what a tree of agents may spend, held before each request and settled after it.

Checking and holding is one step without a pause, so no two agents are let through on the same money.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from shoal.core.accounts import FIRST_ANSWER, Account, Tally, sums, unpriced, usage_of
from shoal.core.caps import NO_LIMITS, Caps, Gate, Limits, Meter, Refusal, Started, meters
from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import BudgetError
from shoal.core.events import BudgetWarned
from shoal.core.ids import LEAD, AgentId
from shoal.core.usage import ModelCard, Spent, Usage


def _unheard(_: BudgetWarned) -> None: ...


class Purse:
    """One for a whole tree of agents; each of them has an account with it."""

    def __init__(
        self,
        limits: Limits,
        caps: Caps | None = None,
        *,
        per_agent: Limits | None = None,
        per_type: Mapping[str, Limits] | None = None,
        clock: Clock | None = None,
        warn: Callable[[BudgetWarned], None] = _unheard,
    ) -> None:
        """`per_agent` binds each agent but the lead, `per_type` all agents of a type together.

        Only time is counted for each agent of a type by itself.
        """
        self.limits = limits
        self.per_agent = per_agent or NO_LIMITS
        self.per_type = per_type or {}
        self.clock = clock or SystemClock()
        self.meters = meters(limits, "tree")
        self.usd = 0.0
        self.priced = True
        self.expected = FIRST_ANSWER
        """Tokens of an answer, for an agent that has given none yet."""
        self.waiting: deque[asyncio.Future[None]] = deque()
        """Requests for which there is money only if others in flight turn out cheaper."""
        self._warn = warn
        self._gate = Gate(caps or Caps())
        self._accounts: dict[AgentId, Account] = {}
        self._of_type: dict[str, tuple[Meter, ...]] = {}
        self._started = self.clock.monotonic()
        self._time: Meter | None = None
        self.until: float | None = None
        """When the time of the whole tree is up."""
        if limits.max_seconds is not None:
            self.until = self._started + limits.max_seconds
            self._time = Meter("seconds", limits.max_seconds, "tree")

    async def room(self) -> None:
        """Until something that was held is given back; whoever waited longest is woken first."""
        woken = asyncio.get_running_loop().create_future()
        self.waiting.append(woken)
        try:
            await woken
        except asyncio.CancelledError:
            # Its turn had come, and it cannot take it any more.
            if woken.done() and not woken.cancelled():
                self.wake()
            raise

    def wake(self) -> None:
        """Let one look again; it wakes the next as soon as it need not wait any longer."""
        while self.waiting:
            woken = self.waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                return

    def account(self, agent: AgentId, kind: str, limits: Limits | None = None) -> Account:
        """The agent's one account, however often it is started, under `limits` of its own as well."""
        own = limits or NO_LIMITS
        if agent != LEAD:
            own = own.tightened(self.per_agent)
        account = self._accounts.get(agent)
        if account is None:
            account = self._accounts[agent] = Account(self, agent, kind, own)
        else:
            account.bound(kind, own)
        return account

    def admit(self, card: ModelCard, kind: str | None = None) -> None:
        """Raises `BudgetError` for a model whose spending could not be kept within a budget in dollars.

        With a type, for an agent of that type that is not started yet.
        """
        limits = self.limits
        if kind is not None:
            limits = limits.tightened(self.per_agent).tightened(self.per_type.get(kind, NO_LIMITS))
        if limits.max_usd is not None and card.price is None:
            raise BudgetError(unpriced(card, limits.max_usd))

    def start(self, kind: str, depth: int, *, again: bool = False, idle: bool = False) -> Started | Refusal:
        """Count an agent in, before it is made. One that goes on after a pause is there `again`.

        One that comes `idle` does not count as running until it says that it works; where it comes again,
        it is there whatever is left to spend, and refused when it asks for some.
        """
        if not (again and idle):
            for meter in (*self.meters, *self.meters_of(kind)):
                if meter.spent >= meter.of:
                    return meter.refusal()
        return self._gate.enter(kind, depth, again=again, idle=idle)

    async def working(self, started: Started) -> None:
        """Until it may run beside the others; they are let in in the order in which they ask."""
        await self._gate.work(started)

    def resting(self, started: Started) -> None:
        """It waits for something to do, and does not count as running meanwhile."""
        self._gate.rest(started)

    async def count_in(self, kind: str, depth: int, *, again: bool = False) -> Started | Refusal:
        """As `start`, also where the purse is another process's."""
        return self.start(kind, depth, again=again)

    def ended(self, started: Started, *, begun: bool = True) -> None:
        """Saying it twice does no harm. One that could not begin does not count as started."""
        self._gate.leave(started, begun=begun)

    @property
    def caps(self) -> Caps:
        return self._gate.caps

    @property
    def running(self) -> int:
        """Agents at work now, without the lead."""
        return self._gate.running

    @property
    def started(self) -> int:
        """Agents ever started, without the lead."""
        return self._gate.total

    def carry(self, agent: AgentId, kind: str, model: str, spent: Spent) -> None:
        """Enter what an agent spent on a model in earlier processes of this session."""
        account = self._accounts.get(agent) or self.account(agent, kind)
        account.carry(model, spent)

    def carry_started(self, agents: int) -> None:
        """Enter how many agents earlier processes of this session started."""
        self._gate.total += agents

    @property
    def usage(self) -> Usage:
        return usage_of(tally for account in self._accounts.values() for tally in account.tallies.values())

    @property
    def by_model(self) -> dict[str, tuple[Usage, float]]:
        tallies: dict[str, list[Tally]] = {}
        for account in self._accounts.values():
            for model, tally in account.tallies.items():
                tallies.setdefault(model, []).append(tally)
        return {model: sums(of_model) for model, of_model in tallies.items()}

    @property
    def by_agent(self) -> dict[AgentId, tuple[Usage, float]]:
        accounts = self._accounts.items()
        return {agent: sums(account.tallies.values()) for agent, account in accounts if account.tallies}

    @property
    def by_kind(self) -> dict[str, tuple[Usage, float]]:
        tallies: dict[str, list[Tally]] = {}
        for account in self._accounts.values():
            if account.tallies:
                tallies.setdefault(account.kind, []).extend(account.tallies.values())
        return {kind: sums(of_kind) for kind, of_kind in tallies.items()}

    def meters_of(self, kind: str) -> tuple[Meter, ...]:
        """Shared by all agents of the type."""
        if kind not in self.per_type:
            return ()
        if kind not in self._of_type:
            self._of_type[kind] = meters(self.per_type[kind], "kind", kind)
        return self._of_type[kind]

    def warn_of(self, meter: Meter, agent: AgentId) -> None:
        if percent := meter.passed():
            self._warn(
                BudgetWarned(
                    agent=agent if meter.scope == "agent" else LEAD,
                    limit=meter.limit,
                    percent=percent,
                    spent=meter.spent,
                    of=meter.of,
                    whose=meter.whose,
                )
            )

    def look_at_the_clock(self) -> None:
        if self._time is not None:
            self._time.spent = self.clock.monotonic() - self._started
            if self._time.spent >= self._time.mark:
                self.warn_of(self._time, LEAD)
