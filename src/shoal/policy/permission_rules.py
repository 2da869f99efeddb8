"""Permission rules: `Tool` or `Tool(pattern)`, as settings and flags write them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.errors import SettingsError, WorkspaceError
from shoal.core.names import FORMER_TOOL_NAMES, TOOL_NAMES, translate_former_tool
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.text.absolute_globs import split_absolute_glob
from shoal.policy.path_patterns import InvalidPathPatternError, convert_path_pattern_to_regex
from shoal.policy.policy_texts import format_policy_notice
from shoal.wire.field_parsers import InvalidFrontMatterFieldError, split_comma_separated_text

READ_TOOLS = frozenset({"Read", "Glob", "Grep"})
EDIT_TOOLS = frozenset({"Write", "Edit", "NotebookEdit"})
FILE_TOOLS = READ_TOOLS | EDIT_TOOLS
EDIT_ACCEPTING_MODES: tuple[PermissionMode, ...] = ("acceptEdits", "delegate")
"""Modes in which project files are changed without asking."""
_PATH_ARGUMENTS = {"NotebookEdit": "notebook_path", "Glob": "path", "Grep": "path"}
"""Argument that holds the path, if it is not `file_path`."""
AGENT_TOOLS = frozenset({"Agent", "Task"})
_RULE = re.compile(r"([A-Za-z_*][\w*-]*)(?:\((.*)\))?", re.DOTALL)
_DOMAIN = re.compile(r"domain:[A-Za-z0-9*]([A-Za-z0-9.*-]*[A-Za-z0-9*])?|domain:\[[0-9a-fA-F:.]+\]")
_APPROVABLE_GLOB = re.compile(r"mcp__(?!_)[\w-]+?__[\w*-]+")


_PARAMETER = re.compile(r"([a-z][A-Za-z0-9_]*):(.+)", re.DOTALL)
_BASH_PARAMETERS = frozenset({"run_in_background", "timeout", "description", "dangerouslyDisableSandbox"})
_MAIN_FIELD_TOOLS = FILE_TOOLS | {"WebFetch", "Skill", "SendMessage"}
"""Tools whose patterns are about their main field only."""
_MAIN_FIELDS = {"Bash": ("command",), **dict.fromkeys(FILE_TOOLS, ("file_path", "notebook_path", "path"))}
"""Fields that a pattern must not name: it would match only commands or paths that begin with the name."""


def find_rule_parameter(tool: str, pattern: str) -> tuple[str, str] | None:
    """Return the parameter and the pattern for its value that a rule names, or None."""
    match = _PARAMETER.fullmatch(pattern)
    if match is None or "*" in tool or tool in _MAIN_FIELD_TOOLS:
        return None
    if tool == "Bash" and match[1] not in _BASH_PARAMETERS:
        return None
    return match[1], match[2]


def get_file_tool_call_path(call: ToolUseBlock) -> str:
    """Return the path in a file tool's call; without one, the working directory.

    Raises `WorkspaceError` for a path that is not a string.
    """
    if call.name == "Glob" and isinstance(pattern := call.input.get("pattern"), str) and pattern[:1] == "/":
        return split_absolute_glob(pattern)[0]
    argument = _PATH_ARGUMENTS.get(call.name, "file_path")
    path = call.input.get(argument)
    if path is not None and not isinstance(path, str):
        raise WorkspaceError(format_policy_notice("path_type", argument=argument, tool=call.name))
    return path or "."


class ToolPermissionRule(Struct, frozen=True, kw_only=True):
    tool: str
    pattern: str | None = None
    source: str = ""
    """Location for display: a file and its line, a flag, or this session."""
    anchor: str | None = None
    """Directory that an allow pattern with one leading slash starts at; None for the project."""
    former: ToolPermissionRule | None = None
    """The rule as it was written, if it names a tool by a former name."""

    def __str__(self) -> str:
        if self.former is not None:
            return str(self.former)
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"

    @property
    def parameter(self) -> tuple[str, str] | None:
        """Parameter that it is about and a pattern, as in `Agent(model:opus)`; None for most rules."""
        return None if self.pattern is None else find_rule_parameter(self.tool, self.pattern)

    def applies_to_tool(self, tool: str) -> bool:
        """Return True if it applies to the tool; `Edit(…)` and `Read(…)` apply to all tools of their kind."""
        if self.tool in (tool, "*"):
            return True
        if "*" in self.tool:
            names = AGENT_TOOLS if tool in AGENT_TOOLS else (tool,)
            is_match = any(fnmatchcase(name, self.tool) for name in names)
            return is_match or tool in _find_formerly_named_tools(self.tool)
        if self.tool.startswith("mcp__"):
            return self.tool.count("__") == 1 and tool.startswith(f"{self.tool}__")
        if self.tool in AGENT_TOOLS:
            return tool in AGENT_TOOLS
        if self.former is not None and self.former.tool == tool:
            return True  # a tool of the program with this name
        if self.pattern is None:
            return False
        return (self.tool == "Edit" and tool in EDIT_TOOLS) or (self.tool == "Read" and tool in READ_TOOLS)

    @property
    def approves_nothing(self) -> bool:
        """True for a rule that an allow list cannot contain: a name with `*`, unless it names tools of one
        MCP server, or files of a tool for notebooks, which would be any files here."""
        if self.former is not None and self.former.tool == "NotebookRead":
            return self.former.pattern is not None
        return "*" in self.tool and _APPROVABLE_GLOB.fullmatch(self.tool) is None


class PermissionRuleSet(Struct, frozen=True, kw_only=True):
    """Rules and directories from settings and flags, active before any question is answered."""

    allow: tuple[ToolPermissionRule, ...] = ()
    ask: tuple[ToolPermissionRule, ...] = ()
    deny: tuple[ToolPermissionRule, ...] = ()
    directories: tuple[Path, ...] = ()
    is_closed: bool = False
    """True if no other allow rules apply: no answers, flags, skills or hooks can add any."""


class PermissionRuleProvider(Protocol):
    """Rules that may change while a session runs."""

    def load_rules(self, *, fresh: bool) -> PermissionRuleSet:
        """Return the same object while nothing has changed; `fresh` means that something may just have."""
        ...


class AgentDenialRuleProvider:
    """Rules of a session plus the tools that one agent's definition denies."""

    def __init__(self, rules: PermissionRuleProvider, denied: tuple[ToolPermissionRule, ...]) -> None:
        self._rules = rules
        self._denied = denied
        self._cached: tuple[PermissionRuleSet, PermissionRuleSet] | None = None

    def load_rules(self, *, fresh: bool) -> PermissionRuleSet:
        session_rules = self._rules.load_rules(fresh=fresh)
        if self._cached is None or self._cached[0] is not session_rules:
            self._cached = session_rules, replace(session_rules, deny=(*session_rules.deny, *self._denied))
        return self._cached[1]


