"""Chat Completions format: whole replies, chunk streams and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import TextBlock, ThinkingBlock, ToolUseBlock
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
_FINISH = {"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
# status: (type, code, message)
_ERRORS = {
    400: ("invalid_request_error", None, "Bad request"),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided: sk-***."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests"),
    500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    503: ("server_error", None, "The engine is currently overloaded, please try again later"),
}


class MockChatCompletionsApiFormat:
    path = "/v1/chat/completions"
    tool_fragment = b'"function":{"arguments":"'
    ping = b": ping\n\n"
    call_prefix = "call_"

    def has_api_key(self, _headers: Mapping[str, str]) -> bool:
        """Return True: local servers of this format need no key."""
        return True

    def find_request_error(self, _headers: Mapping[str, str], body: RequestBody) -> str | None:
        """Return the provider's reason to refuse this request, or None."""
        for field in ("model", "messages"):
            if not body.get(field):
                return f"Missing required parameter: '{field}'."
        return _find_unanswered_tool_call_error(body["messages"])

    def compute_reported_usage(self, usage: Usage, body: RequestBody) -> Usage:
        """Return the usage this format reports: cache writes are input, streams report it only on request."""
        if body.get("stream") and not (body.get("stream_options") or {}).get("include_usage"):
            return Usage()
        return Usage(
            input_tokens=usage.input_tokens + usage.cache_creation_input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_input_tokens=usage.cache_read_input_tokens,
        )

    def encode_reply(self, answer: MockReply, body: RequestBody, number: int, usage: Usage) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": _join_reply_text(answer), "refusal": None}
        if thinking := _join_reply_thinking(answer):
            message["reasoning_content"] = thinking
        if calls := _encode_tool_calls(answer):
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _get_finish_reason(answer),
        }
        head = self._build_chat_response_head("chat.completion", answer, body, number)
        return _encode({**head, "choices": [choice], "usage": _encode_chat_usage(usage)})

    def _build_chat_response_head(
        self, kind: str, answer: MockReply, body: RequestBody, number: int
    ) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{number:024d}",
            "object": kind,
            "created": _CREATED,
            "model": answer.model or body.get("model", "mock"),
        }

    def encode_stream_events(
        self, answer: MockReply, body: RequestBody, number: int, usage: Usage
    ) -> list[bytes]:
        head = self._build_chat_response_head("chat.completion.chunk", answer, body, number)
        wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        if wants_usage:
            head["usage"] = None
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [
            {"reasoning_content": part} for part in split_into_stream_pieces(_join_reply_thinking(answer), 24)
        ]
        deltas += [{"content": part} for part in split_into_stream_pieces(_join_reply_text(answer) or "", 24)]
        for index, tool_call in enumerate(_encode_tool_calls(answer)):
            arguments = tool_call["function"].pop("arguments")
            opened = {**tool_call, "function": {**tool_call["function"], "arguments": ""}}
            deltas.append({"tool_calls": [{"index": index, **opened}]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
                for part in split_into_stream_pieces(arguments, 16)
            ]
        events = [_encode_chat_stream_chunk(head, delta, None) for delta in deltas]
        events.append(_encode_chat_stream_chunk(head, {}, _get_finish_reason(answer)))
        if wants_usage:
            events.append(
                b"data: %s\n\n" % _encode({**head, "choices": [], "usage": _encode_chat_usage(usage)})
            )
        events.append(b"data: [DONE]\n\n")
        return events

    def encode_error(self, fault: HttpErrorFault, body: RequestBody, _number: int) -> bytes:
        kind, code, message = _ERRORS.get(fault.status, ("server_error", None, "Error"))
        param = None
        if fault.code == "context_too_long":
            code, param = "context_length_exceeded", "messages"
            message = (
                "This model's maximum context length is 128000 tokens. However, your messages resulted in "
                "130420 tokens. Please reduce the length of the messages."
            )
        elif fault.status == 404:
            kind, code = "invalid_request_error", "model_not_found"
            message = f"The model `{body.get('model', '')}` does not exist or you do not have access to it."
        elif fault.code:
            code = fault.code
        detail = {"message": fault.message or message, "type": kind, "param": param, "code": code}
        return _encode({"error": detail})

    def encode_stream_error(self, fault: StreamErrorFault) -> bytes:
        detail = {"message": fault.message, "type": "server_error", "param": None, "code": fault.code}
        return b"data: %s\n\n" % _encode({"error": detail})

    def encode_model_list(self, names: Sequence[str]) -> bytes:
        rows = [{"id": name, "object": "model", "created": _CREATED, "owned_by": "shoal"} for name in names]
        return _encode({"object": "list", "data": rows})


def encode_ollama_tags(names: Sequence[str]) -> bytes:
    """Encode the list by which a local Ollama is recognized."""
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


def _encode_chat_stream_chunk(head: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: %s\n\n" % _encode({**head, "choices": [choice]})


def _get_finish_reason(answer: MockReply) -> str:
    return _FINISH.get(answer.effective_stop_reason, "stop")


def _join_reply_text(answer: MockReply) -> str | None:
    texts = [block.text for block in answer.content if isinstance(block, TextBlock)]
    return "\n".join(texts) if texts else None


def _join_reply_thinking(answer: MockReply) -> str:
    return "".join(block.thinking for block in answer.content if isinstance(block, ThinkingBlock))


def _encode_tool_calls(answer: MockReply) -> list[dict[str, Any]]:
    broken_arguments = next((f.arguments for f in answer.faults if isinstance(f, BrokenToolJsonFault)), None)
    return [
        {
            "id": block.id,
            "type": "function",
            "function": {
                "name": block.name,
                "arguments": _encode(block.input).decode() if broken_arguments is None else broken_arguments,
            },
        }
        for block in answer.content
        if isinstance(block, ToolUseBlock)
    ]


def _encode_chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens, "audio_tokens": 0},
    }


def _find_unanswered_tool_call_error(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the provider's error about tool calls that the following messages do not answer."""
    unanswered: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in unanswered:
                return (
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
                    "message with 'tool_calls'."
                )
            unanswered.discard(message["tool_call_id"])
            continue
        if unanswered:
            break
        unanswered = {tool_call["id"] for tool_call in message.get("tool_calls") or ()}
    if unanswered:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{', '.join(sorted(unanswered))}"
        )
    return None
