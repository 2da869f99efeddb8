"""Responses API format: whole responses, event streams and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import ContentBlock, TextBlock, ThinkingBlock, ToolUseBlock
from shoal.testing.chat_format import MockChatCompletionsApiFormat
from shoal.testing.mock_replies import (
    BrokenToolJsonFault,
    HttpErrorFault,
    MockReply,
    RequestBody,
    StreamErrorFault,
    split_into_stream_pieces,
)

_encode = msgspec.json.Encoder().encode
_CREATED = 1_767_225_600
"""Field of an item that is streamed, and its value at the start."""
_SEALED = "reasoning.encrypted_content"


class MockResponsesApiFormat:
    path = "/v1/responses"
    tool_fragment = b'"type":"response.function_call_arguments.delta"'
    ping = b": ping\n\n"
    call_prefix = "call_"

    def __init__(self) -> None:
        self._chat_format = MockChatCompletionsApiFormat()

    def has_api_key(self, headers: Mapping[str, str]) -> bool:
        return self._chat_format.has_api_key(headers)

    def find_request_error(self, _headers: Mapping[str, str], body: RequestBody) -> str | None:
        """Return the provider's reason to refuse this request, or None."""
        for field in ("model", "input"):
            if not body.get(field):
                return f"Missing required parameter: '{field}'."
        limit = body.get("max_output_tokens")
        if limit is not None and limit < 16:
            bound = "Expected a value >= 16"
            return f"Invalid 'max_output_tokens': integer below minimum value. {bound}, got {limit} instead."
        items = body["input"]
        return (
            None
            if isinstance(items, str)
            else _find_input_item_error(items, is_stored=body.get("store", True))
        )

    def compute_reported_usage(self, usage: Usage, _body: RequestBody) -> Usage:
        return usage

    def encode_reply(self, answer: MockReply, body: RequestBody, number: int, usage: Usage) -> bytes:
        items = [_build_output_item(block, i, answer, body, number) for i, block in enumerate(answer.content)]
        return _encode(_build_response_object(answer, body, number, output=items, usage=usage))

    def encode_stream_events(
        self, answer: MockReply, body: RequestBody, number: int, usage: Usage
    ) -> list[bytes]:
        initial_response = _build_response_object(answer, body, number, output=[], usage=None)
        items = [_build_output_item(block, i, answer, body, number) for i, block in enumerate(answer.content)]
        events: list[tuple[str, dict[str, Any]]] = [
            ("response.created", {"response": initial_response}),
            ("response.in_progress", {"response": initial_response}),
        ]
        for index, item in enumerate(items):
            events += _iter_output_item_events(item, index)
        last = _build_response_object(answer, body, number, output=items, usage=usage)
        events.append((f"response.{last['status']}", {"response": last}))
        return [
            _encode_sse_event(kind, {**data, "sequence_number": n}) for n, (kind, data) in enumerate(events)
        ]

    def encode_error(self, fault: HttpErrorFault, body: RequestBody, number: int) -> bytes:
        return self._chat_format.encode_error(fault, body, number)

    def encode_stream_error(self, fault: StreamErrorFault) -> bytes:
        detail = {"code": fault.code, "message": fault.message, "param": None, "sequence_number": 1}
        return _encode_sse_event("error", detail)

    def encode_model_list(self, names: Sequence[str]) -> bytes:
        return self._chat_format.encode_model_list(names)


def _encode_sse_event(kind: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), _encode({"type": kind, **data}))


def _build_response_object(
    answer: MockReply, body: RequestBody, number: int, *, output: list[dict[str, Any]], usage: Usage | None
) -> dict[str, Any]:
    incomplete_reason = (
        {"max_tokens": "max_output_tokens"}.get(answer.effective_stop_reason) if usage is not None else None
    )
    status = "incomplete" if incomplete_reason else "completed"
    return {
        "id": f"resp_{number:024d}",
        "object": "response",
        "created_at": _CREATED,
        "status": "in_progress" if usage is None else status,
        "error": None,
        "incomplete_details": {"reason": incomplete_reason} if incomplete_reason else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": {},
        "model": answer.model or body.get("model", "mock"),
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": (body.get("reasoning") or {}).get("effort"), "summary": None},
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": list(body.get("tools") or ()),
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None if usage is None else _encode_responses_usage(usage, answer),
        "user": None,
    }


