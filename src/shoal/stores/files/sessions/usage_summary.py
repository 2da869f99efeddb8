"""Usage of a run, summed from its journal: settled requests exactly, unsettled requests as a list."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from shoal.core.budgets.usage import UsageAndCostTotals
from shoal.core.events import (
    AgentStarted,
    JournalRecord,
    ModelRequestFailed,
    ModelRequestSent,
    ModelRequestSettled,
)
from shoal.core.ids import LEAD_ID, LEAD_KIND, AgentId, RequestId
from shoal.stores.files.sessions.file_journal import read_journal

_Key = TypeVar("_Key", bound=str)


class UnsettledModelRequest(Struct, frozen=True, kw_only=True):
    """A request that was sent and whose cost was never reported."""

    request: RequestId
    agent: AgentId
    model: str
    at: int
    reason: str
    usd: float = 0.0
    """Dollars that it counts with against the limits: its reservation or an estimate."""
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


def summarize_journal_usage(journal: Path) -> RunUsageSummary:
    return summarize_usage(read_journal(journal))


def summarize_usage(records: Iterable[JournalRecord]) -> RunUsageSummary:
    """Sum the usage in the records of a whole journal."""
    spent: dict[tuple[AgentId, str], UsageAndCostTotals] = {}
    in_flight: dict[RequestId, UnsettledModelRequest] = {}
    unsettled: list[UnsettledModelRequest] = []
    workers: dict[AgentId, SpendingAgent] = {}
    for record in records:
        match record.event:
            case AgentStarted(agent=agent, kind=kind, name=name, description=task):
                workers[agent] = SpendingAgent(kind=kind, name=name, task=task)
            case ModelRequestSent() as sent:
                if sent.request in in_flight:
                    unsettled.append(in_flight[sent.request])
                in_flight[sent.request] = _build_unanswered_model_request(sent, record)
            case ModelRequestSettled() as settled:
                in_flight.pop(settled.request, None)
                key = (settled.agent, settled.model)
                spent[key] = spent.get(key, UsageAndCostTotals()) + _to_cost_totals(settled)
            case ModelRequestFailed() as failure:
                sent_request = in_flight.pop(failure.request, None)
                if failure.billed:
                    unsettled.append(_build_failed_model_request(failure, sent_request, record))
            case _:
                pass
    return RunUsageSummary(spent=spent, unsettled=(*unsettled, *in_flight.values()), agents=workers)


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
