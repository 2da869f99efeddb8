"""Costs of a run by agent, model and task, and over time."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from shoal.app.picture.rows import CostRow, SpendPoint
from shoal.app.picture.table import Table
from shoal.core.events import RequestSettled
from shoal.core.usage import Spent

FIRST_SPAN = 1_000
"""Milliseconds; doubled whenever there are too many points to display."""
MOST_POINTS = 512


class Payer(Struct, frozen=True, kw_only=True):
    """Agent and task that a cost is attributed to."""

    name: str
    kind: str
    board: str = ""
    task: str = ""


_Key: TypeAlias = tuple[str, str, str, str]
"""Agent, model, board and task."""


class Costs:
    def __init__(self) -> None:
        self.rows: Table[_Key, CostRow] = Table()
        self.points: Table[int, SpendPoint] = Table()
        self._spent: dict[_Key, Spent] = {}
        self._span = FIRST_SPAN
        self.usd = 0.0
        self.tokens = 0
        self.requests = 0
        self.unpriced = 0

    def enter(self, event: RequestSettled, payer: Payer, at: int, offset: int) -> None:
        key = (event.agent, event.model, payer.board, payer.task)
        usd, unpriced = event.cost_usd or 0.0, int(event.cost_usd is None)
        spent = self._spent.get(key, Spent()) + Spent(
            requests=1, usage=event.usage, usd=usd, unpriced=unpriced
        )
        self._spent[key] = spent
        self.usd += usd
        self.tokens += event.usage.total_tokens
        self.requests += 1
        self.unpriced += unpriced
        self.rows.put(key, _row(key, payer, spent), offset)
        start = at - at % self._span
        self.points.put(start, SpendPoint(at=start, usd=self.usd, tokens=self.tokens), offset)
        if len(self.points) > MOST_POINTS:
            self._coarsen(offset)

    def _coarsen(self, offset: int) -> None:
        points, self.points = self.points, Table()
        self._span *= 2
        for point in points.values():
            start = point.at - point.at % self._span
            self.points.put(start, SpendPoint(at=start, usd=point.usd, tokens=point.tokens), offset)


def _row(key: _Key, payer: Payer, spent: Spent) -> CostRow:
    agent, model, board, task = key
    usage = spent.usage
    return CostRow(
        agent=agent,
        name=payer.name,
        kind=payer.kind,
        model=model,
        board=board,
        task=task,
        requests=spent.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_input_tokens,
        cache_written_tokens=usage.cache_creation_input_tokens,
        usd=spent.usd,
        unpriced=spent.unpriced,
    )
