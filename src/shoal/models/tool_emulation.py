"""Tool calls for servers without tool support: the model answers in JSON of a given schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from shoal.core.conversation.messages import (
    MALFORMED_INPUT_KEY,
    ContentBlock,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import ModelReply, ModelRequest, ToolSchema
from shoal.models.chat_stream import assign_tool_call_ids
from shoal.models.provider_json import decode_json, encode_json
from shoal.models.request_texts import format_request_notice, format_tool_instructions

_FENCE = re.compile(r"^\s*```(?:json)?\s*(.*?)\s*```\s*$", re.DOTALL)


def emulate_tools_in_prompt(request: ModelRequest) -> ModelRequest:
    """Return the same request without tools: the system prompt explains them, calls and results are text."""
    tools = "\n".join(
        f"- {tool.name}: {tool.description}\n  {encode_json(tool.input_schema).decode()}"
        for tool in request.tools
    )
    names = {use.id: use.name for message in request.messages for use in message.tool_uses}
    return structs.replace(
        request,
        system=f"{request.system}\n{format_tool_instructions(tools)}",
        messages=[_convert_message_to_text(message, names) for message in request.messages],
        tools=(),
    )


def build_emulated_reply_schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """Return the schema that restricts the server to the two forms."""
    calls = [_build_object_schema(tool={"enum": [tool.name]}, arguments=tool.input_schema) for tool in tools]
    call = calls[0] if len(calls) == 1 else {"anyOf": calls}
    forms = [
        _build_object_schema(answer={"type": "string"}),
        _build_object_schema(calls={"type": "array", "items": call, "minItems": 1}),
    ]
    # Some servers require an object at the root, not a choice.
    schema = _build_object_schema(turn={"anyOf": forms})
    return {"type": "json_schema", "json_schema": {"name": "turn", "schema": schema}}


def _build_object_schema(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _convert_message_to_text(message: Message, names: Mapping[str, str]) -> Message:
    if message.role == "assistant":
        return Message(
            role="assistant", content=(TextBlock(text=_encode_emulated_assistant_message(message)),)
        )
    content: list[ContentBlock] = []
    for block in message.content:
        if not isinstance(block, ToolResultBlock):
            content.append(block)
            continue
        text = format_request_notice(
            "emulated_failure" if block.is_error else "emulated_result",
            tool=names.get(block.tool_use_id, "The tool"),
            result=extract_tool_result_text(block),
        )
        content.append(TextBlock(text=text))
        if not isinstance(block.content, str):
            content += [part for part in block.content if isinstance(part, ImageBlock)]
    return Message(role="user", content=tuple(content))


def _encode_emulated_assistant_message(message: Message) -> str:
    """Encode the model's message in the form it was asked to use; text comes before calls."""
    if not message.tool_uses:
        return encode_json({"turn": {"answer": message.text}}).decode()
    calls = [{"tool": use.name, "arguments": use.input} for use in message.tool_uses]
    calls_json = encode_json({"turn": {"calls": calls}}).decode()
    return f"{message.text}\n{calls_json}" if message.text.strip() else calls_json


def parse_emulated_reply(reply: ModelReply, history: Sequence[Message]) -> ModelReply:
    """Parse the reply's tool calls. A reply in neither form is taken as plain text."""
    text = reply.message.text
    fence = _FENCE.match(text)
    try:
        parsed = decode_json(fence.group(1) if fence else text)
    except ValueError:
        parsed = None
    if isinstance(parsed, Mapping) and "turn" in parsed:
        parsed = parsed["turn"]
    thinking = [block for block in reply.message.content if isinstance(block, ThinkingBlock)]
    calls = _parse_emulated_calls(parsed, history)
    if calls:
        content: list[ContentBlock] = [*thinking, *calls]
        stop_reason = "tool_use" if reply.stop_reason in ("end_turn", "stop_sequence") else reply.stop_reason
        return structs.replace(
            reply, message=Message(role="assistant", content=tuple(content)), stop_reason=stop_reason
        )
    if isinstance(parsed, Mapping) and isinstance(parsed.get("answer"), str):
        text = parsed["answer"]
    content = [*thinking, TextBlock(text=text)] if text else [*thinking]
    return structs.replace(reply, message=Message(role="assistant", content=tuple(content)))


def _parse_emulated_calls(parsed: Any, history: Sequence[Message]) -> list[ToolUseBlock]:
    calls = parsed.get("calls") if isinstance(parsed, Mapping) else None
    valid_calls = [
        call
        for call in (calls if isinstance(calls, list) else ())
        if isinstance(call, Mapping) and isinstance(call.get("tool"), str)
    ]
    return [
        ToolUseBlock(
            id=call_id, name=call["tool"], input=_parse_emulated_call_arguments(call.get("arguments", {}))
        )
        for call, call_id in zip(
            valid_calls, assign_tool_call_ids([""] * len(valid_calls), history), strict=True
        )
    ]


def _parse_emulated_call_arguments(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {MALFORMED_INPUT_KEY: encode_json(value).decode()}
