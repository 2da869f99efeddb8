"""A reply that is put together from the events of a stream; each protocol has its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from shoal.core.requests import Delta, Reply
from shoal.models.faults import SENSELESS, Asked


class Assembly(ABC):
    """Takes event after event; `done` when the last one came. What can be heard of each is in `heard`."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.heard: list[Delta] = []
        self.done = False

    def take(self, event: Any) -> None:
        """Raises a `ModelError` for an error event, or one that makes no sense."""
        try:
            self._take(event)
        except SENSELESS as error:
            what = f"an event that makes no sense: {str(event)[:200]}"
            raise self._asked.senseless(what, error) from error

    def ended(self) -> bool:
        """Whether all is there, when nothing more will come."""
        return self.done

    @abstractmethod
    def _take(self, event: Mapping[str, Any]) -> None:
        """What it raises of `SENSELESS` is the provider's fault."""

    @abstractmethod
    def reply(self) -> Reply: ...
