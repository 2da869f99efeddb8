"""Budget that several sessions of one program share."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from shoal.core.budgets.limits import BudgetLimits, BudgetMeter, create_budget_meters
from shoal.core.keyword_checks import check_keywords


class SharedBudget:
    """Limits shared by all sessions opened with this budget in one event loop, and their spending so far."""

    @check_keywords("shoal.Budget()")
    def __init__(
        self, *, usd: float | None = None, tokens: int | None = None, requests: int | None = None
    ) -> None:
        """Raises ValueError unless at least one limit is set, and all are greater than 0."""
        limits = {"usd": usd, "tokens": tokens, "requests": requests}
        for name, limit in limits.items():
            if limit is not None:
                _check_limit(name, limit)
        if all(limit is None for limit in limits.values()):
            raise ValueError("shoal.Budget(): set at least one limit: usd, tokens or requests.")
        self.limits = BudgetLimits(max_usd=usd, max_tokens=tokens, max_requests=requests)
        self.meters = create_budget_meters(self.limits, "tree")
        self.waiting: list[asyncio.Future[None]] = []
        """Requests that can be sent only if others in flight turn out cheaper."""
        self._sessions: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        parts = ", ".join(f"{each.limit} {each.spent:g} of {each.maximum:g}" for each in self.meters)
        return f"<budget: {parts} spent>"

    @property
    def spent_usd(self) -> float:
        """Dollars spent; counted only if the budget limits dollars."""
        return self._find_spent("usd")

    @property
    def spent_tokens(self) -> int:
        """Tokens spent; counted only if the budget limits tokens."""
        return int(self._find_spent("tokens"))

    @property
    def spent_requests(self) -> int:
        """Model requests sent; counted only if the budget limits requests."""
        return int(self._find_spent("requests"))

    def attach_loop(self) -> None:
        """Use the running event loop. Raises RuntimeError if sessions in another loop use the budget."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop and self._loop.is_running():
            raise RuntimeError(
                "The budget is used by sessions in another event loop. Sessions can share a budget only "
                "within one event loop."
            )
        self._loop = loop

    def list_spent(self) -> tuple[float, ...]:
        return tuple(meter.spent for meter in self.meters)

    def count_session(self, session: str, spent_before: tuple[float, ...]) -> None:
        """Count the earlier spending of a resumed session only once: its meters already contain it."""
        if session in self._sessions:
            for meter, spent in zip(self.meters, spent_before, strict=True):
                meter.spent = spent
        self._sessions.add(session)

    def _find_spent(self, limit: str) -> float:
        meter: BudgetMeter | None = next((each for each in self.meters if each.limit == limit), None)
        return 0 if meter is None else meter.spent


def _check_limit(name: str, limit: Any) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit) or limit <= 0:
        raise ValueError(f"shoal.Budget(): {name}: expected a number greater than 0, got {limit!r}.")
    if name != "usd" and not isinstance(limit, int):
        raise ValueError(f"shoal.Budget(): {name}: expected an integer greater than 0, got {limit!r}.")
