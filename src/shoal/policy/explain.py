"""Explanation of the permission decision about one call, as a value for people and programs."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.decisions import Allow, Ask, Decision, Deny
from shoal.core.identity import Identity
from shoal.core.ids import SessionId
from shoal.core.messages import ToolUse
from shoal.core.permissions import Behavior, Mode, Suggestion
from shoal.policy.permissions import RulePermissions
from shoal.policy.shell_calls import PartJudged


class PartExplained(Struct, frozen=True, kw_only=True):
    """Decision about one simple command of a shell command."""

    text: str
    decision: Behavior
    reason: str
    rule: str | None = None
    source: str | None = None
    via: tuple[str, ...] = ()


class Explanation(Struct, frozen=True, kw_only=True):
    tool: str
    mode: Mode
    decision: Behavior
    reason: str
    rule: str | None = None
    source: str | None = None
    parts: tuple[PartExplained, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()


def explained(permissions: RulePermissions, call: ToolUse) -> Explanation:
    decision = permissions.decide(call, None, Identity(session=SessionId("none")))
    command = call.input.get("command")
    judged: tuple[PartJudged, ...] = ()
    if call.name == "Bash" and isinstance(command, str):
        judged = permissions.judged_parts(command)
    return Explanation(
        tool=call.name,
        mode=permissions.mode,
        decision=behavior_of(decision),
        reason=decision.reason,
        rule=decision.rule,
        source=decision.source,
        parts=tuple(map(_part, judged)),
        suggestions=decision.suggestions if isinstance(decision, Ask) else (),
    )


def behavior_of(decision: Decision) -> Behavior:
    match decision:
        case Allow():
            return "allow"
        case Ask():
            return "ask"
        case Deny():
            return "deny"


def _part(judged: PartJudged) -> PartExplained:
    return PartExplained(
        text=judged.part.text,
        decision=judged.verdict,
        reason=judged.reason,
        rule=None if judged.rule is None else str(judged.rule),
        source=None if judged.rule is None else judged.rule.source,
        via=judged.part.via,
    )
