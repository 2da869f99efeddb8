"""Messages API format: whole replies, event streams and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import (
    ContentBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from shoal.testing.mock_replies import (
    BrokenToolJsonFault,
    HttpErrorFault,
    MockReply,
    RequestBody,
    StreamErrorFault,
    split_into_stream_pieces,
)

_encode = msgspec.json.Encoder().encode
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_MOST_MARKS = 4
_SAYS = {
    401: "invalid x-api-key",
    429: "Number of request tokens has exceeded your per-minute rate limit",
    500: "Internal server error",
    529: "Overloaded",
}


class MockMessagesApiFormat:
    path = "/v1/messages"
    tool_fragment = b'"type":"input_json_delta"'
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    call_prefix = "toolu_"

    def has_api_key(self, headers: Mapping[str, str]) -> bool:
        return bool(headers.get("x-api-key") or headers.get("authorization"))

    def find_request_error(self, headers: Mapping[str, str], body: RequestBody) -> str | None:
        """Return the provider's reason to refuse this request, or None."""
        if "anthropic-version" not in headers:
            return "anthropic-version: header is required"
        for field in ("model", "max_tokens", "messages"):
            if not body.get(field):
                return f"{field}: Field required"
        return _find_cache_mark_error(body) or _find_unanswered_tool_call_error(body["messages"])

    def compute_reported_usage(self, usage: Usage, _body: RequestBody) -> Usage:
        return usage

    def encode_reply(self, answer: MockReply, body: RequestBody, number: int, usage: Usage) -> bytes:
        return _encode(
            {
                **self._build_message_head(answer, body, number),
                "content": [_encode_content_block(block) for block in answer.content],
                "stop_reason": answer.effective_stop_reason,
                "usage": msgspec.to_builtins(usage),
            }
        )

    def _build_message_head(self, answer: MockReply, body: RequestBody, number: int) -> dict[str, Any]:
        return {
            "id": f"msg_{number:024d}",
            "type": "message",
            "role": "assistant",
            "model": answer.model or body.get("model", "mock"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def encode_stream_events(
        self, answer: MockReply, body: RequestBody, number: int, usage: Usage
    ) -> list[bytes]:
        usage_fields = msgspec.to_builtins(usage)
        start = {
            **self._build_message_head(answer, body, number),
            "usage": {**usage_fields, "output_tokens": 1},
        }
        broken_arguments = next(
            (f.arguments for f in answer.faults if isinstance(f, BrokenToolJsonFault)), None
        )
        events = [_encode_sse_event("message_start", message=start)]
        for index, block in enumerate(answer.content):
            opened, deltas = _split_block_into_deltas(block, broken_arguments)
            events.append(_encode_sse_event("content_block_start", index=index, content_block=opened))
            events += [_encode_sse_event("content_block_delta", index=index, delta=delta) for delta in deltas]
            events.append(_encode_sse_event("content_block_stop", index=index))
        stop = {"stop_reason": answer.effective_stop_reason, "stop_sequence": None}
        events.append(_encode_sse_event("message_delta", delta=stop, usage=usage_fields))
        events.append(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
        return events

    def encode_error(self, fault: HttpErrorFault, body: RequestBody, number: int) -> bytes:
        kind = _KINDS.get(fault.status, "api_error")
        message = fault.message or _SAYS.get(fault.status, "")
        if fault.code == "context_too_long":
            message = fault.message or "prompt is too long: 208310 tokens > 200000 maximum"
        elif fault.status == 404 and not message:
            message = f"model: {body.get('model', '')}"
        elif fault.code:
            kind = fault.code
        return _encode(
            {
                "type": "error",
                "error": {"type": kind, "message": message or "Error"},
                "request_id": f"req_{number:024d}",
            }
        )

    def encode_stream_error(self, fault: StreamErrorFault) -> bytes:
        return _encode_sse_event("error", error={"type": f"{fault.code}_error", "message": fault.message})

    def encode_model_list(self, names: Sequence[str]) -> bytes:
        rows = [
            {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
            for name in names
        ]
        id_range = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return _encode({"data": rows, "has_more": False, **id_range})


def _encode_sse_event(name: str, **data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _encode({"type": name, **data}))


def _encode_content_block(block: ContentBlock) -> dict[str, Any]:
    # The struct omits defaults, but the provider does not.
    raw: dict[str, Any] = msgspec.to_builtins(block)
    return {**raw, "signature": block.signature} if isinstance(block, ThinkingBlock) else raw


def _split_block_into_deltas(
    block: ContentBlock, broken_arguments: str | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it is opened, and the deltas that fill it."""
    match block:
        case TextBlock():
            deltas = [
                {"type": "text_delta", "text": part} for part in split_into_stream_pieces(block.text, 24)
            ]
            return {"type": "text", "text": ""}, deltas
        case ThinkingBlock():
            deltas = [
                {"type": "thinking_delta", "thinking": part}
                for part in split_into_stream_pieces(block.thinking, 24)
            ]
            deltas.append({"type": "signature_delta", "signature": block.signature})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case ToolUseBlock():
            arguments = _encode(block.input).decode() if broken_arguments is None else broken_arguments
            parts = ["", *(split_into_stream_pieces(arguments, 16) if arguments != "{}" else [])]
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}, deltas
        case RedactedThinkingBlock():
            return {"type": "redacted_thinking", "data": block.data}, []
        case _:
            raise TypeError(f"A model cannot produce a {type(block).__name__} block.")


def _find_cache_mark_error(body: RequestBody) -> str | None:
    parts = [*body.get("tools", ()), *_list_or_empty(body.get("system"))]
    parts += [block for message in body["messages"] for block in _list_or_empty(message.get("content"))]
    marked = [part for part in parts if "cache_control" in part]
    if len(marked) > _MOST_MARKS:
        return f"A maximum of {_MOST_MARKS} blocks with cache_control may be provided. Found {len(marked)}."
    if any(part.get("type") in ("thinking", "redacted_thinking") for part in marked):
        return "cache_control cannot be set for thinking blocks"
    return None


def _list_or_empty(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _find_unanswered_tool_call_error(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the provider's error about a tool call without its result in the next message."""
    unanswered: set[str] = set()
    for index, message in enumerate(messages):
        content = message.get("content")
        blocks = content if isinstance(content, list) else ()
        answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if unanswered - answered:
            missing = ", ".join(sorted(unanswered - answered))
            return (
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {missing}"
            )
        if answered - unanswered:
            return f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks"
        if not content and index < len(messages) - 1:
            return f"messages.{index}: all messages must have non-empty content"
        unanswered = {block["id"] for block in blocks if block["type"] == "tool_use"}
    if unanswered:
        return f"messages: `tool_use` ids without `tool_result` blocks: {', '.join(sorted(unanswered))}"
    return None
