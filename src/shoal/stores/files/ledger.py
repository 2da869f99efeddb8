"""Usage of a run, summed from its journal: settled requests exactly, unsettled requests as a list."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from shoal.core.events import AgentStarted, RequestFailed, RequestSent, RequestSettled
from shoal.core.ids import LEAD, LEAD_KIND, AgentId, RequestId
from shoal.core.usage import Spent
from shoal.stores.files.journal import read_journal
from shoal.wire.journal import Recorded

_Key = TypeVar("_Key", bound=str)


class Unsettled(Struct, frozen=True, kw_only=True):
    """A request that was sent and whose cost was never reported."""

    request: RequestId
    agent: AgentId
    model: str
    at: int
    reason: str


class Worker(Struct, frozen=True, kw_only=True):
    """Agent that used the tokens: type, name and task, as far as the journal has them."""

    kind: str = ""
    name: str = ""
    task: str = ""


class Ledger(Struct, frozen=True, kw_only=True):
    spent: dict[tuple[AgentId, str], Spent]
    """Usage by agent and model."""
    unsettled: tuple[Unsettled, ...]
    workers: dict[AgentId, Worker] = {}
    """Every started agent."""

    @property
    def total(self) -> Spent:
        return sum(self.spent.values(), Spent())

    @property
    def by_agent(self) -> dict[AgentId, Spent]:
        return _summed((agent, spent) for (agent, _), spent in self.spent.items())

    @property
    def by_kind(self) -> dict[str, Spent]:
        return _summed((self.worker(agent).kind, spent) for (agent, _), spent in self.spent.items())

    @property
    def by_model(self) -> dict[str, Spent]:
        return _summed((model, spent) for (_, model), spent in self.spent.items())

    def worker(self, agent: AgentId) -> Worker:
        return self.workers.get(agent) or Worker(kind=LEAD_KIND if agent == LEAD else "")


def _summed(parts: Iterable[tuple[_Key, Spent]]) -> dict[_Key, Spent]:
    sums: dict[_Key, Spent] = {}
    for key, spent in parts:
        sums[key] = sums.get(key, Spent()) + spent
    return sums


def usage_of(journal: Path) -> Ledger:
    spent: dict[tuple[AgentId, str], Spent] = {}
    in_flight: dict[RequestId, Unsettled] = {}
    cut: list[Unsettled] = []
    workers: dict[AgentId, Worker] = {}
    for recorded in read_journal(journal):
        match recorded.event:
            case AgentStarted(agent=agent, kind=kind, name=name, description=task):
                workers[agent] = Worker(kind=kind, name=name, task=task)
            case RequestSent() as sent:
                if sent.request in in_flight:
                    cut.append(in_flight[sent.request])
                in_flight[sent.request] = _sent(sent, recorded)
            case RequestSettled() as settled:
                in_flight.pop(settled.request, None)
                key = (settled.agent, settled.model)
                spent[key] = spent.get(key, Spent()) + _settled(settled)
            case RequestFailed() as failure:
                known = in_flight.pop(failure.request, None)
                if failure.billed:
                    cut.append(_failed(failure, known, recorded))
            case _:
                pass
    return Ledger(spent=spent, unsettled=(*cut, *in_flight.values()), workers=workers)


def _sent(event: RequestSent, recorded: Recorded) -> Unsettled:
    return Unsettled(
        request=event.request,
        agent=event.agent,
        model=event.model,
        at=recorded.at,
        reason="no answer is recorded",
    )


def _settled(event: RequestSettled) -> Spent:
    return Spent(
        requests=1,
        usage=event.usage,
        usd=event.cost_usd or 0.0,
        unpriced=int(event.cost_usd is None),
    )


def _failed(event: RequestFailed, sent: Unsettled | None, recorded: Recorded) -> Unsettled:
    return Unsettled(
        request=event.request,
        agent=event.agent,
        model=sent.model if sent else "",
        at=recorded.at,
        reason=event.reason,
    )
