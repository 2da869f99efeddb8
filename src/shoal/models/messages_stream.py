"""Assembles replies from events of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from shoal.core.messages import (
    MALFORMED,
    ContentBlock,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolUse,
)
from shoal.core.requests import Reply, StopReason, TextDelta, ThinkingDelta, ToolInputDelta
from shoal.core.usage import Usage
from shoal.models.assembly import Assembly
from shoal.models.faults import Asked, stream_error
from shoal.models.json_text import count_of, decoded, text_of

_STOPS = frozenset(get_args(StopReason))
_COUNTS = Usage.__struct_fields__


def tool_input(raw: str, *, cut: bool = False) -> dict[str, Any]:
    """Parse a call's arguments; anything but a JSON object is kept raw, and the call is not run.

    `cut`: the reply hit its token limit here, so that "no arguments" may mean "none yet".
    """
    if not raw.strip() and not cut:
        return {}
    try:
        value = decoded(raw)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {MALFORMED: raw}


class _Part:
    """A content block that is still being streamed."""

    __slots__ = ("first", "kind", "pieces", "signature", "size")

    def __init__(self, first: Mapping[str, Any]) -> None:
        self.kind = first.get("type")
        self.first = first
        self.pieces: list[str] = []
        self.signature: list[str] = []
        self.size = 0


class MessageAssembly(Assembly):
    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self._parts: dict[int, _Part] = {}
        self._usage: dict[str, int] = {}
        self._stop: str | None = None
        self._id = ""
        self._model = ""

    def _take(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "content_block_delta":
                self._grow(self._parts[event["index"]], event["delta"])
            case "content_block_start":
                self._begin(event["index"], event["content_block"])
            case "message_start":
                message = event["message"]
                self._id = text_of(message.get("id"))
                self._model = text_of(message.get("model"))
                self._count(message.get("usage"))
            case "message_delta":
                self._stop = text_of(event["delta"].get("stop_reason")) or self._stop
                self._count(event.get("usage"))
            case "message_stop":
                self.done = True
            case "error":
                raise stream_error(self._asked, event.get("error"))
            case _:
                pass  # pings, the end of a block, and unknown kinds

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        # Counts are cumulative; the last one given wins.
        for name in _COUNTS:
            count = (usage or {}).get(name)
            if count is not None:
                self._usage[name] = count_of(count)

    def _begin(self, index: int, first: Mapping[str, Any]) -> None:
        part = self._parts[int(index)] = _Part(_checked(first))
        if part.kind == "text" and first.get("text"):
            self._grow(part, {"type": "text_delta", "text": first["text"]})
        elif part.kind == "thinking" and first.get("thinking"):
            self._grow(part, {"type": "thinking_delta", "thinking": first["thinking"]})
        elif part.kind == "tool_use":
            self.heard.append(ToolInputDelta(name=first["name"], size=0))

    def _grow(self, part: _Part, delta: Mapping[str, Any]) -> None:
        match delta.get("type"):
            case "text_delta":
                part.pieces.append(text_of(delta["text"]))
                self.heard.append(TextDelta(part.pieces[-1]))
            case "input_json_delta":
                part.pieces.append(text_of(delta["partial_json"]))
                part.size += len(part.pieces[-1])
                if part.kind == "tool_use":
                    self.heard.append(ToolInputDelta(name=part.first["name"], size=part.size))
            case "thinking_delta":
                part.pieces.append(text_of(delta["thinking"]))
                self.heard.append(ThinkingDelta(part.pieces[-1]))
            case "signature_delta":
                part.signature.append(text_of(delta["signature"]))
            case _:
                pass

    def reply(self) -> Reply:
        cut = self._stop in ("max_tokens", "model_context_window_exceeded")
        parts = [self._parts[index] for index in sorted(self._parts)]
        content = tuple(
            block for part in parts if (block := _block(part, cut=cut and part is parts[-1])) is not None
        )
        return Reply(
            message=Message(role="assistant", content=content),
            usage=Usage(**self._usage),
            stop_reason=self._stop_reason(content),
            model=self._model or self._asked.model,
            id=self._id,
            counted=bool(self._usage),
        )

    def _stop_reason(self, content: tuple[ContentBlock, ...]) -> StopReason:
        if self._stop == "model_context_window_exceeded":
            return "max_tokens"
        if self._stop in (None, "end_turn") and any(isinstance(b, ToolUse) for b in content):
            return "tool_use"
        return cast("StopReason", self._stop) if self._stop in _STOPS else "end_turn"


def _checked(first: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check the start of a block; raises KeyError or TypeError if a field is missing or not text."""
    needed = {"tool_use": ("name", "id"), "redacted_thinking": ("data",)}.get(text_of(first.get("type")), ())
    for name in (*needed, "signature"):
        text_of(first[name] if name in needed else first.get(name))
    if not isinstance(first.get("input", {}), dict | None):
        raise TypeError("its input is no object")
    return first


def _block(part: _Part, *, cut: bool) -> ContentBlock | None:
    whole = "".join(part.pieces)
    match part.kind:
        case "text":
            return Text(text=whole) if whole else None
        case "thinking":
            signature = "".join(part.signature) or part.first.get("signature") or ""
            return Thinking(thinking=whole, signature=signature)
        case "redacted_thinking":
            return RedactedThinking(data=part.first["data"])
        case "tool_use":
            given = part.first.get("input")
            return ToolUse(
                id=part.first["id"],
                name=part.first["name"],
                input=dict(given) if given and not whole else tool_input(whole, cut=cut),
            )
        case _:
            return None