class FixedPermissionRuleProvider(Struct, frozen=True):
    """Rules that never change."""

    rule_set: PermissionRuleSet

    def load_rules(self, *, fresh: bool) -> PermissionRuleSet:
        return self.rule_set


def parse_permission_rule(text: str, source: str = "") -> ToolPermissionRule:
    """Parse a rule. Raises `SettingsError` that names the rule, its location and the problem."""
    match = _RULE.fullmatch(text.strip())
    location = f" ({source})" if source else ""
    if match is None:
        raise SettingsError(f"{text!r} is not a permission rule{location}. Write Tool or Tool(pattern).")
    rule = ToolPermissionRule(tool=match[1], pattern=match[2], source=source)
    if rule.tool in FORMER_TOOL_NAMES and rule.tool not in AGENT_TOOLS:
        tool, pattern = translate_former_tool(rule.tool, rule.pattern)
        rule = replace(rule, tool=tool, pattern=pattern, former=rule)
    if rule.tool.startswith("mcp__") and rule.tool.endswith("__"):
        server = rule.tool.rstrip("_")
        raise SettingsError(
            f"The rule {text!r}{location} names no tool. Write {server} for all tools of the server."
        )
    problem = None if rule.pattern is None else _find_rule_pattern_error(rule.tool, rule.pattern)
    if problem is not None:
        raise SettingsError(f"The rule {text!r}{location} has an invalid pattern: {problem}.")
    return rule


@lru_cache(maxsize=256)
def _find_formerly_named_tools(pattern: str) -> frozenset[str]:
    """Return the tools whose former names match, unless a current name does: that one is meant then."""
    if any(fnmatchcase(name, pattern) for name in TOOL_NAMES):
        return frozenset()
    return frozenset(current for former, current in FORMER_TOOL_NAMES.items() if fnmatchcase(former, pattern))


def _find_rule_pattern_error(tool: str, pattern: str) -> str | None:
    if not pattern.strip():
        return f"it is empty; to match every use of the tool, write {tool}"
    if "\0" in pattern:
        return "it contains a NUL byte"
    if find_rule_parameter(tool, pattern) is None:
        return _find_main_pattern_error(tool, pattern)
    return None


def _find_main_pattern_error(tool: str, pattern: str) -> str | None:
    if "*" in tool or tool.startswith("mcp__"):
        return f"{tool} takes none"
    field, _, value = pattern.partition(":")
    if field in _MAIN_FIELDS.get(tool, ()) and value != "*":
        return f"a pattern is about the {field} anyway; write {tool}({value.strip() or '…'})"
    if tool in READ_TOOLS | EDIT_TOOLS:
        try:
            convert_path_pattern_to_regex(pattern, "/", "/")
        except InvalidPathPatternError as problem:
            return str(problem)
    if tool == "Bash" and ":*" in pattern.removesuffix(":*"):
        return "`:*` is allowed only at the end, as in Bash(git log:*)"
    if tool == "Bash" and not pattern.removesuffix(":*").strip():
        return "there is no command before `:*`; to match every command, write Bash"
    if tool == "WebFetch" and _DOMAIN.fullmatch(pattern) is None:
        return "write WebFetch(domain:example.com), or domain:*.example.com for its subdomains"
    return None


def split_permission_rule_list(text: str) -> list[str]:
    """Split a flag's value into rules at commas or blanks outside parentheses."""
    try:
        return list(split_comma_separated_text(text, split_whitespace=True))
    except InvalidFrontMatterFieldError:
        # A rule without half of its pattern would apply to every use of the tool.
        message = f"The parentheses in {text!r} do not match. Write Tool or Tool(pattern)."
        raise SettingsError(message) from None
