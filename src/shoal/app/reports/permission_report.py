"""Report on the permissions that a session in this directory would have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.settings.settings import Settings, load_settings
from shoal.core.names import TOOL_NAMES
from shoal.core.permissions.permission_changes import PermissionMode, RuleBehavior
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_rules import PermissionRuleSet
from shoal.policy.rule_names import refuse_misspelled_rules
from shoal.wire.json_line_numbers import find_json_list_entry_lines
from shoal.workspaces.local_workspace import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class PermissionRuleReportRow(Struct, frozen=True, kw_only=True):
    behavior: RuleBehavior
    rule: str
    source: str


class PermissionReport(Struct, frozen=True, kw_only=True):
    """Permissions of an agent and the origin of each part."""

    agent: str
    mode: PermissionMode
    mode_source: str
    rules: tuple[PermissionRuleReportRow, ...]
    directories: tuple[str, ...]
    """Directories it may work in: the project first."""
    may_skip: bool
    left_out: tuple[PermissionRuleReportRow, ...]
    """Allow rules in the project's files that have no effect because nobody trusted them."""


def create_permission_engine(
    settings: Settings, cwd: Path, *, mode: PermissionMode | None = None, refuses_unknown_tools: bool = True
) -> PermissionEngine:
    rules = settings.permissions.rules
    for rule in (*rules.deny, *rules.ask) if refuses_unknown_tools else ():
        # A session would not start, so there is nothing to report.
        refuse_misspelled_rules(rule.source, (str(rule),), TOOL_NAMES)
    workspace = LocalWorkspace(cwd, granted=rules.directories, user=settings.user)
    return PermissionEngine(
        workspace,
        mode=mode or settings.permissions.entries.default_mode or "default",
        rules=settings.permissions.rules,
        home=settings.home,
    )


def load_project_settings(cwd: Path, *, given: str | None = None) -> Settings:
    return load_settings(cwd=cwd.resolve(), given=given)


def build_lead_permission_report(settings: Settings, cwd: Path) -> PermissionReport:
    """Build the report for the lead, the only agent that exists before a run."""
    permissions = create_permission_engine(settings, cwd)
    return PermissionReport(
        agent="lead",
        mode=permissions.mode,
        mode_source=settings.find_setting_origin("permissions.defaultMode"),
        rules=tuple(_iter_rule_rows(permissions.get_active_rules())),
        directories=tuple(map(str, (cwd.resolve(), *settings.permissions.rules.directories))),
        may_skip=permissions.can_bypass,
        left_out=list_untrusted_permission_rules(settings),
    )


def build_session_permission_report(session: Session) -> PermissionReport:
    """Build the report for the lead of a running session."""
    runtime = session.runtime
    return PermissionReport(
        agent="lead",
        mode=runtime.lead.permissions.mode,
        mode_source="this session",
        rules=tuple(_iter_rule_rows(runtime.lead.permissions.get_active_rules())),
        directories=tuple(
            map(str, (runtime.lead.workspace.root, *runtime.settings.permissions.rules.directories))
        ),
        may_skip=runtime.lead.permissions.can_bypass,
        left_out=list_untrusted_permission_rules(runtime.settings),
    )


def list_untrusted_permission_rules(settings: Settings) -> tuple[PermissionRuleReportRow, ...]:
    found: list[PermissionRuleReportRow] = []
    for escalation in settings.findings.untrusted_escalations:
        if escalation.keys == ("permissions", "allow"):
            lines = find_json_list_entry_lines(escalation.document.text, escalation.keys)
            found += (
                PermissionRuleReportRow(
                    behavior="allow", rule=str(rule), source=f"{escalation.document.name}:{line}"
                )
                for rule, line in zip(escalation.value, lines[-len(escalation.value) :], strict=True)
            )
    return tuple(found)


def _iter_rule_rows(rule_set: PermissionRuleSet) -> Iterator[PermissionRuleReportRow]:
    by_behavior: tuple[tuple[RuleBehavior, tuple[object, ...]], ...] = (
        ("deny", rule_set.deny),
        ("ask", rule_set.ask),
        ("allow", rule_set.allow),
    )
    for behavior, rules in by_behavior:
        for rule in rules:
            yield PermissionRuleReportRow(
                behavior=behavior, rule=str(rule), source=getattr(rule, "source", "")
            )
