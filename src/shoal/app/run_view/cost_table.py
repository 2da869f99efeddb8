"""Costs of a run by agent, model and task, and over time."""

from __future__ import annotations

from sys import intern
from typing import TypeAlias

from msgspec import Struct

from shoal.app.run_view.change_table import ChangeTrackingRowMap
from shoal.app.run_view.view_rows import CumulativeSpendPoint, RunViewCostRow
from shoal.core.events import ModelRequestSettled

INITIAL_SPAN_MS = 1_000
"""Milliseconds; doubled whenever there are too many points to display."""
MAX_POINTS = 512


class CostAttribution(Struct, frozen=True, kw_only=True):
    """Agent and task that a cost is attributed to."""

    name: str
    kind: str
    board: str = ""
    task: str = ""
    phase: str = ""


_Key: TypeAlias = tuple[str, str, str, str]
"""Agent, model, board and task."""


class RunViewCostsState:
    def __init__(self) -> None:
        self.rows: ChangeTrackingRowMap[_Key, RunViewCostRow] = ChangeTrackingRowMap()
        self.points: ChangeTrackingRowMap[int, CumulativeSpendPoint] = ChangeTrackingRowMap()
        self._span = INITIAL_SPAN_MS
        self.usd = 0.0
        self.tokens = 0
        self.requests = 0
        self.unpriced = 0

    def add_request_cost(
        self, event: ModelRequestSettled, attribution: CostAttribution, at: int, offset: int
    ) -> None:
        # One string for all rows of an agent, a model or a board.
        key = (intern(event.agent), intern(event.model), intern(attribution.board), attribution.task)
        usd, unpriced = event.cost_usd or 0.0, int(event.cost_usd is None)
        self.usd += usd
        self.tokens += event.usage.total_tokens
        self.requests += 1
        self.unpriced += unpriced
        self.rows.put(key, _add_to_cost_row(self.rows.get(key), key, attribution, event), offset)
        start = at - at % self._span
        self.points.put(start, CumulativeSpendPoint(at=start, usd=self.usd, tokens=self.tokens), offset)
        if len(self.points) > MAX_POINTS:
            self._merge_spend_points(offset)

    def _merge_spend_points(self, offset: int) -> None:
        points, self.points = self.points, ChangeTrackingRowMap()
        self._span *= 2
        for point in points.values():
            start = point.at - point.at % self._span
            self.points.put(start, CumulativeSpendPoint(at=start, usd=point.usd, tokens=point.tokens), offset)


def _add_to_cost_row(
    row: RunViewCostRow | None, key: _Key, attribution: CostAttribution, event: ModelRequestSettled
) -> RunViewCostRow:
    agent, model, board, task = key
    usage = event.usage
    return RunViewCostRow(
        agent=agent,
        name=attribution.name,
        kind=attribution.kind,
        model=model,
        board=board,
        task=task,
        requests=1 + (row.requests if row else 0),
        input_tokens=usage.input_tokens + (row.input_tokens if row else 0),
        output_tokens=usage.output_tokens + (row.output_tokens if row else 0),
        cache_read_tokens=usage.cache_read_input_tokens + (row.cache_read_tokens if row else 0),
        cache_written_tokens=usage.cache_creation_input_tokens + (row.cache_written_tokens if row else 0),
        usd=(event.cost_usd or 0.0) + (row.usd if row else 0.0),
        unpriced=int(event.cost_usd is None) + (row.unpriced if row else 0),
        phase=attribution.phase,
    )
