"""Permission rules: `Tool` or `Tool(pattern)`, as settings and flags write them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.errors import SettingsError
from shoal.core.messages import ToolUse
from shoal.core.permissions import Mode
from shoal.policy.patterns import BadPattern, path_expression
from shoal.wire.field_values import Wrong, pieces

READ_TOOLS = frozenset({"Read", "Glob", "Grep"})
EDIT_TOOLS = frozenset({"Write", "Edit", "NotebookEdit"})
FILE_TOOLS = READ_TOOLS | EDIT_TOOLS
ACCEPTING: tuple[Mode, ...] = ("acceptEdits", "delegate")
"""Modes in which project files are changed without asking."""
_PATH_ARGUMENTS = {"NotebookEdit": "notebook_path", "Glob": "path", "Grep": "path"}
"""Argument that holds the path, if it is not `file_path`."""
AGENT_TOOLS = frozenset({"Agent", "Task"})
_RULE = re.compile(r"([A-Za-z_][\w-]*|mcp__[\w-]+__\*|\*)(?:\((.*)\))?", re.DOTALL)
_DOMAIN = re.compile(r"domain:(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|domain:\[[0-9a-fA-F:.]+\]")


def path_of(call: ToolUse) -> str:
    """Return the path in a file tool's call; without one, the working directory."""
    given = call.input.get(_PATH_ARGUMENTS.get(call.name, "file_path"))
    return given if isinstance(given, str) else "."


class Rule(Struct, frozen=True, kw_only=True):
    tool: str
    pattern: str | None = None
    source: str = ""
    """Location for display: a file and its line, a flag, or this session."""

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"

    def names(self, tool: str) -> bool:
        """Return True if it applies to the tool; `Edit(…)` and `Read(…)` apply to all tools of their kind."""
        if self.tool in (tool, "*"):
            return True
        if self.tool.startswith("mcp__"):
            server = self.tool.removesuffix("__*")
            return server.count("__") == 1 and tool.startswith(f"{server}__")
        if self.tool in AGENT_TOOLS:
            return tool in AGENT_TOOLS
        if self.pattern is None:
            return False
        return (self.tool == "Edit" and tool in EDIT_TOOLS) or (self.tool == "Read" and tool in READ_TOOLS)


class Standing(Struct, frozen=True, kw_only=True):
    """Rules and directories from settings and flags, in force before any question is answered."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    directories: tuple[Path, ...] = ()


class StandingRules(Protocol):
    """Rules that may change while a session runs."""

    def current(self, *, fresh: bool) -> Standing:
        """Return the same object while nothing has changed; `fresh` means that something may just have."""
        ...


class AlsoDenied:
    """Rules of a session plus the tools that one agent's definition denies."""

    def __init__(self, rules: StandingRules, denied: tuple[Rule, ...]) -> None:
        self._rules = rules
        self._denied = denied
        self._known: tuple[Standing, Standing] | None = None

    def current(self, *, fresh: bool) -> Standing:
        theirs = self._rules.current(fresh=fresh)
        if self._known is None or self._known[0] is not theirs:
            self._known = theirs, replace(theirs, deny=(*theirs.deny, *self._denied))
        return self._known[1]


class Fixed(Struct, frozen=True):
    """Rules that never change."""

    standing: Standing

    def current(self, *, fresh: bool) -> Standing:
        return self.standing


def parse_rule(text: str, source: str = "") -> Rule:
    """Parse a rule. Raises `SettingsError` that names the rule, its location and the problem."""
    match = _RULE.fullmatch(text.strip())
    place = f" ({source})" if source else ""
    if match is None:
        raise SettingsError(f"{text!r} is not a permission rule{place}: write Tool or Tool(pattern).")
    rule = Rule(tool=match[1], pattern=match[2], source=source)
    wrong = None if rule.pattern is None else _wrong(rule.tool, rule.pattern)
    if wrong is not None:
        raise SettingsError(f"The rule {text!r}{place} has a bad pattern: {wrong}.")
    return rule


def _wrong(tool: str, pattern: str) -> str | None:
    if not pattern.strip():
        return f"it is empty; for every use of the tool write {tool}"
    if "\0" in pattern:
        return "it holds a NUL byte"
    if tool == "*" or tool.startswith("mcp__"):
        return f"{tool} takes none"
    if tool in READ_TOOLS | EDIT_TOOLS:
        try:
            path_expression(pattern, "/")
        except BadPattern as problem:
            return str(problem)
    if tool == "Bash" and ":*" in pattern.removesuffix(":*"):
        return "`:*` stands at its end alone, as in Bash(git log:*)"
    if tool == "Bash" and not pattern.removesuffix(":*").strip():
        return "no command stands before `:*`; for every command write Bash"
    if tool == "WebFetch" and _DOMAIN.fullmatch(pattern) is None:
        return "write WebFetch(domain:example.com), or domain:*.example.com for what is below it"
    return None


def contradiction(standing: Standing) -> tuple[Rule, Rule] | None:
    """Return two rules of one source with the same text and opposite decisions."""
    said: dict[tuple[str, str], tuple[int, Rule]] = {}
    for strength, rules in enumerate((standing.allow, standing.ask, standing.deny)):
        for rule in rules:
            before = said.setdefault((str(rule), rule.source.rpartition(":")[0]), (strength, rule))
            if before[0] != strength:
                return before[1], rule
    return None


def split_rules(text: str) -> list[str]:
    """Split a flag's value into rules at commas or blanks outside parentheses."""
    try:
        return list(pieces(text, blanks=True))
    except Wrong:
        # A rule without half of its pattern would apply to every use of the tool.
        told = f"The parentheses in {text!r} do not match: write Tool or Tool(pattern)."
        raise SettingsError(told) from None
