"""The permission engine: what the rules and the mode say about one tool call."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shoal.core.decisions import Allow, Ask, Decision, Deny, Mode
from shoal.core.errors import WorkspaceError
from shoal.core.identity import Identity
from shoal.core.messages import ToolUse
from shoal.core.ports import Workspace
from shoal.core.questions import Allowed, Answer
from shoal.core.tools import Tool
from shoal.policy.rules import (
    DOMAIN,
    Rule,
    host_of,
    rule_for_command,
    rule_for_path,
    rule_for_site,
    rule_forbids_command,
)

READ_TOOLS = frozenset({"Read", "Glob", "Grep"})
EDIT_TOOLS = frozenset({"Write", "Edit", "NotebookEdit"})
HARMLESS = frozenset(
    {
        "TodoWrite",
        "AskUserQuestion",
        "BashOutput",
        "KillShell",
        "TaskCreate",
        "TaskGet",
        "TaskList",
        "TaskUpdate",
    }
)
OBEYED = frozenset({".claude", ".git"})
"""Directories whose files other programs, and the next session, act on: settings, hooks."""
_PATH_ARGUMENTS = ("file_path", "notebook_path", "path")


class RulePermissions:
    """Deny beats ask beats allow, wherever a rule comes from; then the mode decides."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        mode: Mode = "default",
        allow: Iterable[Rule] = (),
        ask: Iterable[Rule] = (),
        deny: Iterable[Rule] = (),
        readable: Iterable[Path] = (),
    ) -> None:
        self._workspace = workspace
        self._readable = tuple(readable)
        self.mode: Mode = mode
        self.allow = list(allow)
        self.ask = list(ask)
        self.deny = list(deny)

    def decide(self, call: ToolUse, tool: Tool, agent: Identity) -> Decision:
        path = self._path(call)
        if rule := self._first(self.deny, call, path, forbids=True):
            return Deny(f"the rule {rule} ({rule.source}) forbids it.")
        if rule := self._first(self.ask, call, path, forbids=True):
            # Answered each time: what a person answers for the session does not beat their own rule.
            return self._asked(f"the rule {rule} ({rule.source}) asks first")
        if rule := self._first(self.allow, call, path, forbids=False):
            return Allow(f"the rule {rule} ({rule.source})")
        return self._by_mode(call, path, tool)

    def remember(self, call: ToolUse, answer: Answer) -> None:
        rule = self._like(call, self._path(call))
        if isinstance(answer, Allowed) and answer.remember != "once" and rule is not None:
            self.allow.append(rule)

    def _like(self, call: ToolUse, path: Path | None) -> Rule | None:
        """What "for this session" means: this command, this site, files of the project, or this one file."""
        pattern: str | None = None
        if call.name == "Bash":
            pattern = str(call.input.get("command", ""))
            if pattern.endswith(":*"):
                return None  # as a pattern it would mean more than as a command
        elif call.name == "WebFetch":
            host = host_of(str(call.input.get("url", "")))
            if not host:
                return None
            pattern = f"{DOMAIN}{host}"
        elif call.name in READ_TOOLS | EDIT_TOOLS:
            if path is None:
                return None
            inside = path.is_relative_to(self._workspace.root)
            pattern = "/**" if inside else f"/{path}"
            if not inside and any(character in "*?" for character in pattern):
                return None
        return Rule(tool=call.name, pattern=pattern, source="this session")

    def _by_mode(self, call: ToolUse, path: Path | None, tool: Tool) -> Decision:
        if self.mode == "bypassPermissions":
            return Allow("permissions are skipped")
        if call.name in HARMLESS:
            return Allow("it changes nothing outside the work of the agents")
        inside = path is None or self._workspace.contains(path)
        if call.name in READ_TOOLS and (inside or self._is_own_file(path)):
            return Allow("it reads inside the working directories")
        if self.mode == "plan" and not tool.reads_only:
            return Deny("in plan mode nothing is changed: read, and present a plan.")
        if self.mode in ("acceptEdits", "delegate") and call.name in EDIT_TOOLS and inside:
            return self._edited(path)
        rule = self._like(call, path)
        if not inside:
            return self._asked(f"{path} is outside the working directories", rule)
        if call.name in EDIT_TOOLS:
            return self._asked("it changes a file", rule)
        return self._asked("it is not known to be safe", rule)

    def _edited(self, path: Path | None) -> Decision:
        if path is not None and self._is_obeyed(path):
            return self._asked("what is written there is obeyed by other programs")
        return Allow("edits in the working directories are accepted")

    def _asked(self, reason: str, rule: Rule | None = None) -> Decision:
        if self.mode == "dontAsk":
            return Deny(f"{reason}, and this session does not ask.")
        return Ask(reason, "" if rule is None else str(rule))

    def _is_obeyed(self, path: Path) -> bool:
        root = self._workspace.root
        # The project itself may lie below such a directory, as worktrees do.
        inside = path.relative_to(root) if path.is_relative_to(root) else path
        return not OBEYED.isdisjoint(inside.parts)

    def _is_own_file(self, path: Path | None) -> bool:
        """Results kept for the agent itself lie outside the project and are still its own."""
        return path is not None and any(path.is_relative_to(place) for place in self._readable)

    def _path(self, call: ToolUse) -> Path | None:
        if call.name not in READ_TOOLS | EDIT_TOOLS:
            return None
        for key in _PATH_ARGUMENTS:
            value = call.input.get(key)
            if isinstance(value, str):
                try:
                    return Path(self._workspace.locate(value)).resolve()
                except (WorkspaceError, OSError):
                    return None
        return None

    def _first(self, rules: list[Rule], call: ToolUse, path: Path | None, *, forbids: bool) -> Rule | None:
        return next((rule for rule in rules if self._speaks_of(rule, call, path, forbids=forbids)), None)

    def _speaks_of(self, rule: Rule, call: ToolUse, path: Path | None, *, forbids: bool) -> bool:
        if rule.tool not in (call.name, "*"):
            return False
        if call.name == "Bash":
            command = str(call.input.get("command", ""))
            return (rule_forbids_command if forbids else rule_for_command)(rule, command)
        if path is not None:
            return rule_for_path(rule, path, self._workspace.root)
        if call.name == "WebFetch":
            return rule_for_site(rule, str(call.input.get("url", "")), forbids=forbids)
        return rule.pattern is None or forbids
