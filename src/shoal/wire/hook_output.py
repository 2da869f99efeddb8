"""Parser for the output of a hook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from shoal.core.hooks import LONGEST_SECONDS, HookEvent, Verdict
from shoal.core.permissions import Behavior
from shoal.wire.content import load
from shoal.wire.foreign import converted

LIMIT = 20_000
"""Characters of hook text that enter a conversation."""
_PLAIN_IS_CONTEXT = ("UserPromptSubmit", "SessionStart")
_NO_REASON = "it gave no reason"
_LONGEST_LINE = 4096


class BadAnswer(Exception):
    """Hook output that cannot be parsed."""


class _Answer(Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer of a PermissionRequest hook, like a person's answer."""

    behavior: Literal["allow", "deny"]
    """The answer."""
    updated_input: dict[str, Any] | None = None
    """The input to run the call with."""
    message: str | None = None
    """Reason for a denial; the model reads it."""
    interrupt: bool = False
    """With `deny`: the agent's turn ends here."""


class _Specific(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that only some events have."""

    hook_event_name: str | None = None
    """Event that the hook answers; an event other than the one it received is an error."""
    permission_decision: Behavior | None = None
    """`PreToolUse`: `deny` beats `ask` beats `allow`; what a rule denies stays denied."""
    permission_decision_reason: str | None = None
    """Reason for the decision."""
    updated_input: dict[str, Any] | None = None
    """`PreToolUse`: replaces the input of the call, which is then checked like any other."""
    additional_context: str | None = None
    """Context for the model: after a result, with a prompt, at an agent's start, or for a summary."""
    decision: _Answer | None = None
    """`PermissionRequest`: the answer in place of a person."""
    worktree_path: str | None = None
    """`WorktreeCreate`: the directory to use."""


class _Said(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that every event has."""

    go_on: bool = msgspec.field(name="continue", default=True)
    """`false`: the agent's turn ends here."""
    stop_reason: str | None = None
    """Reason why the turn ends."""
    suppress_output: bool = False
    """True to leave the hook's output out of the journal."""
    system_message: str | None = None
    """Message for the person."""
    decision: Literal["approve", "block"] | UnsetType | None = UNSET
    """`block` blocks the action. `approve`, for a call, equals `permissionDecision` `allow`."""
    reason: str | None = None
    """Reason for the block; the model reads it."""
    hook_specific_output: _Specific | None = None
    """Event-specific fields, listed below."""


class LetGo(Struct, frozen=True, kw_only=True):
    """A hook requests to continue in the background."""

    seconds: float | None = None
    """Seconds that it may continue; None if not given."""


def let_go(line: str) -> LetGo | None:
    """Parse the first output line of a hook: `{"async": true, "asyncTimeout": milliseconds}`."""
    if '"async"' not in line or len(line) > _LONGEST_LINE:
        return None
    try:
        raw = load(line.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None
    if not isinstance(raw, Mapping) or raw.get("async") is not True:
        return None
    given = raw.get("asyncTimeout")
    if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
        return LetGo()
    return LetGo(seconds=min(given, 1000 * LONGEST_SECONDS) / 1000)


def verdict_of_text(event: HookEvent, text: str) -> Verdict:
    """Parse the output of a successful hook: JSON decides, other text is context at some events.

    Raises `InvalidHookOutput` for a JSON object that does not match the schema.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            raw = load(stripped.encode("utf-8", "surrogatepass"))
        except ValueError as error:
            if event not in _PLAIN_IS_CONTEXT and event != "WorktreeCreate":
                raise BadAnswer(f"it wrote what begins like JSON and is none: {error}") from error
        else:
            return verdict_of(event, raw)
    return Verdict(context=cut(stripped) if event in _PLAIN_IS_CONTEXT else "", output=stripped)


def verdict_of(event: HookEvent, raw: Any) -> Verdict:
    """Parse a JSON object, or the return value of a hook function; raise `InvalidHookOutput`."""
    if not isinstance(raw, Mapping):
        raise BadAnswer(f"it answered {type(raw).__name__}, and an object is expected")
    try:
        said = converted(raw, _Said)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"it answered in a shape that is not known: {error}") from error
    specific = said.hook_specific_output or _Specific()
    if specific.hook_event_name not in (None, event):
        raise BadAnswer(f"it answered for {specific.hook_event_name}, and was told of {event}")
    decision, why = _decision(event, said, specific)
    updated = specific.updated_input
    if specific.decision is not None and updated is None:
        updated = specific.decision.updated_input
    return Verdict(
        blocked=cut(said.reason or _NO_REASON) if said.decision == "block" else None,
        decision=decision,
        decision_reason=cut(why),
        updated_input=updated,
        context=cut(specific.additional_context or ""),
        stop=_stop(said, specific),
        message=cut(said.system_message or ""),
        suppressed=said.suppress_output,
        output=specific.worktree_path or "",
    )


def _decision(event: HookEvent, said: _Said, specific: _Specific) -> tuple[Behavior | None, str]:
    if specific.permission_decision is not None:
        return specific.permission_decision, specific.permission_decision_reason or ""
    if specific.decision is not None:
        return specific.decision.behavior, specific.decision.message or ""
    if said.decision == "approve" and event in ("PreToolUse", "PermissionRequest"):
        return "allow", said.reason or ""
    return None, ""


def _stop(said: _Said, specific: _Specific) -> str | None:
    if not said.go_on:
        return cut(said.stop_reason or _NO_REASON)
    answer = specific.decision
    if answer is not None and answer.interrupt and answer.behavior == "deny":
        return cut(answer.message or _NO_REASON)
    return None


def cut(text: str) -> str:
    if len(text) <= LIMIT:
        return text
    return f"{text[:LIMIT]} [… cut, {len(text):,} characters in all]"
