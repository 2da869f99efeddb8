"""Tool calls for servers without tool support: the model answers in JSON of a given schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from shoal.core.messages import (
    MALFORMED,
    ContentBlock,
    Image,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    result_text,
)
from shoal.core.requests import Reply, Request, ToolSchema
from shoal.models.chat_stream import call_ids
from shoal.models.json_text import decoded, encoded

_MANNER = """
# Tools
You work with tools. Each of your answers is one JSON object, in one of two forms:
{{"turn": {{"calls": [{{"tool": "NAME", "arguments": {{…}}}}]}}}}
uses one or more tools; their results come in the next message.
{{"turn": {{"answer": "TEXT"}}}}
ends your turn, when no tool is needed any more.

The tools, with the JSON schema of their arguments:
{tools}"""
_FENCE = re.compile(r"^\s*```(?:json)?\s*(.*?)\s*```\s*$", re.DOTALL)


def emulated(request: Request) -> Request:
    """Return the same request without tools: the system prompt explains them, calls and results are text."""
    tools = "\n".join(
        f"- {tool.name}: {tool.description}\n  {encoded(tool.input_schema).decode()}"
        for tool in request.tools
    )
    names = {use.id: use.name for message in request.messages for use in message.tool_uses}
    return structs.replace(
        request,
        system=request.system + _MANNER.format(tools=tools),
        messages=[_told(message, names) for message in request.messages],
        tools=(),
    )


def response_format(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """Return the schema that restricts the server to the two forms."""
    calls = [_form(tool={"enum": [tool.name]}, arguments=tool.input_schema) for tool in tools]
    call = calls[0] if len(calls) == 1 else {"anyOf": calls}
    forms = [
        _form(answer={"type": "string"}),
        _form(calls={"type": "array", "items": call, "minItems": 1}),
    ]
    # Some servers require an object at the root, not a choice.
    schema = _form(turn={"anyOf": forms})
    return {"type": "json_schema", "json_schema": {"name": "turn", "schema": schema}}


def _form(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _told(message: Message, names: Mapping[str, str]) -> Message:
    if message.role == "assistant":
        return Message(role="assistant", content=(Text(text=_own_words(message)),))
    content: list[ContentBlock] = []
    for block in message.content:
        if not isinstance(block, ToolResult):
            content.append(block)
            continue
        outcome = "failed" if block.is_error else "gave"
        words = f"{names.get(block.tool_use_id, 'The tool')} {outcome}:\n{result_text(block)}"
        content.append(Text(text=words))
        if not isinstance(block.content, str):
            content += [part for part in block.content if isinstance(part, Image)]
    return Message(role="user", content=tuple(content))


def _own_words(message: Message) -> str:
    """Encode the model's message in the form it was asked to use; text comes before calls."""
    if not message.tool_uses:
        return encoded({"turn": {"answer": message.text}}).decode()
    calls = [{"tool": use.name, "arguments": use.input} for use in message.tool_uses]
    said = encoded({"turn": {"calls": calls}}).decode()
    return f"{message.text}\n{said}" if message.text.strip() else said


def understood(reply: Reply, history: Sequence[Message]) -> Reply:
    """Parse the reply's tool calls. A reply in neither form is taken as plain text."""
    text = reply.message.text
    fenced = _FENCE.match(text)
    try:
        said = decoded(fenced.group(1) if fenced else text)
    except ValueError:
        said = None
    if isinstance(said, Mapping) and "turn" in said:
        said = said["turn"]
    thoughts = [block for block in reply.message.content if isinstance(block, Thinking)]
    calls = _calls_in(said, history)
    if calls:
        content: list[ContentBlock] = [*thoughts, *calls]
        stop = "tool_use" if reply.stop_reason in ("end_turn", "stop_sequence") else reply.stop_reason
        return structs.replace(
            reply, message=Message(role="assistant", content=tuple(content)), stop_reason=stop
        )
    if isinstance(said, Mapping) and isinstance(said.get("answer"), str):
        text = said["answer"]
    content = [*thoughts, Text(text=text)] if text else [*thoughts]
    return structs.replace(reply, message=Message(role="assistant", content=tuple(content)))


def _calls_in(said: Any, history: Sequence[Message]) -> list[ToolUse]:
    calls = said.get("calls") if isinstance(said, Mapping) else None
    named = [
        call
        for call in (calls if isinstance(calls, list) else ())
        if isinstance(call, Mapping) and isinstance(call.get("tool"), str)
    ]
    return [
        ToolUse(id=call_id, name=call["tool"], input=_arguments(call.get("arguments", {})))
        for call, call_id in zip(named, call_ids([""] * len(named), history), strict=True)
    ]


def _arguments(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {MALFORMED: encoded(value).decode()}
