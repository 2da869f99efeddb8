"""Messages API format: whole replies, event streams and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.messages import ContentBlock, RedactedThinking, Text, Thinking, ToolUse
from shoal.core.usage import Usage
from shoal.testing.replies import Answer, Body, BrokenToolJson, HttpError, StreamError, pieces

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


class MessagesForm:
    path = "/v1/messages"
    tool_fragment = b'"type":"input_json_delta"'
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    call_prefix = "toolu_"

    def key_given(self, headers: Mapping[str, str]) -> bool:
        return bool(headers.get("x-api-key") or headers.get("authorization"))

    def complaint(self, headers: Mapping[str, str], body: Body) -> str | None:
        """Return the provider's reason to refuse this request, or None."""
        if "anthropic-version" not in headers:
            return "anthropic-version: header is required"
        for field in ("model", "max_tokens", "messages"):
            if not body.get(field):
                return f"{field}: Field required"
        return _too_many_marks(body) or _unanswered(body["messages"])

    def reported(self, usage: Usage, _body: Body) -> Usage:
        return usage

    def whole(self, answer: Answer, body: Body, number: int, usage: Usage) -> bytes:
        return _encode(
            {
                **self._head(answer, body, number),
                "content": [_block(block) for block in answer.content],
                "stop_reason": answer.stopped_by,
                "usage": msgspec.to_builtins(usage),
            }
        )

    def _head(self, answer: Answer, body: Body, number: int) -> dict[str, Any]:
        return {
            "id": f"msg_{number:024d}",
            "type": "message",
            "role": "assistant",
            "model": answer.model or body.get("model", "mock"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def events(self, answer: Answer, body: Body, number: int, usage: Usage) -> list[bytes]:
        counted = msgspec.to_builtins(usage)
        start = {**self._head(answer, body, number), "usage": {**counted, "output_tokens": 1}}
        broken = next((f.arguments for f in answer.faults if isinstance(f, BrokenToolJson)), None)
        events = [_event("message_start", message=start)]
        for index, block in enumerate(answer.content):
            opened, deltas = _streamed(block, broken)
            events.append(_event("content_block_start", index=index, content_block=opened))
            events += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
            events.append(_event("content_block_stop", index=index))
        stop = {"stop_reason": answer.stopped_by, "stop_sequence": None}
        events.append(_event("message_delta", delta=stop, usage=counted))
        events.append(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
        return events

    def error(self, fault: HttpError, body: Body, number: int) -> bytes:
        kind = _KINDS.get(fault.status, "api_error")
        says = fault.message or _SAYS.get(fault.status, "")
        if fault.code == "context_too_long":
            says = fault.message or "prompt is too long: 208310 tokens > 200000 maximum"
        elif fault.status == 404 and not says:
            says = f"model: {body.get('model', '')}"
        elif fault.code:
            kind = fault.code
        return _encode(
            {
                "type": "error",
                "error": {"type": kind, "message": says or "Error"},
                "request_id": f"req_{number:024d}",
            }
        )

    def stream_error(self, fault: StreamError) -> bytes:
        return _event("error", error={"type": f"{fault.code}_error", "message": fault.message})

    def models(self, names: Sequence[str]) -> bytes:
        rows = [
            {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
            for name in names
        ]
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return _encode({"data": rows, "has_more": False, **ends})


def _event(name: str, **data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _encode({"type": name, **data}))


def _block(block: ContentBlock) -> dict[str, Any]:
    # The struct omits defaults, but the provider does not.
    raw: dict[str, Any] = msgspec.to_builtins(block)
    return {**raw, "signature": block.signature} if isinstance(block, Thinking) else raw


def _streamed(block: ContentBlock, broken: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it is opened, and the deltas that fill it."""
    match block:
        case Text():
            deltas = [{"type": "text_delta", "text": part} for part in pieces(block.text, 24)]
            return {"type": "text", "text": ""}, deltas
        case Thinking():
            deltas = [{"type": "thinking_delta", "thinking": part} for part in pieces(block.thinking, 24)]
            deltas.append({"type": "signature_delta", "signature": block.signature})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case ToolUse():
            arguments = _encode(block.input).decode() if broken is None else broken
            parts = ["", *(pieces(arguments, 16) if arguments != "{}" else [])]
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}, deltas
        case RedactedThinking():
            return {"type": "redacted_thinking", "data": block.data}, []
        case _:
            raise TypeError(f"A model does not say a {type(block).__name__} block.")


def _too_many_marks(body: Body) -> str | None:
    parts = [*body.get("tools", ()), *_listed(body.get("system"))]
    parts += [block for message in body["messages"] for block in _listed(message.get("content"))]
    marked = [part for part in parts if "cache_control" in part]
    if len(marked) > _MOST_MARKS:
        return f"A maximum of {_MOST_MARKS} blocks with cache_control may be provided. Found {len(marked)}."
    if any(part.get("type") in ("thinking", "redacted_thinking") for part in marked):
        return "cache_control cannot be set for thinking blocks"
    return None


def _listed(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _unanswered(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the provider's error about a tool call without its result in the next message."""
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        content = message.get("content")
        blocks = content if isinstance(content, list) else ()
        given = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if waiting - given:
            missing = ", ".join(sorted(waiting - given))
            return (
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {missing}"
            )
        if given - waiting:
            return f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks"
        if not content and index < len(messages) - 1:
            return f"messages.{index}: all messages must have non-empty content"
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
    if waiting:
        return f"messages: `tool_use` ids without `tool_result` blocks: {', '.join(sorted(waiting))}"
    return None
