"""Assembles replies from events of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import (
    MALFORMED_INPUT_KEY,
    ContentBlock,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from shoal.core.conversation.model_requests import (
    ModelReply,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
)
from shoal.models.model_errors import ModelRequestTarget, build_stream_event_error
from shoal.models.provider_json import decode_json, parse_token_count, require_text_or_none
from shoal.models.reply_assembler import ReplyAssembler

_STOP_REASONS = frozenset(get_args(StopReason))
_USAGE_FIELDS = Usage.__struct_fields__


def parse_tool_input_json(raw: str, *, cut: bool = False) -> dict[str, Any]:
    """Parse a call's arguments; anything but a JSON object is kept raw, and the call is not run.

    `cut`: the reply hit its token limit here, so that "no arguments" may mean "none yet".
    """
    if not raw.strip() and not cut:
        return {}
    try:
        value = decode_json(raw)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {MALFORMED_INPUT_KEY: raw}


class _PartialContentBlock:
    """A content block that is still being streamed."""

    __slots__ = ("kind", "pieces", "signature", "size", "start")

    def __init__(self, first: Mapping[str, Any]) -> None:
        self.kind = first.get("type")
        self.start = first
        self.pieces: list[str] = []
        self.signature: list[str] = []
        self.size = 0


class MessagesApiReplyAssembler(ReplyAssembler):
    def __init__(self, target: ModelRequestTarget) -> None:
        super().__init__(target)
        self._parts: dict[int, _PartialContentBlock] = {}
        self._usage: dict[str, int] = {}
        self._stop_reason: str | None = None
        self._id = ""
        self._model = ""

    def _handle_stream_event(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "content_block_delta":
                self._add_delta(self._parts[event["index"]], event["delta"])
            case "content_block_start":
                self._start_block(event["index"], event["content_block"])
            case "message_start":
                message = event["message"]
                self._id = require_text_or_none(message.get("id"))
                self._model = require_text_or_none(message.get("model"))
                self._update_usage(message.get("usage"))
            case "message_delta":
                self._stop_reason = (
                    require_text_or_none(event["delta"].get("stop_reason")) or self._stop_reason
                )
                self._update_usage(event.get("usage"))
            case "message_stop":
                self.done = True
            case "error":
                raise build_stream_event_error(self._target, event.get("error"))
            case _:
                pass  # pings, the end of a block, and unknown kinds

    def _update_usage(self, usage: Mapping[str, Any] | None) -> None:
        # Counts are cumulative; the last one given wins.
        for name in _USAGE_FIELDS:
            count = (usage or {}).get(name)
            if count is not None:
                self._usage[name] = parse_token_count(count)

    def _start_block(self, index: int, first: Mapping[str, Any]) -> None:
        part = self._parts[int(index)] = _PartialContentBlock(_validate_content_block_start(first))
        if part.kind == "text" and first.get("text"):
            self._add_delta(part, {"type": "text_delta", "text": first["text"]})
        elif part.kind == "thinking" and first.get("thinking"):
            self._add_delta(part, {"type": "thinking_delta", "thinking": first["thinking"]})
        elif part.kind == "tool_use":
            self.deltas.append(ToolInputProgressDelta(name=first["name"], size=0))

    def _add_delta(self, part: _PartialContentBlock, delta: Mapping[str, Any]) -> None:
        match delta.get("type"):
            case "text_delta":
                part.pieces.append(require_text_or_none(delta["text"]))
                self.deltas.append(TextDelta(part.pieces[-1], self._id))
            case "input_json_delta":
                part.pieces.append(require_text_or_none(delta["partial_json"]))
                part.size += len(part.pieces[-1])
                if part.kind == "tool_use":
                    self.deltas.append(ToolInputProgressDelta(name=part.start["name"], size=part.size))
            case "thinking_delta":
                part.pieces.append(require_text_or_none(delta["thinking"]))
                self.deltas.append(ThinkingDelta(part.pieces[-1], self._id))
            case "signature_delta":
                part.signature.append(require_text_or_none(delta["signature"]))
            case _:
                pass

    def build_reply(self) -> ModelReply:
        is_cut = self._stop_reason in ("max_tokens", "model_context_window_exceeded")
        parts = [self._parts[index] for index in sorted(self._parts)]
        content = tuple(
            block
            for part in parts
            if (block := _build_content_block(part, cut=is_cut and part is parts[-1])) is not None
        )
        return ModelReply(
            message=Message(role="assistant", content=content),
            usage=Usage(**self._usage),
            stop_reason=self._map_stop_reason(content),
            model=self._model or self._target.model,
            id=self._id,
            counted=bool(self._usage),
        )

    def _map_stop_reason(self, content: tuple[ContentBlock, ...]) -> StopReason:
        if self._stop_reason == "model_context_window_exceeded":
            return "max_tokens"
        if self._stop_reason in (None, "end_turn") and any(isinstance(b, ToolUseBlock) for b in content):
            return "tool_use"
        return cast("StopReason", self._stop_reason) if self._stop_reason in _STOP_REASONS else "end_turn"


def _validate_content_block_start(first: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check the start of a block; raises KeyError or TypeError if a field is missing or not text."""
    required = {"tool_use": ("name", "id"), "redacted_thinking": ("data",)}.get(
        require_text_or_none(first.get("type")), ()
    )
    for name in (*required, "signature"):
        require_text_or_none(first[name] if name in required else first.get(name))
    if not isinstance(first.get("input", {}), dict | None):
        raise TypeError("its input is not an object")
    return first


def _build_content_block(part: _PartialContentBlock, *, cut: bool) -> ContentBlock | None:
    text = "".join(part.pieces)
    match part.kind:
        case "text":
            return TextBlock(text=text) if text else None
        case "thinking":
            signature = "".join(part.signature) or part.start.get("signature") or ""
            return ThinkingBlock(thinking=text, signature=signature)
        case "redacted_thinking":
            return RedactedThinkingBlock(data=part.start["data"])
        case "tool_use":
            initial_input = part.start.get("input")
            return ToolUseBlock(
                id=part.start["id"],
                name=part.start["name"],
                input=dict(initial_input)
                if initial_input and not text
                else parse_tool_input_json(text, cut=cut),
            )
        case "web_search_tool_result":
            return _build_search_results(part.start.get("content"))
        case _:
            return None


def _build_search_results(found: Any) -> TextBlock | None:
    """Return the results of a search that the provider made, as a list of titles and URLs."""
    rows = [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []
    lines = [f"- {row.get('title') or ''}\n  {row['url']}" for row in rows if isinstance(row.get("url"), str)]
    return TextBlock(text="\n".join(lines) + "\n") if lines else None
