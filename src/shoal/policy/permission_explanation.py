"""Explanation of the permission decision about one call, as a value for people and programs."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.agents.identity import AgentIdentity
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.ids import SessionId
from shoal.core.permissions.permission_changes import PermissionMode, PermissionSuggestion, RuleBehavior
from shoal.core.permissions.permission_decisions import (
    AllowDecision,
    AskDecision,
    DenyDecision,
    PermissionDecision,
)
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.rule_decisions import ShellCommandPartDecision


class ShellCommandPartExplanation(Struct, frozen=True, kw_only=True):
    """Decision about one simple command of a shell command."""

    text: str
    decision: RuleBehavior
    reason: str
    rule: str | None = None
    source: str | None = None
    via: tuple[str, ...] = ()


class PermissionExplanation(Struct, frozen=True, kw_only=True):
    tool: str
    mode: PermissionMode
    decision: RuleBehavior
    reason: str
    rule: str | None = None
    source: str | None = None
    parts: tuple[ShellCommandPartExplanation, ...] = ()
    suggestions: tuple[PermissionSuggestion, ...] = ()


def explain_permission_decision(permissions: PermissionEngine, call: ToolUseBlock) -> PermissionExplanation:
    decision = permissions.decide_tool_call(call, None, AgentIdentity(session=SessionId("none")))
    command = call.input.get("command")
    part_decisions: tuple[ShellCommandPartDecision, ...] = ()
    if call.name == "Bash" and isinstance(command, str):
        part_decisions = permissions.decide_command_parts(command)
    return PermissionExplanation(
        tool=call.name,
        mode=permissions.mode,
        decision=get_decision_behavior(decision),
        reason=decision.reason,
        rule=decision.rule,
        source=decision.source,
        parts=tuple(map(_explain_simple_command, part_decisions)),
        suggestions=decision.suggestions if isinstance(decision, AskDecision) else (),
    )


def get_decision_behavior(decision: PermissionDecision) -> RuleBehavior:
    match decision:
        case AllowDecision():
            return "allow"
        case AskDecision():
            return "ask"
        case DenyDecision():
            return "deny"


def _explain_simple_command(part_decision: ShellCommandPartDecision) -> ShellCommandPartExplanation:
    return ShellCommandPartExplanation(
        text=part_decision.part.text,
        decision=part_decision.verdict,
        reason=part_decision.reason,
        rule=None if part_decision.rule is None else str(part_decision.rule),
        source=None if part_decision.rule is None else part_decision.rule.source,
        via=part_decision.part.via,
    )
