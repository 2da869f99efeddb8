"""Parsers for the output of a hook and a model's judgment, and the input of prompt and MCP tool hooks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from shoal.core.extensions.hooks import (
    HOOK_EVENTS,
    MAX_HOOK_SECONDS,
    NO_DECISION,
    STOP_EVENTS,
    UNSTOPPABLE_EVENTS,
    HookDecision,
    HookEvent,
    McpToolHookAction,
    ModelPromptHookAction,
)
from shoal.core.permissions.permission_changes import PermissionSuggestion, RuleBehavior
from shoal.wire.foreign_json import convert_to_schema
from shoal.wire.json_codec import decode_json, encode_json
from shoal.wire.question_codec import parse_permission_suggestions

MAX_TEXT_LENGTH = 20_000
"""Maximum number of characters of hook text that enter a conversation."""
_TEXT_CONTEXT_EVENTS = ("UserPromptSubmit", "SessionStart", "Setup")
_NO_REASON = "it gave no reason"
_MAX_LINE_LENGTH = 4096
_ASYNC_KEYS = ("async", "asyncTimeout")
"""Keys that ask Shoal not to wait for the program; they do not affect a decision."""
_CALL_EVENTS: tuple[HookEvent, ...] = ("PreToolUse", "PermissionRequest")
_NARROWING_KEYS: Mapping[str, tuple[str, ...]] = {
    "permissionDecision": _CALL_EVENTS,
    "updatedInput": _CALL_EVENTS,
    "decision": ("PermissionRequest",),
    "updatedToolOutput": ("PostToolUse",),
}
"""Events at which each key of `hookSpecificOutput` has an effect."""
_NARROWING_FIELDS: Mapping[str, Collection[str]] = {
    "decision": _CALL_EVENTS,
    "updated_input": _CALL_EVENTS,
    "updated_output": ("PostToolUse",),
    "stop": [event for event in HOOK_EVENTS if event not in UNSTOPPABLE_EVENTS],
}
"""Events at which each field of a `HookDecision` has an effect."""
_ARGUMENTS = "$ARGUMENTS"
_FIELD = re.compile(r"\$\{([\w.-]+)\}")


class InvalidHookOutputError(Exception):
    """Hook output that cannot be parsed."""


class _HookPermissionAnswerSchema(Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer from a PermissionRequest hook. It replaces a person's answer."""

    behavior: Literal["allow", "deny"]
    """The answer."""
    updated_input: dict[str, Any] | None = None
    """The input to run the call with."""
    updated_permissions: list[Any] | None = None
    """With `allow`: changes to rules, directories or the mode, as in a person's answer."""
    message: str | None = None
    """Reason for a denial; the model reads it."""
    interrupt: bool = False
    """With `deny`: the agent's turn ends here."""


