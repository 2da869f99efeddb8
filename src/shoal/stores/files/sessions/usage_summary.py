"""Usage of a run, summed from its journal: settled requests exactly, unsettled requests as a list."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, TypeVar

from msgspec import Struct

from shoal.core.budgets.usage import UsageAndCostTotals
from shoal.core.events import (
    EVENT_MODULES,
    AgentStarted,
    JournalRecord,
    ModelRequestFailed,
    ModelRequestSent,
    ModelRequestSettled,
)
from shoal.core.ids import LEAD_ID, LEAD_KIND, AgentId, RequestId
from shoal.stores.files.sessions.journal_snapshots import load_journal_state

_Key = TypeVar("_Key", bound=str)


class UnsettledModelRequest(Struct, frozen=True, kw_only=True):
    """A request that was sent and whose cost was never reported."""

    request: RequestId
    agent: AgentId
    model: str
    at: int
    reason: str
    usd: float = 0.0
    """Dollars counted against the limits: its reservation or an estimate."""
    tokens: int = 0


class SpendingAgent(Struct, frozen=True, kw_only=True):
    """Agent that used the tokens: type, name and task, as far as the journal has them."""

    kind: str = ""
    name: str = ""
    task: str = ""


class RunUsageSummary(Struct, frozen=True, kw_only=True):
    spent: dict[tuple[AgentId, str], UsageAndCostTotals]
    """Usage by agent and model."""
    unsettled: tuple[UnsettledModelRequest, ...]
    agents: dict[AgentId, SpendingAgent] = {}
    """Every started agent."""

    @property
    def total(self) -> UsageAndCostTotals:
        return sum(self.spent.values(), UsageAndCostTotals())

    @property
    def by_agent(self) -> dict[AgentId, UsageAndCostTotals]:
        return _sum_costs_by_key((agent, spent) for (agent, _), spent in self.spent.items())

    @property
    def by_agent_kind(self) -> dict[str, UsageAndCostTotals]:
        return _sum_costs_by_key(
            (self.get_agent(agent).kind, spent) for (agent, _), spent in self.spent.items()
        )

    @property
    def by_model(self) -> dict[str, UsageAndCostTotals]:
        return _sum_costs_by_key((model, spent) for (_, model), spent in self.spent.items())

    def get_agent(self, agent: AgentId) -> SpendingAgent:
        return self.agents.get(agent) or SpendingAgent(kind=LEAD_KIND if agent == LEAD_ID else "")


def _sum_costs_by_key(parts: Iterable[tuple[_Key, UsageAndCostTotals]]) -> dict[_Key, UsageAndCostTotals]:
    sums: dict[_Key, UsageAndCostTotals] = {}
    for key, spent in parts:
        sums[key] = sums.get(key, UsageAndCostTotals()) + spent
    return sums


class RunUsageState:
    """Usage in the records of a journal so far."""

    snapshot_name: ClassVar[str] = "usage"
    snapshot_modules: ClassVar[tuple[str, ...]] = (__name__, *EVENT_MODULES)

    def __init__(self) -> None:
        self._spent: dict[tuple[AgentId, str], UsageAndCostTotals] = {}
        self._in_flight: dict[RequestId, UnsettledModelRequest] = {}
        self._unsettled: list[UnsettledModelRequest] = []
        self._workers: dict[AgentId, SpendingAgent] = {}

    def apply_record(self, record: JournalRecord) -> None:
        match record.event:
            case AgentStarted(agent=agent, kind=kind, name=name, description=task):
                self._workers[agent] = SpendingAgent(kind=kind, name=name, task=task)
            case ModelRequestSent() as sent:
                if sent.request in self._in_flight:
                    self._unsettled.append(self._in_flight[sent.request])
                self._in_flight[sent.request] = _build_unanswered_model_request(sent, record)
            case ModelRequestSettled() as settled:
                self._in_flight.pop(settled.request, None)
                key = (settled.agent, settled.model)
                self._spent[key] = self._spent.get(key, UsageAndCostTotals()) + _to_cost_totals(settled)
            case ModelRequestFailed() as failure:
                sent_request = self._in_flight.pop(failure.request, None)
                if failure.billed:
                    self._unsettled.append(_build_failed_model_request(failure, sent_request, record))
            case _:
                pass

    def build_summary(self) -> RunUsageSummary:
        return RunUsageSummary(
            spent=dict(self._spent),
            unsettled=(*self._unsettled, *self._in_flight.values()),
            agents=dict(self._workers),
        )


def summarize_journal_usage(journal: Path) -> RunUsageSummary:
    return load_journal_state(journal, RunUsageState)[0].build_summary()


def _build_unanswered_model_request(event: ModelRequestSent, record: JournalRecord) -> UnsettledModelRequest:
    return UnsettledModelRequest(
        request=event.request,
        agent=event.agent,
        model=event.model,
        at=record.at,
        reason="no answer is recorded",
        usd=event.reserved_usd,
        tokens=event.reserved_tokens,
    )


def _to_cost_totals(event: ModelRequestSettled) -> UsageAndCostTotals:
    return UsageAndCostTotals(
        requests=1,
        usage=event.usage,
        usd=event.cost_usd or 0.0,
        unpriced=int(event.cost_usd is None),
    )


def _build_failed_model_request(
    event: ModelRequestFailed, sent: UnsettledModelRequest | None, record: JournalRecord
) -> UnsettledModelRequest:
    usd, tokens = (sent.usd, sent.tokens) if sent else (0.0, 0)
    return UnsettledModelRequest(
        request=event.request,
        agent=event.agent,
        model=sent.model if sent else "",
        at=record.at,
        reason=event.reason,
        usd=usd if event.estimated_usd is None else event.estimated_usd,
        tokens=tokens if event.estimated_tokens is None else event.estimated_tokens,
    )
