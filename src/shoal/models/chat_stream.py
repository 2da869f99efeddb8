"""Assembles replies from chunks of Chat Completions and compatible servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import ContentBlock, Message, TextBlock, ThinkingBlock, ToolUseBlock
from shoal.core.conversation.model_requests import (
    ModelReply,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
)
from shoal.models.messages_stream import parse_tool_input_json
from shoal.models.model_errors import ModelRequestTarget, build_stream_event_error
from shoal.models.provider_json import encode_json, parse_token_count, require_text_or_none
from shoal.models.reply_assembler import ReplyAssembler

_STOP_REASONS: Mapping[str, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_SHORT_ID = 8
"""Shorter ids are counters that restart with every reply."""


class _PartialToolCall:
    """A tool call that is still being streamed."""

    __slots__ = ("arguments", "id", "index", "name", "size")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.size = 0


class ChatCompletionsReplyAssembler(ReplyAssembler):
    def __init__(self, target: ModelRequestTarget, history: Sequence[Message]) -> None:
        super().__init__(target)
        self._history = history
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_PartialToolCall] = []
        self._open_calls: dict[int, _PartialToolCall] = {}
        """The call that is being streamed at each index."""
        self._usage: Mapping[str, Any] | None = None
        self._parsed_usage = Usage()
        self._finish_reason: str | None = None
        self._is_refusal = False
        self._id = ""
        self._model = ""

    def is_complete_without_end_mark(self) -> bool:
        """Return True if the reply is complete without an end mark, which some servers omit."""
        return self.done or (self._finish_reason is not None and self._usage is not None)

    def _handle_stream_event(self, event: Mapping[str, Any]) -> None:
        if event.get("error"):
            raise build_stream_event_error(self._target, event["error"])
        self._id = self._id or require_text_or_none(event.get("id"))
        self._model = require_text_or_none(event.get("model")) or self._model
        # Counts are cumulative if a server repeats them.
        if usage := event.get("usage"):
            self._usage, self._parsed_usage = usage, _parse_chat_usage(usage)
        for choice in event.get("choices") or ():
            if choice.get("index"):
                continue
            self._finish_reason = require_text_or_none(choice.get("finish_reason")) or self._finish_reason
            self._add_delta(choice.get("delta") or choice.get("message") or {})

    def _add_delta(self, delta: Mapping[str, Any]) -> None:
        if thinking := delta.get("reasoning_content") or delta.get("reasoning"):
            self._thinking.append(_extract_chat_content_text(thinking))
            self.deltas.append(ThinkingDelta(self._thinking[-1], self._id))
        if refusal := delta.get("refusal"):
            self._is_refusal = True
            self._text.append(_extract_chat_content_text(refusal))
            self.deltas.append(TextDelta(self._text[-1], self._id))
        if content := delta.get("content"):
            self._text.append(_extract_chat_content_text(content))
            self.deltas.append(TextDelta(self._text[-1], self._id))
        for part in delta.get("tool_calls") or ():
            self._add_tool_call_part(part)

    def _add_tool_call_part(self, part: Mapping[str, Any]) -> None:
        function = part.get("function") or {}
        call = self._find_or_open_tool_call(part, require_text_or_none(function.get("name")))
        call.id = require_text_or_none(part.get("id")) or call.id
        call.name = require_text_or_none(function.get("name")) or call.name
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):  # some servers send the object itself
            arguments = encode_json(arguments).decode()
        call.arguments.append(arguments)
        call.size += len(arguments)
        self.deltas.append(ToolInputProgressDelta(name=call.name, size=call.size))

    def _find_or_open_tool_call(self, part: Mapping[str, Any], name: str) -> _PartialToolCall:
        """Return the call that the part continues, or a new one."""
        index, call_id = part.get("index"), require_text_or_none(part.get("id"))
        if isinstance(index, int):
            open_call = self._open_calls.get(index)
            # Some servers give every call the same index, others give every part of a call another id.
            if open_call is not None and not (
                name and call_id and call_id != open_call.id and open_call.size
            ):
                return open_call
        else:
            # Without an index, a new id starts a new call; everything else belongs to the last one.
            index = max(self._open_calls, default=-1)
            open_call = self._open_calls.get(index)
            if open_call is not None and (not call_id or call_id == open_call.id):
                return open_call
            index += 1
        self._open_calls[index] = call = _PartialToolCall(index)
        self._calls.append(call)
        return call

    def build_reply(self) -> ModelReply:
        calls = sorted(self._calls, key=lambda call: call.index)
        content: list[ContentBlock] = []
        if thinking := "".join(self._thinking):
            content.append(ThinkingBlock(thinking=thinking))
        if text := "".join(self._text):
            content.append(TextBlock(text=text))
        ids = assign_tool_call_ids([call.id for call in calls], self._history)
        for call, call_id in zip(calls, ids, strict=True):
            is_cut = self._finish_reason == "length" and call is calls[-1]
            raw = "".join(call.arguments)
            content.append(
                ToolUseBlock(id=call_id, name=call.name, input=parse_tool_input_json(raw, cut=is_cut))
            )
        return ModelReply(
            message=Message(role="assistant", content=tuple(content)),
            usage=self._parsed_usage,
            stop_reason=self._map_stop_reason(calls),
            model=self._model or self._target.model,
            id=self._id,
            counted=bool(self._usage),
        )

    def _map_stop_reason(self, calls: Sequence[_PartialToolCall]) -> StopReason:
        if self._is_refusal:
            return "refusal"
        reason = _STOP_REASONS.get(self._finish_reason or "stop", "end_turn")
        return "tool_use" if calls and reason == "end_turn" else reason


def assign_tool_call_ids(given: Sequence[str], history: Sequence[Message]) -> Iterator[str]:
    """Yield the calls' ids; missing or duplicate ones are replaced by the next free number."""
    used: set[str] = set()
    if any(len(call_id) < _SHORT_ID for call_id in given):
        used = {use.id for message in history for use in message.tool_uses}
    number = len(used)
    for call_id in given:
        unique_id = call_id
        while not unique_id or unique_id in used:
            unique_id = f"call_{number:05d}"
            number += 1
        used.add(unique_id)
        yield unique_id


def _extract_chat_content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _parse_chat_usage(raw: Mapping[str, Any]) -> Usage:
    details = raw.get("prompt_tokens_details") or {}
    cache_read = parse_token_count(details.get("cached_tokens") or raw.get("prompt_cache_hit_tokens"))
    cache_written = parse_token_count(details.get("cache_write_tokens"))
    prompt = parse_token_count(raw.get("prompt_tokens"))
    return Usage(
        input_tokens=max(0, prompt - cache_read - cache_written),
        output_tokens=parse_token_count(raw.get("completion_tokens")),
        cache_creation_input_tokens=cache_written,
        cache_read_input_tokens=cache_read,
    )
