"""Restrictions of one agent beyond the session's rules: tools of its definition, its own worktree."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.errors import WorkspaceError
from shoal.core.permissions.permission_decisions import DenyDecision
from shoal.core.text.filenames import escape_filename
from shoal.policy.command_rules import ShellCommandRule
from shoal.policy.path_resolver import PathResolver
from shoal.policy.permission_rules import (
    AGENT_TOOLS,
    FILE_TOOLS,
    ToolPermissionRule,
    get_file_tool_call_path,
    parse_permission_rule,
)
from shoal.policy.policy_texts import format_policy_notice
from shoal.policy.rule_tables import FilePathPermissionRules, is_tool_argument_pattern_match
from shoal.policy.shell.command_analysis import analyze_shell_command

DEFINITION_SOURCE = "its definition"


class StoredToolRestrictions(Struct, frozen=True, kw_only=True):
    """Tool restrictions as the definitions state them; stored so that the agent can be resumed."""

    only: tuple[tuple[str, ...], ...] = ()
    never: tuple[str, ...] = ()


class AgentRestrictions(Struct, frozen=True, kw_only=True):
    """Restrictions of an agent, which also apply to every agent that it starts."""

    only: tuple[tuple[ToolPermissionRule, ...], ...] = ()
    """Tools of its definition and of its ancestors."""
    main_checkout: Path | None = None
    """The main checkout, for an agent that works in a worktree of it."""

    def add_restrictions(self, tools: Sequence[str], main_checkout: Path | None) -> AgentRestrictions:
        """Return these restrictions with others added. Raises `SettingsError` for an invalid tool entry."""
        if not tools and main_checkout is None:
            return self
        rules = tuple(parse_permission_rule(tool, DEFINITION_SOURCE) for tool in tools)
        return AgentRestrictions(
            only=(*self.only, rules) if rules else self.only,
            main_checkout=self.main_checkout
            if main_checkout is None
            else Path(os.path.realpath(main_checkout)),
        )


NO_RESTRICTIONS = AgentRestrictions()


class AgentRestrictionGuard:
    """Checks calls against restrictions. `is_own_file` returns True if a real path is stored for this
    agent."""

    def __init__(
        self,
        restrictions: AgentRestrictions,
        paths: PathResolver,
        roots: Sequence[str],
        is_own_file: Callable[[str], bool],
    ) -> None:
        self._paths = paths
        self._is_own_file = is_own_file
        self._restrictions = tuple(
            ToolPatternRestriction(rules, roots, paths.user.home) for rules in restrictions.only
        )
        self._confinement = (
            None
            if restrictions.main_checkout is None
            else WorktreeConfinement(restrictions.main_checkout, paths)
        )

    def check_tool_call(self, call: ToolUseBlock) -> DenyDecision | None:
        path = ""
        if call.name in FILE_TOOLS:
            try:
                path, _ = self._paths.resolve_path(get_file_tool_call_path(call))
            except WorkspaceError:
                return None  # the rules refuse it
            if self._is_own_file(path):
                return None
            if self._confinement is not None and (denial := self._confinement.check_path(path)) is not None:
                return denial
        refusals = (restriction.check_tool_call(call, path) for restriction in self._restrictions)
        return next((refused for refused in refusals if refused is not None), None)


class ToolPatternRestriction:
    """Restricts tools to patterns: `Bash(git:*)` in a definition limits Bash to that and other Bash entries.

    A tool listed without a pattern, or not at all, is not restricted here.
    """

    def __init__(self, rules: Sequence[ToolPermissionRule], roots: Sequence[str], home: str) -> None:
        self._rules = rules
        self._roots = roots
        self._home = home
        self._matchers: dict[
            str, tuple[tuple[ToolPermissionRule, ...], Callable[[ToolUseBlock, str], bool]]
        ] = {}

    def check_tool_call(self, call: ToolUseBlock, path: str) -> DenyDecision | None:
        """Check a call; `path` is the real path in a file tool's call."""
        cached = self._matchers.get(call.name)
        if cached is None:
            rules = self._select_tool_rules(call.name)
            cached = self._matchers[call.name] = rules, self._build_tool_call_matcher(call.name, rules)
        rules, matches = cached
        if not rules or matches(call, path):
            return None
        rule_list = ", ".join(map(str, rules))
        return DenyDecision(
            format_policy_notice(
                "only_these_calls", source=DEFINITION_SOURCE, tool=call.name, rules=rule_list
            ),
            rule_list,
            DEFINITION_SOURCE,
        )

    def _select_tool_rules(self, tool: str) -> tuple[ToolPermissionRule, ...]:
        for rule in self._rules:
            is_about_tool = rule.tool == tool or {rule.tool, tool} <= AGENT_TOOLS
            if is_about_tool and rule.pattern is None:
                return ()
        return tuple(rule for rule in self._rules if rule.pattern is not None and rule.applies_to_tool(tool))

    def _build_tool_call_matcher(
        self, tool: str, tool_rules: tuple[ToolPermissionRule, ...]
    ) -> Callable[[ToolUseBlock, str], bool]:
        if tool == "Bash":
            rules = tuple(map(ShellCommandRule, tool_rules))
            return lambda call, _: _is_command_covered_by_rules(call.input.get("command"), rules, self._home)
        if tool in FILE_TOOLS:
            table = FilePathPermissionRules(tool_rules, self._roots, self._home)
            return lambda _, path: table.find_match(path) is not None
        return lambda call, _: any(
            is_tool_argument_pattern_match(rule.tool, rule.pattern or "", call.input, forbids=False)
            for rule in tool_rules
        )


class WorktreeConfinement:
    """Keeps an agent with its own worktree out of the main checkout and of all other files."""

    def __init__(self, main_checkout: Path, paths: PathResolver) -> None:
        self._main_checkout = str(main_checkout)
        self._paths = paths

    def check_path(self, real: str) -> DenyDecision | None:
        root = self._paths.root
        if f"{real}/".startswith(f"{root}/"):
            return None
        if f"{real}/".startswith(f"{self._main_checkout}/"):
            own_path = root + real[len(self._main_checkout) :]
            return DenyDecision(
                format_policy_notice(
                    "main_checkout", path=escape_filename(real), own_path=escape_filename(own_path)
                )
            )
        if self._paths.is_inside_workspace(real):
            return None
        return DenyDecision(
            format_policy_notice("outside_worktree", path=escape_filename(real), root=escape_filename(root))
        )


def _is_command_covered_by_rules(command: object, rules: tuple[ShellCommandRule, ...], home: str) -> bool:
    """Return True if every simple command in it matches a rule, or the whole command is one literally."""
    if not isinstance(command, str):
        return True  # refused for that elsewhere
    if any(rule.is_exact_command(command) for rule in rules):
        return True
    analysis = analyze_shell_command(command, home)
    return analysis.trouble is None and all(
        (part.argv == () and not part.writes) or any(rule.covers_command(part) for rule in rules)
        for part in analysis.parts
    )
