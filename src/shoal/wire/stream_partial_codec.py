"""Encoder for partial answers as events of the Messages API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

from shoal.core.events import MessageAdded
from shoal.core.messages import ToolUseBlock
from shoal.core.usage import Usage
from shoal.wire.json_codec import encode_json

DeltaKind: TypeAlias = Literal["text", "thinking"]
_EMPTY_BLOCKS: dict[DeltaKind, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class PartialMessageEncoder:
    """Encodes one agent's answer as an ordered stream of events, whichever provider sends the deltas.

    Tool calls are sent whole at the end: until then the answer may still be discarded.
    """

    def __init__(self) -> None:
        self._is_started = False
        self._open_kind: DeltaKind | None = None
        self._index = -1

    def encode_delta(self, kind: DeltaKind, text: str, model: str) -> Iterable[dict[str, Any]]:
        yield from self._start_message(model)
        if self._open_kind != kind:
            yield from self._close_block()
            self._open_kind = kind
            yield self._open_block(_EMPTY_BLOCKS[kind])
        yield self._build_block_delta({"type": f"{kind}_delta", kind: text})

    def discard_partial_message(self) -> tuple[()]:
        """Discard the state of an answer that was never completed."""
        self._is_started, self._open_kind, self._index = False, None, -1
        return ()

    def encode_message_end(self, added: MessageAdded) -> Iterable[dict[str, Any]]:
        yield from self._start_message(added.model)
        yield from self._close_block()
        for block in added.message.content:
            if isinstance(block, ToolUseBlock):
                yield self._open_block({"type": "tool_use", "id": block.id, "name": block.name, "input": {}})
                yield self._build_block_delta(
                    {"type": "input_json_delta", "partial_json": encode_json(block.input).decode()}
                )
                yield {"type": "content_block_stop", "index": self._index}
        usage = added.usage or Usage()
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": added.stop_reason or None, "stop_sequence": None},
            "usage": {"output_tokens": usage.output_tokens},
        }
        yield {"type": "message_stop"}
        self.discard_partial_message()

    def _start_message(self, model: str) -> Iterator[dict[str, Any]]:
        if not self._is_started:
            self._is_started = True
            message = {"type": "message", "role": "assistant", "model": model, "content": []}
            yield {"type": "message_start", "message": message | {"usage": {"output_tokens": 0}}}

    def _close_block(self) -> Iterator[dict[str, Any]]:
        if self._open_kind is not None:
            self._open_kind = None
            yield {"type": "content_block_stop", "index": self._index}

    def _open_block(self, block: dict[str, Any]) -> dict[str, Any]:
        self._index += 1
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _build_block_delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}
