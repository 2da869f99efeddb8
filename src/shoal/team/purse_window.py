"""Serves the budget to a teammate's process over the lead's end of the channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from shoal.core.accounts import Account, Reservation
from shoal.core.budget import Purse
from shoal.core.caps import NO_LIMITS, Refusal, Started
from shoal.core.ids import AgentId
from shoal.wire.outpost import Down, Enters, Granted, Holds, Leaves, Opens, Rests, Settles, Works

Request: TypeAlias = Opens | Holds | Settles | Enters | Leaves | Works | Rests


class PurseWindow:
    """Budget server of one process; its unsettled reservations count as spent when it is gone."""

    def __init__(self, purse: Purse, send: Callable[[Down], None]) -> None:
        self._purse = purse
        self._send = send
        self._accounts: dict[AgentId, Account] = {}
        self._held: dict[int, tuple[Account, Reservation]] = {}
        self._entered: dict[int, Started] = {}
        self.place: Started | None = None
        """Concurrency slot of the member itself."""
        self._waiting: asyncio.Task[None] | None = None
        self._holding: set[asyncio.Task[None]] = set()

    def serve(self, request: Request, tasks: asyncio.TaskGroup) -> None:
        match request:
            case Opens(agent=agent, kind=kind, limits=limits):
                self._accounts[agent] = self._purse.account(agent, kind, limits)
            case Holds():
                # It may have to wait until other reservations are settled.
                holding = tasks.create_task(self._hold(request))
                self._holding.add(holding)
                holding.add_done_callback(self._holding.discard)
            case Settles(number=number):
                if (held := self._held.get(number)) is not None:
                    self._settle(request, *held)
            case Enters():
                self._enter(request)
            case Leaves(number=number, begun=begun):
                if (started := self._entered.pop(number, None)) is not None:
                    self._purse.ended(started, begun=begun)
            case Works(number=number):
                self._waiting = tasks.create_task(self._work(number))
            case Rests():
                self._rest()

    def _enter(self, request: Enters) -> None:
        got = self._purse.start(request.kind, request.depth, again=request.again)
        if isinstance(got, Refusal):
            self._send(Granted(number=request.number, refusal=got))
        else:
            self._entered[request.number] = got
            self._send(Granted(number=request.number))

    async def _work(self, number: int) -> None:
        if self.place is not None:
            await self._purse.working(self.place)
        self._send(Granted(number=number))

    def _rest(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        if self.place is not None:
            self._purse.resting(self.place)

    async def _hold(self, request: Holds) -> None:
        account = self._accounts.get(request.agent) or self._purse.account(request.agent, "", NO_LIMITS)
        got = await account.hold(request.card, request.prompt_tokens, request.max_tokens)
        if isinstance(got, Refusal):
            self._send(Granted(number=request.number, refusal=got))
        else:
            self._held[request.number] = (account, got)
            self._send(Granted(number=request.number))

    def _settle(self, request: Settles, account: Account, held: Reservation) -> None:
        if request.billed:
            account.write_off(held)
            return
        del self._held[request.number]
        if request.usage is None:
            account.release(held)
        else:
            account.settle(held, request.usage)

    def hang_up(self) -> None:
        """Cancel pending grants that nobody receives any more."""
        self._rest()
        for holding in tuple(self._holding):
            holding.cancel()

    def close(self) -> None:
        """Write off the open reservations of a process that is gone."""
        self._rest()
        for account, held in self._held.values():
            account.write_off(held)
            account.release(held)
        for started in self._entered.values():
            self._purse.ended(started)
        self._held.clear()
        self._entered.clear()
