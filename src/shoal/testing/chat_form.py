"""Chat Completions format: whole replies, chunk streams and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.messages import Text, Thinking, ToolUse
from shoal.core.usage import Usage
from shoal.testing.replies import Answer, Body, BrokenToolJson, HttpError, StreamError, pieces

_encode = msgspec.json.Encoder().encode
_CREATED = 1_767_225_600
_FINISH = {"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
# status: (type, code, message)
_ERRORS = {
    400: ("invalid_request_error", None, "Bad request"),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided: sk-***."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests"),
    500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    503: ("server_error", None, "The engine is currently overloaded, please try again later"),
}


class ChatForm:
    path = "/v1/chat/completions"
    tool_fragment = b'"function":{"arguments":"'
    ping = b": ping\n\n"
    call_prefix = "call_"

    def key_given(self, _headers: Mapping[str, str]) -> bool:
        """Return True: local servers of this format need no key."""
        return True

    def complaint(self, _headers: Mapping[str, str], body: Body) -> str | None:
        """Return the provider's reason to refuse this request, or None."""
        for field in ("model", "messages"):
            if not body.get(field):
                return f"Missing required parameter: '{field}'."
        return _unanswered(body["messages"])

    def reported(self, usage: Usage, body: Body) -> Usage:
        """Return the usage this format reports: cache writes are input, streams report it only on request."""
        if body.get("stream") and not (body.get("stream_options") or {}).get("include_usage"):
            return Usage()
        return Usage(
            input_tokens=usage.input_tokens + usage.cache_creation_input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_input_tokens=usage.cache_read_input_tokens,
        )

    def whole(self, answer: Answer, body: Body, number: int, usage: Usage) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": _text(answer), "refusal": None}
        if thought := _thought(answer):
            message["reasoning_content"] = thought
        if calls := _calls(answer):
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
        head = self._head("chat.completion", answer, body, number)
        return _encode({**head, "choices": [choice], "usage": _counted(usage)})

    def _head(self, kind: str, answer: Answer, body: Body, number: int) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{number:024d}",
            "object": kind,
            "created": _CREATED,
            "model": answer.model or body.get("model", "mock"),
        }

    def events(self, answer: Answer, body: Body, number: int, usage: Usage) -> list[bytes]:
        head = self._head("chat.completion.chunk", answer, body, number)
        wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        if wants_usage:
            head["usage"] = None
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": part} for part in pieces(_thought(answer), 24)]
        deltas += [{"content": part} for part in pieces(_text(answer) or "", 24)]
        for index, tool_call in enumerate(_calls(answer)):
            arguments = tool_call["function"].pop("arguments")
            opened = {**tool_call, "function": {**tool_call["function"], "arguments": ""}}
            deltas.append({"tool_calls": [{"index": index, **opened}]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
                for part in pieces(arguments, 16)
            ]
        events = [_chunk(head, delta, None) for delta in deltas]
        events.append(_chunk(head, {}, _finish(answer)))
        if wants_usage:
            events.append(b"data: %s\n\n" % _encode({**head, "choices": [], "usage": _counted(usage)}))
        events.append(b"data: [DONE]\n\n")
        return events

    def error(self, fault: HttpError, body: Body, _number: int) -> bytes:
        kind, code, says = _ERRORS.get(fault.status, ("server_error", None, "Error"))
        param = None
        if fault.code == "context_too_long":
            code, param = "context_length_exceeded", "messages"
            says = (
                "This model's maximum context length is 128000 tokens. However, your messages resulted in "
                "130420 tokens. Please reduce the length of the messages."
            )
        elif fault.status == 404:
            kind, code = "invalid_request_error", "model_not_found"
            says = f"The model `{body.get('model', '')}` does not exist or you do not have access to it."
        elif fault.code:
            code = fault.code
        detail = {"message": fault.message or says, "type": kind, "param": param, "code": code}
        return _encode({"error": detail})

    def stream_error(self, fault: StreamError) -> bytes:
        detail = {"message": fault.message, "type": "server_error", "param": None, "code": fault.code}
        return b"data: %s\n\n" % _encode({"error": detail})

    def models(self, names: Sequence[str]) -> bytes:
        rows = [{"id": name, "object": "model", "created": _CREATED, "owned_by": "shoal"} for name in names]
        return _encode({"object": "list", "data": rows})


def ollama_tags(names: Sequence[str]) -> bytes:
    """Encode the list by which a local Ollama is recognised."""
    details = {"format": "gguf", "family": "llama", "parameter_size": "8B", "quantization_level": "Q4_0"}
    rows = [
        {
            "name": name,
            "model": name,
            "modified_at": "2026-01-01T00:00:00Z",
            "size": 4_000_000_000,
            "digest": "0" * 64,
            "details": details,
        }
        for name in names
    ]
    return _encode({"models": rows})


def _chunk(head: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: %s\n\n" % _encode({**head, "choices": [choice]})


def _finish(answer: Answer) -> str:
    return _FINISH.get(answer.stopped_by, "stop")


def _text(answer: Answer) -> str | None:
    texts = [block.text for block in answer.content if isinstance(block, Text)]
    return "\n".join(texts) if texts else None


def _thought(answer: Answer) -> str:
    return "".join(block.thinking for block in answer.content if isinstance(block, Thinking))


def _calls(answer: Answer) -> list[dict[str, Any]]:
    broken = next((f.arguments for f in answer.faults if isinstance(f, BrokenToolJson)), None)
    return [
        {
            "id": block.id,
            "type": "function",
            "function": {
                "name": block.name,
                "arguments": _encode(block.input).decode() if broken is None else broken,
            },
        }
        for block in answer.content
        if isinstance(block, ToolUse)
    ]


def _counted(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens, "audio_tokens": 0},
    }


def _unanswered(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the provider's error about tool calls that the following messages do not answer."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return (
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
                    "message with 'tool_calls'."
                )
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            break
        waiting = {tool_call["id"] for tool_call in message.get("tool_calls") or ()}
    if waiting:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{', '.join(sorted(waiting))}"
        )
    return None