def _build_output_item(
    block: ContentBlock, index: int, answer: MockReply, body: RequestBody, number: int
) -> dict[str, Any]:
    name = f"{number:020d}{index:04d}"
    match block:
        case ThinkingBlock():
            encrypted_content = block.signature or f"sealed{name}"
            summary = [{"type": "summary_text", "text": block.thinking}] if block.thinking else []
            item: dict[str, Any] = {"id": f"rs_{name}", "type": "reasoning", "summary": summary}
            item["encrypted_content"] = encrypted_content if _SEALED in (body.get("include") or ()) else None
            return item
        case TextBlock():
            is_refusal = answer.effective_stop_reason == "refusal"
            part: dict[str, Any] = {"type": "output_text", "text": block.text, "annotations": []}
            if is_refusal:
                part = {"type": "refusal", "refusal": block.text}
            return {
                "id": f"msg_{name}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        case ToolUseBlock():
            broken_arguments = next(
                (f.arguments for f in answer.faults if isinstance(f, BrokenToolJsonFault)), None
            )
            return {
                "id": f"fc_{name}",
                "type": "function_call",
                "status": "completed",
                "call_id": block.id,
                "name": block.name,
                "arguments": _encode(block.input).decode() if broken_arguments is None else broken_arguments,
            }
        case _:
            raise TypeError(f"This provider cannot produce a {type(block).__name__} block.")


def _iter_output_item_events(item: Mapping[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    item_ref = {"item_id": item["id"], "output_index": index}
    stream_content = {
        "reasoning": _iter_reasoning_summary_events,
        "message": _iter_message_text_events,
        "function_call": _iter_call_argument_events,
    }[item["type"]]
    empty: dict[str, dict[str, Any]] = {
        "reasoning": {"summary": []},
        "message": {"content": []},
        "function_call": {"arguments": ""},
    }
    initial_item = {**item, **empty[item["type"]]}
    if "status" in initial_item:
        initial_item["status"] = "in_progress"
    yield "response.output_item.added", {"output_index": index, "item": initial_item}
    yield from stream_content(item, item_ref)
    yield "response.output_item.done", {"output_index": index, "item": item}


def _iter_reasoning_summary_events(
    item: Mapping[str, Any], item_ref: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, part in enumerate(item["summary"]):
        part_ref = {**item_ref, "summary_index": number}
        initial_part = {"type": "summary_text", "text": ""}
        yield "response.reasoning_summary_part.added", {**part_ref, "part": initial_part}
        for piece in split_into_stream_pieces(part["text"], 24):
            yield "response.reasoning_summary_text.delta", {**part_ref, "delta": piece}
        yield "response.reasoning_summary_text.done", {**part_ref, "text": part["text"]}
        yield "response.reasoning_summary_part.done", {**part_ref, "part": part}


def _iter_message_text_events(
    item: Mapping[str, Any], item_ref: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, part in enumerate(item["content"]):
        part_ref = {**item_ref, "content_index": number}
        key, kind = ("refusal", "refusal") if part["type"] == "refusal" else ("text", "output_text")
        extra_fields: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
        yield "response.content_part.added", {**part_ref, "part": {**part, key: ""}}
        for piece in split_into_stream_pieces(part[key], 24):
            yield f"response.{kind}.delta", {**part_ref, "delta": piece, **extra_fields}
        yield f"response.{kind}.done", {**part_ref, key: part[key], **extra_fields}
        yield "response.content_part.done", {**part_ref, "part": part}


def _iter_call_argument_events(
    item: Mapping[str, Any], item_ref: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for piece in split_into_stream_pieces(item["arguments"], 16):
        yield "response.function_call_arguments.delta", {**item_ref, "delta": piece}
    final_fields = {**item_ref, "name": item["name"], "arguments": item["arguments"]}
    yield "response.function_call_arguments.done", final_fields


def _encode_responses_usage(usage: Usage, answer: MockReply) -> dict[str, Any]:
    thinking_length = sum(len(block.thinking) for block in answer.content if isinstance(block, ThinkingBlock))
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_input_tokens,
            "cache_write_tokens": usage.cache_creation_input_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": min(usage.output_tokens, thinking_length // 4)},
        "total_tokens": usage.total_tokens,
    }


def _find_input_item_error(items: Sequence[Mapping[str, Any]], *, is_stored: bool) -> str | None:
    """Return the provider's error about calls without results, results without calls, or lone reasoning."""
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    result_ids = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    for call in calls:
        if call not in result_ids:
            return f"No tool output found for function call {call}."
    for result in result_ids:
        if result not in calls:
            return f"No tool call found for function call output with call_id {result}."
    for item, next_item in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") != "reasoning":
            continue
        if not is_stored and not item.get("encrypted_content"):
            return f"Item '{item['id']}' not found. Items are not persisted when `store` is set to false."
        if (
            next_item.get("type") not in ("reasoning", "function_call")
            and next_item.get("role") != "assistant"
        ):
            return (
                f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            )
    return None
