"""Responses API format: whole responses, event streams and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.messages import ContentBlock, Text, Thinking, ToolUse
from shoal.core.usage import Usage
from shoal.testing.chat_form import ChatForm
from shoal.testing.replies import Answer, Body, BrokenToolJson, HttpError, StreamError, pieces

_encode = msgspec.json.Encoder().encode
_CREATED = 1_767_225_600
_FILLED: Mapping[str, tuple[str, Any]] = {
    "reasoning": ("summary", []),
    "message": ("content", []),
    "function_call": ("arguments", ""),
}
"""Field of an item that is streamed, and its value at the start."""
_SEALED = "reasoning.encrypted_content"


class ResponsesForm:
    path = "/v1/responses"
    tool_fragment = b'"type":"response.function_call_arguments.delta"'
    ping = b": ping\n\n"
    call_prefix = "call_"

    def __init__(self) -> None:
        self._chat = ChatForm()

    def key_given(self, headers: Mapping[str, str]) -> bool:
        return self._chat.key_given(headers)

    def complaint(self, _headers: Mapping[str, str], body: Body) -> str | None:
        """Return the provider's reason to refuse this request, or None."""
        for field in ("model", "input"):
            if not body.get(field):
                return f"Missing required parameter: '{field}'."
        limit = body.get("max_output_tokens")
        if limit is not None and limit < 16:
            least = "Expected a value >= 16"
            return f"Invalid 'max_output_tokens': integer below minimum value. {least}, got {limit} instead."
        items = body["input"]
        return None if isinstance(items, str) else _out_of_place(items, stored=body.get("store", True))

    def reported(self, usage: Usage, _body: Body) -> Usage:
        return usage

    def whole(self, answer: Answer, body: Body, number: int, usage: Usage) -> bytes:
        items = [_item(block, i, answer, body, number) for i, block in enumerate(answer.content)]
        return _encode(_response(answer, body, number, output=items, usage=usage))

    def events(self, answer: Answer, body: Body, number: int, usage: Usage) -> list[bytes]:
        begun = _response(answer, body, number, output=[], usage=None)
        items = [_item(block, i, answer, body, number) for i, block in enumerate(answer.content)]
        told: list[tuple[str, dict[str, Any]]] = [
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
        ]
        for index, item in enumerate(items):
            told += _streamed(item, index)
        last = _response(answer, body, number, output=items, usage=usage)
        told.append((f"response.{last['status']}", {"response": last}))
        return [_event(kind, {**data, "sequence_number": n}) for n, (kind, data) in enumerate(told)]

    def error(self, fault: HttpError, body: Body, number: int) -> bytes:
        return self._chat.error(fault, body, number)

    def stream_error(self, fault: StreamError) -> bytes:
        detail = {"code": fault.code, "message": fault.message, "param": None, "sequence_number": 1}
        return _event("error", detail)

    def models(self, names: Sequence[str]) -> bytes:
        return self._chat.models(names)


def _event(kind: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), _encode({"type": kind, **data}))


def _response(
    answer: Answer, body: Body, number: int, *, output: list[dict[str, Any]], usage: Usage | None
) -> dict[str, Any]:
    stopped = {"max_tokens": "max_output_tokens"}.get(answer.stopped_by) if usage is not None else None
    ended = "incomplete" if stopped else "completed"
    return {
        "id": f"resp_{number:024d}",
        "object": "response",
        "created_at": _CREATED,
        "status": "in_progress" if usage is None else ended,
        "error": None,
        "incomplete_details": {"reason": stopped} if stopped else None,
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
        "usage": None if usage is None else _counted(usage, answer),
        "user": None,
    }


