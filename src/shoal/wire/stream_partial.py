"""Encoder for partial answers as events of the Messages API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

from shoal.core.events import MessageAdded
from shoal.core.messages import ToolUse
from shoal.core.usage import Usage
from shoal.wire.content import dump

Kind: TypeAlias = Literal["text", "thinking"]
_BEGUN: dict[Kind, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class PartialMessage:
    """Encodes one agent's answer as an ordered stream of events, whichever provider sends the deltas.

    Tool calls are sent whole at the end: until then the answer may still be discarded.
    """

    def __init__(self) -> None:
        self._begun = False
        self._open: Kind | None = None
        self._index = -1

    def heard(self, kind: Kind, text: str, model: str) -> Iterable[dict[str, Any]]:
        yield from self._begin(model)
        if self._open != kind:
            yield from self._close()
            self._open = kind
            yield self._start(_BEGUN[kind])
        yield self._delta({"type": f"{kind}_delta", kind: text})

    def begun_anew(self) -> tuple[()]:
        """Discard the state of an answer that was never completed."""
        self._begun, self._open, self._index = False, None, -1
        return ()

    def ended(self, added: MessageAdded) -> Iterable[dict[str, Any]]:
        yield from self._begin(added.model)
        yield from self._close()
        for block in added.message.content:
            if isinstance(block, ToolUse):
                yield self._start({"type": "tool_use", "id": block.id, "name": block.name, "input": {}})
                yield self._delta({"type": "input_json_delta", "partial_json": dump(block.input).decode()})
                yield {"type": "content_block_stop", "index": self._index}
        usage = added.usage or Usage()
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": added.stop_reason or None, "stop_sequence": None},
            "usage": {"output_tokens": usage.output_tokens},
        }
        yield {"type": "message_stop"}
        self.begun_anew()

    def _begin(self, model: str) -> Iterator[dict[str, Any]]:
        if not self._begun:
            self._begun = True
            message = {"type": "message", "role": "assistant", "model": model, "content": []}
            yield {"type": "message_start", "message": message | {"usage": {"output_tokens": 0}}}

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}

    def _start(self, block: dict[str, Any]) -> dict[str, Any]:
        self._index += 1
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}
