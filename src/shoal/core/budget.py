"""Budget of a tree of agents: reserved before each request and settled after it.

Checking and reserving is one step without an await, so no two requests pass on the same money.
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
    """Budget shared by a whole tree of agents; each has an `AgentBudget` of it."""

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
        """`per_agent` limits each agent except the lead, `per_type` all agents of a type together.

        Only time is counted separately for each agent of a type.
        """
        self.limits = limits
        self.per_agent = per_agent or NO_LIMITS
        self.per_type = per_type or {}
        self.clock = clock or SystemClock()
        self.meters = meters(limits, "tree")
        self.usd = 0.0
        self.priced = True
        self.expected = FIRST_ANSWER
        """Expected tokens of an answer for an agent that has not answered yet."""
        self.waiting: deque[asyncio.Future[None]] = deque()
        """Requests that can be sent only if others in flight turn out cheaper."""
        self._warn = warn
        self._gate = Gate(caps or Caps())
        self._accounts: dict[AgentId, Account] = {}
        self._of_type: dict[str, tuple[Meter, ...]] = {}
        self._started = self.clock.monotonic()
        self._time: Meter | None = None
        self.until: float | None = None
        """Time at which the time limit of the whole tree is reached."""
        if limits.max_seconds is not None:
            self.until = self._started + limits.max_seconds
            self._time = Meter("seconds", limits.max_seconds, "tree")

    async def room(self) -> None:
        """Wait until a reservation is released; the longest waiter is woken first."""
        woken = asyncio.get_running_loop().create_future()
        self.waiting.append(woken)
        try:
            await woken
        except asyncio.CancelledError:
            # It was woken and can no longer use its turn.
            if woken.done() and not woken.cancelled():
                self.wake()
            raise

    def wake(self) -> None:
        """Wake one waiter to try again; it wakes the next as soon as it can proceed."""
        while self.waiting:
            woken = self.waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                return

    def account(self, agent: AgentId, kind: str, limits: Limits | None = None) -> Account:
        """Return the one budget of an agent, however often it is started, with additional `limits`."""
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
        """Raise `BudgetError` if there is a dollar limit and the price of the model is unknown.

        `kind` is the type of an agent that is not started yet.
        """
        limits = self.limits
        if kind is not None:
            limits = limits.tightened(self.per_agent).tightened(self.per_type.get(kind, NO_LIMITS))
        if limits.max_usd is not None and card.price is None:
            raise BudgetError(unpriced(card, limits.max_usd))

    def start(self, kind: str, depth: int, *, again: bool = False, idle: bool = False) -> Started | Refusal:
        """Open a slot for an agent before it is created; `is_resumed` for one that continues after a pause.

        An `idle` slot does not count as running until it is activated. A resumed idle agent is admitted
        even if nothing is left to spend; its requests are refused.
        """
        if not (again and idle):
            for meter in (*self.meters, *self.meters_of(kind)):
                if meter.spent >= meter.of:
                    return meter.refusal()
        return self._gate.enter(kind, depth, again=again, idle=idle)

    async def working(self, started: Started) -> None:
        """Wait until the agent may run; waiters are admitted in order."""
        await self._gate.work(started)

    def resting(self, started: Started) -> None:
        """Stop counting an agent that waits for work as running."""
        self._gate.rest(started)

    async def count_in(self, kind: str, depth: int, *, again: bool = False) -> Started | Refusal:
        """Open a slot like `open_slot`, also if the budget is in another process."""
        return self.start(kind, depth, again=again)

    def ended(self, started: Started, *, begun: bool = True) -> None:
        """Close a slot; idempotent. An agent that never began does not count as started."""
        self._gate.leave(started, begun=begun)

    @property
    def caps(self) -> Caps:
        return self._gate.caps

    @property
    def running(self) -> int:
        """Number of running agents, without the lead."""
        return self._gate.running

    @property
    def started(self) -> int:
        """Number of agents ever started, without the lead."""
        return self._gate.total

    def carry(self, agent: AgentId, kind: str, model: str, spent: Spent) -> None:
        """Add what an agent spent on a model in earlier processes of this session."""
        account = self._accounts.get(agent) or self.account(agent, kind)
        account.carry(model, spent)

    def carry_started(self, agents: int) -> None:
        """Add the number of agents that earlier processes of this session started."""
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
        """Return the meters shared by all agents of the type."""
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
