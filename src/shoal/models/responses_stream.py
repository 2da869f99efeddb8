"""Assembles replies from events of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from shoal.models.chat_stream import assign_tool_call_ids
from shoal.models.messages_stream import parse_tool_input_json
from shoal.models.model_errors import PARSE_ERRORS, ModelRequestTarget, build_stream_event_error
from shoal.models.provider_json import parse_token_count, require_text_or_none
from shoal.models.reasoning_items import EncryptedReasoningItem, encode_reasoning_signature
from shoal.models.reply_assembler import ReplyAssembler

_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_THINKING_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_END_EVENTS = ("response.completed", "response.incomplete")
_PARAGRAPH_BREAK = "\n\n"
"""Separates the paragraphs of a summary, which arrive as separate parts."""


class ResponsesApiReplyAssembler(ReplyAssembler):
    def __init__(self, target: ModelRequestTarget, history: Sequence[Message]) -> None:
        super().__init__(target)
        self._history = history
        self._items: dict[int, Mapping[str, Any]] = {}
        """Items as announced, then as completed."""
        self._sizes: dict[int, int] = {}
        self._response: Mapping[str, Any] = {}
        self._id = ""

    def _handle_stream_event(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type") or ("error" if "error" in event else "")
        self._id = self._id or _get_response_id(event)
        if kind in _TEXT_EVENTS:
            self.deltas.append(TextDelta(require_text_or_none(event["delta"]), self._id))
        elif kind in _THINKING_EVENTS:
            self.deltas.append(ThinkingDelta(require_text_or_none(event["delta"]), self._id))
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            self.deltas.append(ThinkingDelta(_PARAGRAPH_BREAK, self._id))
        elif kind == "response.function_call_arguments.delta":
            self._add_call_arguments_delta(event["output_index"], event["delta"])
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._items[event["output_index"]] = event["item"]
            if kind.endswith("added") and event["item"].get("type") == "function_call":
                self._add_call_arguments_delta(event["output_index"], "")
        elif kind in _END_EVENTS:
            self._response = event["response"]
            self.done = True
        elif kind == "response.failed":
            raise build_stream_event_error(
                self._target, event["response"].get("error") or "It failed without a message."
            )
        elif kind == "error":
            raise build_stream_event_error(
                self._target, event.get("error") or _extract_stream_error_fields(event)
            )

    def _add_call_arguments_delta(self, index: int, arguments: str) -> None:
        self._sizes[index] = self._sizes.get(index, 0) + len(arguments)
        self.deltas.append(
            ToolInputProgressDelta(
                name=require_text_or_none(self._items[index]["name"]), size=self._sizes[index]
            )
        )

    def build_reply(self) -> ModelReply:
        """Raises a `ModelError` for an invalid response."""
        try:
            return self._assemble_reply()
        except PARSE_ERRORS as error:
            what = f"an invalid response: {str(self._response)[:200]}"
            raise self._target.build_parse_error(what, error) from error

    def _assemble_reply(self) -> ModelReply:
        # The last event repeats all items; servers that omit them have sent each one before.
        items = self._response.get("output") or [self._items[index] for index in sorted(self._items)]
        content = self._build_content_blocks(items)
        usage = self._response.get("usage")
        return ModelReply(
            message=Message(role="assistant", content=tuple(content)),
            usage=_parse_responses_usage(usage or {}),
            stop_reason=self._map_stop_reason(items, content),
            model=require_text_or_none(self._response.get("model")) or self._target.model,
            id=require_text_or_none(self._response.get("id")),
            counted=bool(usage),
        )

    def _build_content_blocks(self, items: Sequence[Mapping[str, Any]]) -> list[ContentBlock]:
        content: list[ContentBlock] = []
        calls = [item for item in items if item.get("type") == "function_call"]
        ids = assign_tool_call_ids(
            [require_text_or_none(item.get("call_id")) for item in calls], self._history
        )
        for item in items:
            match item.get("type"):
                case "reasoning":
                    content += _build_thinking_blocks(item)
                case "message":
                    text = "".join(_get_content_part_text(part) for part in item.get("content") or ())
                    content += [TextBlock(text=text)] if text else []
                case "function_call":
                    is_cut = item is calls[-1] and item.get("status") == "incomplete"
                    arguments = parse_tool_input_json(item.get("arguments") or "", cut=is_cut)
                    content.append(
                        ToolUseBlock(id=next(ids), name=require_text_or_none(item["name"]), input=arguments)
                    )
                case _:
                    pass  # output of the provider's own tools
        return content

    def _map_stop_reason(
        self, items: Sequence[Mapping[str, Any]], content: Sequence[ContentBlock]
    ) -> StopReason:
        reason = (self._response.get("incomplete_details") or {}).get("reason")
        if reason == "content_filter" or _has_refusal_part(items):
            return "refusal"
        if reason == "max_output_tokens" or self._response.get("status") == "incomplete":
            return "max_tokens"
        return "tool_use" if any(isinstance(block, ToolUseBlock) for block in content) else "end_turn"


def _get_response_id(event: Mapping[str, Any]) -> str:
    """Return the id in an event about the whole response; empty in all others."""
    response = event.get("response")
    identity = response.get("id") if isinstance(response, Mapping) else None
    return identity if isinstance(identity, str) else ""


def _build_thinking_blocks(item: Mapping[str, Any]) -> list[ThinkingBlock]:
    parts = item.get("summary") or item.get("content") or ()
    thinking = _PARAGRAPH_BREAK.join(part.get("text") or "" for part in parts)
    encrypted = item.get("encrypted_content")
    if not thinking and not encrypted:
        return []
    signature = (
        encode_reasoning_signature(EncryptedReasoningItem(item.get("id") or "", encrypted))
        if encrypted
        else ""
    )
    return [ThinkingBlock(thinking=thinking, signature=signature)]


def _get_content_part_text(part: Mapping[str, Any]) -> str:
    return part.get("text") or part.get("refusal") or ""


def _has_refusal_part(items: Sequence[Mapping[str, Any]]) -> bool:
    parts = (part for item in items if item.get("type") == "message" for part in item.get("content") or ())
    return any(part.get("type") == "refusal" for part in parts)


def _extract_stream_error_fields(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key: event[key] for key in ("code", "message", "param") if event.get(key) is not None}


def _parse_responses_usage(raw: Mapping[str, Any]) -> Usage:
    """Parse the usage; reasoning tokens are included in the output."""
    details = raw.get("input_tokens_details") or {}
    cache_read, cache_written = (
        parse_token_count(details.get("cached_tokens")),
        parse_token_count(details.get("cache_write_tokens")),
    )
    return Usage(
        input_tokens=max(0, parse_token_count(raw.get("input_tokens")) - cache_read - cache_written),
        output_tokens=parse_token_count(raw.get("output_tokens")),
        cache_creation_input_tokens=cache_written,
        cache_read_input_tokens=cache_read,
    )
