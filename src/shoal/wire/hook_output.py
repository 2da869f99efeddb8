"""What a hook answers → a verdict."""

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
"""Characters of a text that enter a conversation."""
_PLAIN_IS_CONTEXT = ("UserPromptSubmit", "SessionStart")
_NO_REASON = "it gave no reason"
_LONGEST_LINE = 4096


class BadAnswer(Exception):
    """An answer that cannot be understood."""


class _Answer(Struct, frozen=True, kw_only=True, rename="camel"):
    """Of a PermissionRequest hook, as to a person's question."""

    behavior: Literal["allow", "deny"]
    """The answer."""
    updated_input: dict[str, Any] | None = None
    """The input to run the call with."""
    message: str | None = None
    """Why not; the model reads it."""
    interrupt: bool = False
    """With `deny`: the agent's turn ends here."""


class _Specific(Struct, frozen=True, kw_only=True, rename="camel"):
    """What only some events have."""

    hook_event_name: str | None = None
    """The event it answers; another one than the hook was told of is an error."""
    permission_decision: Behavior | None = None
    """`PreToolUse`: `deny` beats `ask` beats `allow`; what a rule denies stays denied."""
    permission_decision_reason: str | None = None
    """Why so."""
    updated_input: dict[str, Any] | None = None
    """`PreToolUse`: replaces the input of the call, which is then judged like any other."""
    additional_context: str | None = None
    """For the model: behind a result, with a prompt, at an agent's start, or for a summary."""
    decision: _Answer | None = None
    """`PermissionRequest`: the answer in the person's place."""
    worktree_path: str | None = None
    """`WorktreeCreate`: the directory to use."""


class _Said(Struct, frozen=True, kw_only=True, rename="camel"):
    """What every event has."""

    go_on: bool = msgspec.field(name="continue", default=True)
    """`false`: the agent's turn ends here."""
    stop_reason: str | None = None
    """Why it ends."""
    suppress_output: bool = False
    """Whether what the hook wrote is left out of the journal."""
    system_message: str | None = None
    """For the person."""
    decision: Literal["approve", "block"] | UnsetType | None = UNSET
    """`block`: it must not be. `approve`, for a call: as `permissionDecision` `allow`."""
    reason: str | None = None
    """Why it is blocked; the model reads it."""
    hook_specific_output: _Specific | None = None
    """What only some events have; the fields are below."""


class LetGo(Struct, frozen=True, kw_only=True):
    """A hook asks that nobody waits for it any longer."""

    seconds: float | None = None
    """How long it may go on; None where it does not say."""


def let_go(line: str) -> LetGo | None:
    """Of the first line that a hook writes: `{"async": true, "asyncTimeout": milliseconds}`."""
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
    """Of what a hook that ended well has written: JSON decides, other text is context at some events.

    Raises `BadAnswer` for a JSON object of another shape.
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
    """Of a JSON object, or what a function gives back in its shape. Raises `BadAnswer`."""
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
