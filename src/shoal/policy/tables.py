"""Rules indexed for fast lookup: per tool, in order of strength."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from urllib.parse import urlsplit

from shoal.core.agents import OTHER_MACHINE, OTHER_SESSION
from shoal.core.skills import named_alike
from shoal.policy.commands import CommandRules
from shoal.policy.patterns import path_expression
from shoal.policy.rules import EDIT_TOOLS, READ_TOOLS, Rule, Standing
from shoal.policy.withheld import Withheld


class PathRules:
    """Rules of one strength for one file tool; usually a single match shows that no rule applies."""

    def __init__(self, rules: Iterable[Rule], roots: Sequence[str]) -> None:
        self.bare: Rule | None = None
        self._each: list[tuple[re.Pattern[str], Rule]] = []
        for rule in rules:
            if rule.pattern is None:
                self.bare = self.bare or rule
            else:
                expressions = dict.fromkeys(path_expression(rule.pattern, root) for root in roots)
                self._each.append((_compiled("|".join(f"(?:{each})" for each in expressions)), rule))
        self._any = _compiled("|".join(f"(?:{each.pattern})" for each, _ in self._each))
        self.empty = not self._each and self.bare is None
        self.named = lru_cache(maxsize=1024)(self._named)
        """Returns the first rule whose pattern matches; cached by path text, since few paths recur often."""

    def _named(self, path: str) -> Rule | None:
        if not self._each or self._any.fullmatch(path) is None:
            return None
        return next(rule for pattern, rule in self._each if pattern.fullmatch(path))

    @property
    def any_named(self) -> Rule | None:
        return self._each[0][1] if self._each else None

    def first(self, path: str) -> Rule | None:
        return self.bare or self.named(path)


class FileTable:
    """Rules about one tool that reads or changes a file."""

    def __init__(self, standing: Standing, names: frozenset[str], roots: Sequence[str]) -> None:
        def table(rules: Sequence[Rule], roots: Sequence[str]) -> PathRules:
            return PathRules([rule for rule in rules if any(rule.names(name) for name in names)], roots)

        # Project files stay forbidden to an agent that works elsewhere.
        self.deny, self.ask = table(standing.deny, roots), table(standing.ask, roots)
        self.allow = table(standing.allow, roots[:1])
        self.forbids_nothing = self.deny.empty and self.ask.empty


class CommandTable:
    """Rules about shell commands."""

    def __init__(self, standing: Standing) -> None:
        def bare(rules: Sequence[Rule]) -> Rule | None:
            return next((rule for rule in rules if rule.names("Bash") and rule.pattern is None), None)

        def named(rules: Sequence[Rule]) -> CommandRules:
            return CommandRules(rule for rule in rules if rule.names("Bash") and rule.pattern is not None)

        self.bare_deny, self.bare_ask, self.bare_allow = map(
            bare, (standing.deny, standing.ask, standing.allow)
        )
        self.deny, self.ask, self.allow = map(named, (standing.deny, standing.ask, standing.allow))


class Tables:
    """All rules in force. Patterns are relative to `roots`: the agent's own, then those of its parents."""

    def __init__(self, standing: Standing, roots: Sequence[str]) -> None:
        self.standing = standing
        self._roots = roots
        self._files: dict[str, FileTable] = {}

    def file(self, tool: str) -> FileTable:
        table = self._files.get(tool)
        if table is None:
            table = self._files[tool] = FileTable(self.standing, frozenset({tool}), self._roots)
        return table

    @cached_property
    def shell_reads(self) -> FileTable:
        """Rules about any tool that reads, applied to files that a command reads."""
        return FileTable(self._patterned(), READ_TOOLS, self._roots)

    @cached_property
    def shell_writes(self) -> FileTable:
        return FileTable(self._patterned(), EDIT_TOOLS, self._roots)

    @cached_property
    def withheld(self) -> Withheld:
        """Files that no tool may read without asking, for commands that search directories."""
        kept = self._patterned()
        return Withheld(_about_reading((*kept.deny, *kept.ask)), self._roots)

    @cached_property
    def denied(self) -> Withheld:
        return Withheld(_about_reading(self._patterned().deny), self._roots)

    @cached_property
    def commands(self) -> CommandTable:
        return CommandTable(self.standing)

    def other(
        self, rules: Sequence[Rule], tool: str, arguments: dict[str, object], *, forbids: bool
    ) -> Rule | None:
        """Return the first rule that matches a call of a tool without files or commands."""
        for rule in rules:
            if rule.names(tool) and (
                rule.pattern is None or fits(rule.tool, rule.pattern, arguments, forbids=forbids)
            ):
                return rule
        return None

    def _patterned(self) -> Standing:
        def kept(rules: Sequence[Rule]) -> tuple[Rule, ...]:
            return tuple(rule for rule in rules if rule.pattern is not None)

        all_of = self.standing
        return Standing(allow=kept(all_of.allow), ask=kept(all_of.ask), deny=kept(all_of.deny))


def _about_reading(rules: Iterable[Rule]) -> list[Rule]:
    return [rule for rule in rules if any(map(rule.names, READ_TOOLS))]


def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.DOTALL)


def fits(tool: str, pattern: str, arguments: dict[str, object], *, forbids: bool) -> bool:
    if tool == "WebFetch":
        return _of_domain(pattern.removeprefix("domain:").lower(), arguments.get("url"), forbids=forbids)
    if tool in ("Agent", "Task"):
        return (arguments.get("subagent_type") or "general-purpose") == pattern
    if tool == "Skill":
        name = str(arguments.get("skill"))
        # A forbidden skill is forbidden under its short name too.
        return name == pattern or (forbids and named_alike(name, pattern))
    if tool == "SendMessage":
        return _is_for(_addressee(arguments), pattern, forbids=forbids)
    # Unknown kind of pattern: in doubt a forbidding rule applies and an allowing rule does not.
    return forbids


def _addressee(arguments: dict[str, object]) -> str:
    """Return the recipient of a message; `type` marks the older form."""
    to = str(arguments.get("to") or "")
    match arguments.get("type"):
        case None:
            return to
        case "broadcast":
            return "*"
        case "shutdown_response" | "plan_approval_response":
            return str(arguments.get("recipient") or to or "team-lead")
        case _:
            return str(arguments.get("recipient") or to)


def _is_for(to: str, pattern: str, *, forbids: bool) -> bool:
    if fnmatchcase(to, pattern):
        return True
    if to == "*":
        # Everyone in the team, which includes the forbidden recipient.
        return forbids and not pattern.startswith((OTHER_SESSION, OTHER_MACHINE))
    # A prefix of an id may name a session; in doubt it is the forbidden one.
    return forbids and to.startswith(OTHER_SESSION) and pattern.startswith(to)


def _of_domain(domain: str, url: object, *, forbids: bool) -> bool:
    try:
        host = (urlsplit(str(url)).hostname or "").rstrip(".").lower()
    except ValueError:
        return forbids
    below = host.endswith(f".{domain.removeprefix('*.')}")
    if domain.startswith("*."):
        return below
    # An allow rule means this host only; a forbidding rule includes its subdomains.
    return host == domain.strip("[]") or (forbids and (below or not host))
