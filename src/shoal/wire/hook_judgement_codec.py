"""Prompts and MCP tools as hooks: the event in their input, and the judgement in a model's answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shoal.core.extensions.hooks import (
    NO_DECISION,
    STOP_EVENTS,
    HookDecision,
    HookEvent,
    McpToolHookAction,
    ModelPromptHookAction,
)
from shoal.wire.foreign_json import convert_to_schema
from shoal.wire.hook_output_codec import InvalidHookOutputError, truncate_hook_text
from shoal.wire.json_codec import decode_json, encode_json

_ARGUMENTS = "$ARGUMENTS"
_FIELD = re.compile(r"\$\{([\w.-]+)\}")


class _HookJudgementSchema(Struct, frozen=True, kw_only=True):
    ok: bool
    reason: str | None = None
    impossible: bool = False
    """True if an agent that is about to stop cannot do what is missing."""


def format_hook_prompt(prompt: str, event: bytes) -> str:
    """Return the prompt with the event in place of `$ARGUMENTS`, or else after it."""
    text = event.decode("utf-8", "replace")
    return prompt.replace(_ARGUMENTS, text) if _ARGUMENTS in prompt else f"{prompt}\n\n{text}"


def parse_hook_judgement(event: HookEvent, action: ModelPromptHookAction, answer: str) -> HookDecision:
    """Parse `{"ok": …, "reason": …}` in a model's answer. Raises `InvalidHookOutputError`."""
    start, end = answer.find("{"), answer.rfind("}")
    try:
        judgement = convert_to_schema(decode_json(answer[start : end + 1].encode()), _HookJudgementSchema)
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidHookOutputError(f"the model answered without a judgement: {answer[:200]!r}") from error
    if judgement.ok or (judgement.impossible and event in STOP_EVENTS):
        return NO_DECISION
    reason = truncate_hook_text(judgement.reason or "the model gave no reason")
    ends_turn = not action.continues_on_block and event not in STOP_EVENTS
    return HookDecision(blocked=reason, stop=reason if ends_turn else None)


def fill_mcp_hook_input(action: McpToolHookAction, event: Mapping[str, Any]) -> McpToolHookAction:
    """Return the action with fields of the event in place of `${…}`."""
    return replace(action, input={name: _fill_fields(value, event) for name, value in action.input.items()})


def _fill_fields(value: Any, event: Mapping[str, Any]) -> Any:
    match value:
        case str():
            return _FIELD.sub(lambda match: _format_event_field(match[1], event), value)
        case Mapping():
            return {key: _fill_fields(each, event) for key, each in value.items()}
        case list() | tuple():
            return [_fill_fields(each, event) for each in value]
    return value


def _format_event_field(name: str, event: Mapping[str, Any]) -> str:
    value: Any = event
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if value is None:
        return ""
    return value if isinstance(value, str) else encode_json(value).decode()
