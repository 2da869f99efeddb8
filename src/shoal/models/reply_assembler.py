"""Base class that assembles a reply from stream events; one subclass per protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from shoal.core.conversation.model_requests import ModelReply, StreamDelta
from shoal.models.model_errors import PARSE_ERRORS, ModelRequestTarget


class ReplyAssembler(ABC):
    """Collects events; `done` is True after the last one. `deltas` holds what can be streamed."""

    def __init__(self, target: ModelRequestTarget) -> None:
        self._target = target
        self.deltas: list[StreamDelta] = []
        self.done = False

    def add_stream_event(self, event: Any) -> None:
        """Add one event. Raises a `ModelError` for an error event or an invalid one."""
        try:
            self._handle_stream_event(event)
        except PARSE_ERRORS as error:
            what = f"an invalid event: {str(event)[:200]}"
            raise self._target.build_parse_error(what, error) from error

    def mark_done(self) -> None:
        self.done = True

    def take_deltas(self) -> list[StreamDelta]:
        """Return what can be streamed, each delta once."""
        deltas, self.deltas = self.deltas, []
        return deltas

    def is_complete_without_end_mark(self) -> bool:
        """Return True if the reply is complete although no more events will come."""
        return self.done

    @abstractmethod
    def _handle_stream_event(self, event: Mapping[str, Any]) -> None:
        """Handle one event; exceptions of `PARSE_ERRORS` are the provider's fault."""

    @abstractmethod
    def build_reply(self) -> ModelReply: ...
