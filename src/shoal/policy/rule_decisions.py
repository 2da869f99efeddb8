"""Decisions of rules about the parts of a shell command."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.permissions.permission_changes import RuleBehavior
from shoal.core.permissions.permission_decisions import (
    AllowDecision,
    AskDecision,
    DenyDecision,
    PermissionDecision,
)
from shoal.core.text.filenames import escape_filename
from shoal.policy.command_rules import ShellCommandRule
from shoal.policy.permission_rules import ToolPermissionRule
from shoal.policy.policy_texts import format_policy_notice
from shoal.policy.rule_tables import PermissionRuleTables
from shoal.policy.shell.command_analysis import ShellCommandAnalysis, SimpleShellCommand


class ShellCommandPartDecision(Struct, frozen=True, kw_only=True):
    part: SimpleShellCommand
    verdict: RuleBehavior
    reason: str
    rule: ToolPermissionRule | None = None
    guarded: bool = False
    """True if it writes a protected file, which no rule could cover."""


def match_forbidding_rule(
    verdict: RuleBehavior, rule: ShellCommandRule, command: str, analysis: ShellCommandAnalysis
) -> ShellCommandPartDecision | None:
    doubt: ShellCommandPartDecision | None = None
    for part in analysis.parts:
        match rule.match_as_forbidding_rule(part):
            case "yes":
                return build_rule_decision(verdict, part, rule.rule)
            case "maybe" if doubt is None:
                doubt = build_rule_decision("ask", part, rule.rule, is_doubtful=True)
            case _:
                pass
    if rule.is_exact_command(command):
        return build_rule_decision(verdict, SimpleShellCommand(text=command, argv=None), rule.rule)
    if doubt is None and not analysis.is_complete:
        doubt = build_rule_decision(
            "ask", SimpleShellCommand(text=command, argv=None), rule.rule, is_doubtful=True
        )
    return doubt


def find_any_file_rule(command: str, tables: PermissionRuleTables) -> ShellCommandPartDecision | None:
    """Return a doubt about the first rule that forbids files; the command may read or write any of them."""
    for table in (tables.shell_read_rules, tables.shell_write_rules):
        rule = table.deny.first_patterned_rule or table.ask.first_patterned_rule
        if rule is not None:
            part = SimpleShellCommand(text=command, argv=None)
            return build_rule_decision("ask", part, rule, is_doubtful=True)
    return None


def build_rule_decision(
    verdict: RuleBehavior, part: SimpleShellCommand, rule: ToolPermissionRule, *, is_doubtful: bool = False
) -> ShellCommandPartDecision:
    if verdict == "allow":
        reason = f"the rule {rule} ({rule.source})"
    elif verdict == "deny":
        reason = format_policy_notice("rule_forbids", rule=rule, source=rule.source)
    elif is_doubtful:
        command = escape_filename(part.text[:80])
        reason = format_policy_notice("rule_may_apply", rule=rule, source=rule.source, command=command)
    else:
        reason = format_policy_notice("rule_asks", rule=rule, source=rule.source)
    return ShellCommandPartDecision(part=part, verdict=verdict, reason=reason, rule=rule)


def to_permission_decision(decision: ShellCommandPartDecision) -> PermissionDecision:
    rule = None if decision.rule is None else str(decision.rule)
    source = None if decision.rule is None else decision.rule.source
    match decision.verdict:
        case "allow":
            return AllowDecision(decision.reason, rule, source)
        case "ask":
            return AskDecision(decision.reason, rule, source)
        case "deny":
            return DenyDecision(decision.reason, rule, source)
