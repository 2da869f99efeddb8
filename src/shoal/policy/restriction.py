"""Restrictions of one agent beyond the session's rules: tools of its definition, its own worktree."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.core.decisions import Deny
from shoal.core.errors import WorkspaceError
from shoal.core.filenames import shown
from shoal.core.messages import ToolUse
from shoal.policy.commands import CommandRule
from shoal.policy.paths import Reach
from shoal.policy.rules import AGENT_TOOLS, FILE_TOOLS, Rule, parse_rule, path_of
from shoal.policy.shell.analysis import analysed
from shoal.policy.tables import PathRules, fits

SOURCE = "its definition"


class Narrowed(Struct, frozen=True, kw_only=True):
    """Tool restrictions as the definitions state them; stored so that the agent can be resumed."""

    only: tuple[tuple[str, ...], ...] = ()
    never: tuple[str, ...] = ()


class Narrowing(Struct, frozen=True, kw_only=True):
    """Restrictions of an agent, which also apply to every agent that it starts."""

    only: tuple[tuple[Rule, ...], ...] = ()
    """Tools of its definition and of its ancestors."""
    main: Path | None = None
    """The main checkout, for an agent that works in a worktree of it."""

    def further(self, tools: Sequence[str], main: Path | None) -> Narrowing:
        """Return these restrictions and more. Raises `SettingsError` for an invalid tool entry."""
        rules = tuple(parse_rule(tool, SOURCE) for tool in tools)
        return Narrowing(
            only=(*self.only, rules) if rules else self.only,
            main=self.main if main is None else Path(os.path.realpath(main)),
        )


class Guard:
    """Checks calls against restrictions. `is_own_file` tells if a real path is stored for this agent."""

    def __init__(
        self, narrowing: Narrowing, reach: Reach, roots: Sequence[str], is_own: Callable[[str], bool]
    ) -> None:
        self._reach = reach
        self._is_own = is_own
        self._restrictions = tuple(Restriction(rules, roots) for rules in narrowing.only)
        self._confinement = None if narrowing.main is None else Confinement(narrowing.main, reach)

    def refusal(self, call: ToolUse) -> Deny | None:
        path = ""
        if call.name in FILE_TOOLS:
            try:
                path, _ = self._reach.real(path_of(call))
            except WorkspaceError:
                return None  # the rules refuse it
            if self._is_own(path):
                return None
            if self._confinement is not None and (refused := self._confinement.refusal(path)) is not None:
                return refused
        refusals = (restriction.refusal(call, path) for restriction in self._restrictions)
        return next((refused for refused in refusals if refused is not None), None)


class Restriction:
    """Restricts tools to patterns: `Bash(git:*)` in a definition limits Bash to that and other Bash entries.

    A tool listed without a pattern, or not at all, is not restricted here.
    """

    def __init__(self, rules: Sequence[Rule], roots: Sequence[str]) -> None:
        self._rules = rules
        self._roots = roots
        self._fitting: dict[str, tuple[tuple[Rule, ...], Callable[[ToolUse, str], bool]]] = {}

    def refusal(self, call: ToolUse, path: str) -> Deny | None:
        """Check a call; `path` is the real path in a file tool's call."""
        known = self._fitting.get(call.name)
        if known is None:
            about = self._about(call.name)
            known = self._fitting[call.name] = about, self._judge(call.name, about)
        about, fitting = known
        if not about or fitting(call, path):
            return None
        listed = ", ".join(map(str, about))
        return Deny(f"{SOURCE} gives it {call.name} only as {listed}.", listed, SOURCE)

    def _about(self, tool: str) -> tuple[Rule, ...]:
        for rule in self._rules:
            named = rule.tool == tool or {rule.tool, tool} <= AGENT_TOOLS
            if named and rule.pattern is None:
                return ()
        return tuple(rule for rule in self._rules if rule.pattern is not None and rule.names(tool))

    def _judge(self, tool: str, about: tuple[Rule, ...]) -> Callable[[ToolUse, str], bool]:
        if tool == "Bash":
            rules = tuple(map(CommandRule, about))
            return lambda call, _: _covered(call.input.get("command"), rules)
        if tool in FILE_TOOLS:
            table = PathRules(about, self._roots)
            return lambda _, path: table.named(path) is not None
        return lambda call, _: any(
            fits(rule.tool, rule.pattern or "", call.input, forbids=False) for rule in about
        )


class Confinement:
    """Keeps an agent with its own worktree out of the main checkout and of all other files."""

    def __init__(self, main: Path, reach: Reach) -> None:
        self._main = str(main)
        self._reach = reach

    def refusal(self, real: str) -> Deny | None:
        root = self._reach.root
        if f"{real}/".startswith(f"{root}/"):
            return None
        if f"{real}/".startswith(f"{self._main}/"):
            own = root + real[len(self._main) :]
            return Deny(
                f"{shown(real)} is in the main checkout, and this agent works in a worktree of its own. "
                f"Use {shown(own)} instead."
            )
        if self._reach.holds(real):
            return None
        return Deny(f"{shown(real)} is outside {shown(root)}, where alone this agent works.")


def _covered(command: object, rules: tuple[CommandRule, ...]) -> bool:
    """Return True if every simple command in it matches a rule, or the whole command is one literally."""
    if not isinstance(command, str):
        return True  # refused for that elsewhere
    if any(rule.is_whole(command) for rule in rules):
        return True
    analysis = analysed(command)
    return analysis.trouble is None and all(
        part.argv == () or any(rule.covers(part) for rule in rules) for part in analysis.parts
    )