def _item(block: ContentBlock, index: int, answer: Answer, body: Body, number: int) -> dict[str, Any]:
    name = f"{number:020d}{index:04d}"
    match block:
        case Thinking():
            sealed = block.signature or f"sealed{name}"
            summary = [{"type": "summary_text", "text": block.thinking}] if block.thinking else []
            item: dict[str, Any] = {"id": f"rs_{name}", "type": "reasoning", "summary": summary}
            item["encrypted_content"] = sealed if _SEALED in (body.get("include") or ()) else None
            return item
        case Text():
            refused = answer.stopped_by == "refusal"
            part: dict[str, Any] = {"type": "output_text", "text": block.text, "annotations": []}
            if refused:
                part = {"type": "refusal", "refusal": block.text}
            return {
                "id": f"msg_{name}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        case ToolUse():
            broken = next((f.arguments for f in answer.faults if isinstance(f, BrokenToolJson)), None)
            return {
                "id": f"fc_{name}",
                "type": "function_call",
                "status": "completed",
                "call_id": block.id,
                "name": block.name,
                "arguments": _encode(block.input).decode() if broken is None else broken,
            }
        case _:
            raise TypeError(f"This provider does not say a {type(block).__name__} block.")


def _streamed(item: Mapping[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    place = {"item_id": item["id"], "output_index": index}
    fill = {"reasoning": _summary, "message": _words, "function_call": _arguments}[item["type"]]
    empty: dict[str, dict[str, Any]] = {
        "reasoning": {"summary": []},
        "message": {"content": []},
        "function_call": {"arguments": ""},
    }
    begun = {**item, **empty[item["type"]]}
    if "status" in begun:
        begun["status"] = "in_progress"
    yield "response.output_item.added", {"output_index": index, "item": begun}
    yield from fill(item, place)
    yield "response.output_item.done", {"output_index": index, "item": item}


def _summary(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, part in enumerate(item["summary"]):
        at = {**place, "summary_index": number}
        begun = {"type": "summary_text", "text": ""}
        yield "response.reasoning_summary_part.added", {**at, "part": begun}
        for piece in pieces(part["text"], 24):
            yield "response.reasoning_summary_text.delta", {**at, "delta": piece}
        yield "response.reasoning_summary_text.done", {**at, "text": part["text"]}
        yield "response.reasoning_summary_part.done", {**at, "part": part}


def _words(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, part in enumerate(item["content"]):
        at = {**place, "content_index": number}
        key, kind = ("refusal", "refusal") if part["type"] == "refusal" else ("text", "output_text")
        more: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
        yield "response.content_part.added", {**at, "part": {**part, key: ""}}
        for piece in pieces(part[key], 24):
            yield f"response.{kind}.delta", {**at, "delta": piece, **more}
        yield f"response.{kind}.done", {**at, key: part[key], **more}
        yield "response.content_part.done", {**at, "part": part}


def _arguments(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for piece in pieces(item["arguments"], 16):
        yield "response.function_call_arguments.delta", {**place, "delta": piece}
    done = {**place, "name": item["name"], "arguments": item["arguments"]}
    yield "response.function_call_arguments.done", done


def _counted(usage: Usage, answer: Answer) -> dict[str, Any]:
    thought = sum(len(block.thinking) for block in answer.content if isinstance(block, Thinking))
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_input_tokens,
            "cache_write_tokens": usage.cache_creation_input_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": min(usage.output_tokens, thought // 4)},
        "total_tokens": usage.total_tokens,
    }


def _out_of_place(items: Sequence[Mapping[str, Any]], *, stored: bool) -> str | None:
    """Return the provider's error about calls without results, results without calls, or lone reasoning."""
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    for call in calls:
        if call not in results:
            return f"No tool output found for function call {call}."
    for result in results:
        if result not in calls:
            return f"No tool call found for function call output with call_id {result}."
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") != "reasoning":
            continue
        if not stored and not item.get("encrypted_content"):
            return f"Item '{item['id']}' not found. Items are not persisted when `store` is set to false."
        if (
            following.get("type") not in ("reasoning", "function_call")
            and following.get("role") != "assistant"
        ):
            return (
                f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            )
    return None