class _EventSpecificHookOutputSchema(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields for some events only."""

    hook_event_name: str | None = None
    """Event that the hook answers; it must be the one that the hook received."""
    permission_decision: RuleBehavior | Literal["defer"] | None = None
    """`PreToolUse`: `deny` overrides `ask`, which overrides `allow`. It cannot allow a call that a rule
    denies. `defer` denies the call."""
    permission_decision_reason: str | None = None
    """Reason for the decision."""
    updated_input: dict[str, Any] | None = None
    """`PreToolUse`: replaces the input of the call, which is then checked like any other."""
    additional_context: str | None = None
    """Context for the model: after a result, with a prompt, at an agent's start, or for a summary."""
    decision: _HookPermissionAnswerSchema | None = None
    """`PermissionRequest`: an answer that replaces a person's answer."""
    updated_tool_output: Any = None
    """`PostToolUse`: replaces the result that the model reads."""
    retry: bool = False
    """`PermissionDenied`: `true` tells the model that it may make the call again."""
    initial_user_message: str | None = None
    """`SessionStart`: the first message of the session, as if the user had sent it before the prompt."""
    session_title: str | None = None
    """`SessionStart`: names the session, unless a flag names it."""
    worktree_path: str | None = None
    """`WorktreeCreate`: the directory to use."""


class _HookOutputSchema(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields for every event."""

    go_on: bool = msgspec.field(name="continue", default=True)
    """`false`: the agent's turn ends here."""
    stop_reason: str | None = None
    """Reason why the turn ends."""
    suppress_output: bool = False
    """True to leave the hook's output out of the journal."""
    system_message: str | None = None
    """Message for the user."""
    decision: Literal["approve", "block"] | UnsetType | None = UNSET
    """`block` blocks the action. For a call, `approve` is the same as `permissionDecision` `allow`."""
    reason: str | None = None
    """Reason for the block; the model reads it."""
    hook_specific_output: _EventSpecificHookOutputSchema | None = None
    """Event-specific fields, listed below."""


class HookContinueInBackgroundRequest(Struct, frozen=True, kw_only=True):
    """A hook requests to continue in the background."""

    seconds: float | None = None
    """Seconds that it may continue; None if not given."""


def parse_async_hook_request(line: str) -> HookContinueInBackgroundRequest | None:
    """Parse the first output line of a hook: `{"async": true, "asyncTimeout": milliseconds}`."""
    if '"async"' not in line or len(line) > _MAX_LINE_LENGTH:
        return None
    try:
        raw = decode_json(line.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None
    if not isinstance(raw, Mapping) or raw.get("async") is not True:
        return None
    timeout = raw.get("asyncTimeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        return HookContinueInBackgroundRequest()
    return HookContinueInBackgroundRequest(seconds=min(timeout, 1000 * MAX_HOOK_SECONDS) / 1000)


def parse_hook_output_text(event: HookEvent, text: str) -> HookDecision:
    """Parse the output of a successful hook: JSON decides, other text is context at some events.

    Raises `InvalidHookOutputError` for a JSON object that does not match the schema.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            raw = decode_json(stripped.encode("utf-8", "surrogatepass"))
        except ValueError as error:
            if event not in _TEXT_CONTEXT_EVENTS and event != "WorktreeCreate":
                raise InvalidHookOutputError(
                    f"its output looks like JSON but is not valid: {error}"
                ) from error
        else:
            return parse_hook_output_json(event, raw)
    return HookDecision(
        context=truncate_hook_text(stripped) if event in _TEXT_CONTEXT_EVENTS else "", output=stripped
    )


def parse_hook_function_text(event: HookEvent, text: str) -> HookDecision:
    """Parse the text of a hook function; raise `InvalidHookOutputError` if text has no meaning."""
    if text.strip().startswith("{"):
        try:
            raw = decode_json(text.encode("utf-8", "surrogatepass"))
        except ValueError:
            pass  # context that begins with a brace
        else:
            return parse_hook_output_json(event, raw, strict=True)
    if text.strip() and event not in _TEXT_CONTEXT_EVENTS and event != "WorktreeCreate":
        raise InvalidHookOutputError(
            f"it returned the text {text[:80]!r}, which has no effect for {event}; return None, a "
            'HookDecision, or an object such as {"decision": "block", "reason": "…"}'
        )
    return parse_hook_output_text(event, text)


def check_hook_decision(event: HookEvent, decision: HookDecision, *, strict: bool = False) -> HookDecision:
    """Return the decision of a hook function.

    Raises `InvalidHookOutputError` for fields of wrong types, and with `strict` for decisions that have no
    effect at the event.
    """
    try:
        checked = msgspec.convert(msgspec.structs.asdict(decision), HookDecision)
    except msgspec.ValidationError as error:
        raise InvalidHookOutputError(f"it returned a HookDecision with a wrong field: {error}") from error
    if strict:
        for field, events in _NARROWING_FIELDS.items():
            if getattr(checked, field) is not None and event not in events:
                raise _build_no_effect_error(field, event)
    return checked


def _build_no_effect_error(name: str, event: HookEvent) -> InvalidHookOutputError:
    return InvalidHookOutputError(f"its answer has {name!r}, which has no effect for {event}")


def parse_hook_output_json(event: HookEvent, raw: Any, *, strict: bool = False) -> HookDecision:
    """Parse a JSON object, or the return value of a hook function; raise `InvalidHookOutputError`.

    `strict` refuses unknown keys, which a command may write for other programs.
    """
    if not isinstance(raw, Mapping):
        raise InvalidHookOutputError(f"it returned {type(raw).__name__} instead of an object")
    if strict:
        _refuse_unknown_keys(raw, _HookOutputSchema)
        specific_raw = raw.get("hookSpecificOutput")
        if isinstance(specific_raw, Mapping):
            _refuse_unknown_keys(specific_raw, _EventSpecificHookOutputSchema)
            for key, events in _NARROWING_KEYS.items():
                if specific_raw.get(key) is not None and event not in events:
                    raise _build_no_effect_error(key, event)
        _refuse_reason_without_decision(raw)
        if raw.get("continue") is False and event in UNSTOPPABLE_EVENTS:
            raise _build_no_effect_error("continue", event)
    try:
        output = convert_to_schema(raw, _HookOutputSchema)
    except msgspec.ValidationError as error:
        raise InvalidHookOutputError(f"its answer has an unknown format: {error}") from error
    specific = output.hook_specific_output or _EventSpecificHookOutputSchema()
    if specific.hook_event_name not in (None, event):
        raise InvalidHookOutputError(f"it answered for {specific.hook_event_name}, but the event was {event}")
    decision, reason = _extract_hook_permission(event, output, specific)
    updated = specific.updated_input
    if specific.decision is not None and updated is None:
        updated = specific.decision.updated_input
    return HookDecision(
        blocked=truncate_hook_text(output.reason or _NO_REASON) if output.decision == "block" else None,
        decision=decision,
        decision_reason=truncate_hook_text(reason),
        updated_input=updated,
        context=truncate_hook_text(specific.additional_context or ""),
        stop=_extract_hook_stop_reason(output, specific),
        message=truncate_hook_text(output.system_message or ""),
        suppressed=output.suppress_output,
        output=specific.worktree_path or "",
        updated_output=_extract_updated_output(event, specific.updated_tool_output),
        permission_updates=_extract_permission_updates(specific.decision),
        retry=specific.retry,
        initial_message=_get_start_text(event, specific.initial_user_message),
        session_title=_get_start_text(event, specific.session_title),
    )


def _refuse_reason_without_decision(raw: Mapping[Any, Any]) -> None:
    """Raise `InvalidHookOutputError` for a reason that belongs to no decision: one was probably meant."""
    specific = raw.get("hookSpecificOutput")
    keys = set(specific if isinstance(specific, Mapping) else ())
    decides = raw.get("decision") is not None or raw.get("continue") is False
    if decides or not keys.isdisjoint({"permissionDecision", "decision"}):
        return
    for key in ("reason", "stopReason", "permissionDecisionReason"):
        if raw.get(key) or key in keys:
            raise InvalidHookOutputError(f"its answer has {key!r}, but no decision")


def _extract_permission_updates(
    answer: _HookPermissionAnswerSchema | None,
) -> tuple[PermissionSuggestion, ...]:
    if answer is None or answer.behavior != "allow" or not answer.updated_permissions:
        return ()
    updates = parse_permission_suggestions(answer.updated_permissions)
    if len(updates) != len(answer.updated_permissions):
        raise InvalidHookOutputError("its answer has a permission change in an unknown format")
    return updates


def _get_start_text(event: HookEvent, text: str | None) -> str:
    return truncate_hook_text((text or "").strip()) if event == "SessionStart" else ""


def _extract_updated_output(event: HookEvent, value: Any) -> str | None:
    if value is None or event != "PostToolUse":
        return None
    return value if isinstance(value, str) else encode_json(value).decode()


def _refuse_unknown_keys(raw: Mapping[Any, Any], schema: type[Struct]) -> None:
    known = (*schema.__struct_encode_fields__, *_ASYNC_KEYS)
    for key in raw:
        if key not in known:
            close = get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InvalidHookOutputError(f"its answer has the unknown key {key!r}{hint}")


def _extract_hook_permission(
    event: HookEvent, output: _HookOutputSchema, specific: _EventSpecificHookOutputSchema
) -> tuple[RuleBehavior | None, str]:
    if specific.permission_decision == "defer":
        return (
            "deny",
            specific.permission_decision_reason
            or "a hook deferred the decision, which Shoal does not support",
        )
    if specific.permission_decision is not None:
        return specific.permission_decision, specific.permission_decision_reason or ""
    if specific.decision is not None:
        return specific.decision.behavior, specific.decision.message or ""
    if output.decision == "approve" and event in ("PreToolUse", "PermissionRequest"):
        return "allow", output.reason or ""
    return None, ""


def _extract_hook_stop_reason(
    output: _HookOutputSchema, specific: _EventSpecificHookOutputSchema
) -> str | None:
    if not output.go_on:
        return truncate_hook_text(output.stop_reason or _NO_REASON)
    answer = specific.decision
    if answer is not None and answer.interrupt and answer.behavior == "deny":
        return truncate_hook_text(answer.message or _NO_REASON)
    return None


def truncate_hook_text(text: str) -> str:
    if len(text) <= MAX_TEXT_LENGTH:
        return text
    return f"{text[:MAX_TEXT_LENGTH]} [… cut, {len(text):,} characters in total]"


class _HookJudgementSchema(Struct, frozen=True, kw_only=True):
    ok: bool
    reason: str | None = None
    impossible: bool = False
    """True if an agent that is about to stop cannot do the missing work."""


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
        raise InvalidHookOutputError(f"the model answered without a judgment: {answer[:200]!r}") from error
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
