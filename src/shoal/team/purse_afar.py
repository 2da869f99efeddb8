"""Budget in a teammate's process: the lead holds it and is asked over the channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct

from shoal.core.accounts import Account, Reservation
from shoal.core.budget import Purse
from shoal.core.caps import NO_LIMITS, Limits, Meter, Refusal, Started
from shoal.core.clock import Clock
from shoal.core.ids import AgentId
from shoal.core.usage import ModelCard, Usage
from shoal.wire.outpost import Enters, Granted, Holds, Leaves, Opens, Rests, Settles, Up, Works


class _Held(Reservation):
    number: int = 0


class _Entered(Started):
    number: int = 0


class Rules(Struct, frozen=True, kw_only=True):
    """Limits of a tree of agents, with its remaining seconds."""

    tree: Limits = NO_LIMITS
    per_agent: Limits = NO_LIMITS
    per_type: Mapping[str, Limits] = {}


class PurseAfar(Purse):
    """Checks time here; money, tokens, requests and agents are counted in the lead's process."""

    def __init__(self, rules: Rules, clock: Clock, send: Callable[[Up], None]) -> None:
        per_type = {kind: _time_of(limits) for kind, limits in rules.per_type.items()}
        super().__init__(rules.tree, per_agent=_time_of(rules.per_agent), per_type=per_type, clock=clock)
        self.meters = ()
        self._rules = rules
        self._send = send
        self._number = 0
        self._asked: dict[int, asyncio.Future[Refusal | None]] = {}

    def account(self, agent: AgentId, kind: str, limits: Limits | None = None) -> Account:
        self._send(Opens(agent=agent, kind=kind, limits=limits or NO_LIMITS))
        account = self._accounts.get(agent)
        own = _time_of((limits or NO_LIMITS).tightened(self.per_agent))
        if account is None:
            account = self._accounts[agent] = AccountAfar(self, agent, kind, own)
        else:
            account.bound(kind, own)
        return account

    def admit(self, card: ModelCard, kind: str | None = None) -> None:
        strict = Purse(self._rules.tree, per_agent=self._rules.per_agent, per_type=self._rules.per_type)
        strict.admit(card, kind)

    def meters_of(self, kind: str) -> tuple[Meter, ...]:
        return ()

    async def count_in(self, kind: str, depth: int, *, again: bool = False) -> Started | Refusal:
        number, asked = self.asking()
        self._send(Enters(number=number, kind=kind, depth=depth, again=again))
        refusal = await asked
        return refusal or _Entered(kind=kind, depth=depth, again=again, number=number)

    def ended(self, started: Started, *, begun: bool = True) -> None:
        if started.open and isinstance(started, _Entered):
            started.open = False
            self._send(Leaves(number=started.number, begun=begun))

    async def working(self, started: Started) -> None:
        if started.works:
            return
        number, asked = self.asking()
        self._send(Works(number=number))
        try:
            await asked
        except asyncio.CancelledError:
            self._send(Rests())
            raise
        started.works = True

    def resting(self, started: Started) -> None:
        if started.works:
            started.works = False
            self._send(Rests())

    def tell(self, said: Up) -> None:
        self._send(said)

    def asking(self) -> tuple[int, asyncio.Future[Refusal | None]]:
        self._number += 1
        asked = self._asked[self._number] = asyncio.get_running_loop().create_future()
        return self._number, asked

    def granted(self, said: Granted) -> None:
        asked = self._asked.pop(said.number, None)
        if asked is not None and not asked.done():
            asked.set_result(said.refusal)
        elif asked is not None and said.refusal is None:
            # The requester was interrupted in the meantime.
            self._send(Settles(number=said.number))
            self._send(Leaves(number=said.number, begun=False))


class AccountAfar(Account):
    __slots__ = ()
    tree: PurseAfar

    async def hold(
        self, card: ModelCard, prompt_tokens: int, max_tokens: int | None = None
    ) -> Reservation | Refusal:
        got = self.reserve(card, prompt_tokens, max_tokens)
        if isinstance(got, Refusal):
            return got
        number, asked = self.tree.asking()
        self.tree.tell(
            Holds(
                number=number, agent=self.agent, card=card, prompt_tokens=prompt_tokens, max_tokens=max_tokens
            )
        )
        refusal = await asked
        return refusal or _Held(got.card, got.usd, got.tokens, got.at, number=number)

    def settle(self, held: Reservation, usage: Usage) -> float | None:
        self._tell(held, Settles(number=_number(held), usage=usage))
        if isinstance(held, _Held):
            held.number = 0
        return super().settle(held, usage)

    def release(self, held: Reservation) -> None:
        if held.open:
            self._tell(held, Settles(number=_number(held)))
        super().release(held)

    def write_off(self, held: Reservation) -> None:
        self._tell(held, Settles(number=_number(held), billed=True))
        super().write_off(held)

    def _tell(self, held: Reservation, said: Settles) -> None:
        if _number(held):
            self.tree.tell(said)


def _number(held: Reservation) -> int:
    return held.number if isinstance(held, _Held) else 0


def _time_of(limits: Limits) -> Limits:
    return Limits(max_seconds=limits.max_seconds)
