"""The purse: what a run may spend, checked before each request and settled after it."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.errors import BudgetError
from shoal.core.usage import ModelCard, Usage


class Limits(Struct, frozen=True, kw_only=True):
    """None means no limit."""

    max_usd: float | None = None


class Purse:
    """Shared by every agent of a run."""

    def __init__(self, limits: Limits, card: ModelCard) -> None:
        self.limits = limits
        self.usage = Usage()
        self.usd = 0.0
        self.priced = True
        self.by_model: dict[str, tuple[Usage, float]] = {}
        self.admit(card)

    def admit(self, card: ModelCard) -> None:
        """Raises `BudgetError` for a model whose spending could not be kept within the budget."""
        if self.limits.max_usd is not None and card.price is None:
            raise BudgetError(
                f"A budget of ${self.limits.max_usd:g} cannot be kept: the price of {card.id} is not known. "
                f'Add {{"{card.id}": {{"input": …, "output": …}}}} in settings.json under "shoal", "models", '
                "or leave the budget out."
            )

    def refusal(self) -> str | None:
        """Why no further request may be sent, if so."""
        if self.limits.max_usd is not None and self.usd >= self.limits.max_usd:
            return f"the budget of ${self.limits.max_usd:g} is spent (${self.usd:.4f})"
        return None

    def settle(self, card: ModelCard, usage: Usage) -> float | None:
        """Enter what a request cost; None where its price is not known."""
        cost = None if card.price is None else card.price.of(usage)
        self.usage = self.usage + usage
        self.usd += cost or 0.0
        self.priced = self.priced and cost is not None
        spent, usd = self.by_model.get(card.id, (Usage(), 0.0))
        self.by_model[card.id] = (spent + usage, usd + (cost or 0.0))
        return cost
