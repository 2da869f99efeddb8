"""Base class that assembles a reply from stream events; one subclass per protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from shoal.core.requests import Delta, Reply
from shoal.models.faults import SENSELESS, Asked


class Assembly(ABC):
    """Collects events; `done` is True after the last one. `deltas` holds what can be streamed."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.heard: list[Delta] = []
        self.done = False

    def take(self, event: Any) -> None:
        """Add one event. Raises a `ModelError` for an error event or an invalid one."""
        try:
            self._take(event)
        except SENSELESS as error:
            what = f"an event that makes no sense: {str(event)[:200]}"
            raise self._asked.senseless(what, error) from error

    def ended(self) -> bool:
        """Return True if the reply is complete although no more events will come."""
        return self.done

    @abstractmethod
    def _take(self, event: Mapping[str, Any]) -> None:
        """Handle one event; exceptions of `PARSE_ERRORS` are the provider's fault."""

    @abstractmethod
    def reply(self) -> Reply: ...
