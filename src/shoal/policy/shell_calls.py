"""Permission decisions about shell commands: each simple command and each file that it reads or writes."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from shoal.core.decisions import Allow, Ask, Decision, Deny
from shoal.core.errors import WorkspaceError
from shoal.core.filenames import shown
from shoal.core.permissions import Behavior, Mode
from shoal.policy import suggestions
from shoal.policy.commands import CommandRule, CommandRules
from shoal.policy.paths import Reach
from shoal.policy.rules import ACCEPTING, Rule
from shoal.policy.shell.analysis import UNKNOWN_PATH, Analysis, Part, analysed
from shoal.policy.tables import FileTable, Tables
from shoal.policy.wildcards import GLOB, TooMany
from shoal.policy.withheld import WORKING_DIRECTORY, before_glob, perhaps_named, swept

_TOO_WIDE = "its wildcards stand for more files than can be looked through"
KEYS = "that file holds keys of Shoal itself, which no tool may reach."
_OF_KEYS = ("keys", "credentials")
LONGEST = 100_000
"""Maximum characters; the system accepts hardly more in one argument, and nobody can review one that long."""
_ACCEPTED_WRITERS = frozenset({"mkdir", "touch"})
_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


class PartJudged(Struct, frozen=True, kw_only=True):
    part: Part
    verdict: Behavior
    reason: str
    rule: Rule | None = None
    guarded: bool = False
    """True if it writes a protected file, which no rule could cover."""


class _Unwritable(Struct, frozen=True):
    why: str
    guarded: bool = False


class ShellJudge:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._found: dict[str, tuple[str, bool]] = {}

    def judge(self, command: str, tables: Tables, mode: Mode) -> Decision:
        rules = tables.commands
        if "\0" in command:
            return Deny("the command holds a NUL byte, which no command line can.")
        if len(command) > LONGEST:
            return Deny(
                f"the command is {len(command):,} characters long, and at most {LONGEST:,} are taken. "
                "Write it into a file and run that."
            )
        if rules.bare_deny is not None:
            return _decision(_by_rule("deny", Part(text=command, argv=None), rules.bare_deny))
        skips = mode == "bypassPermissions"
        if skips and not self._may_forbid(tables) and not any(word in command for word in _OF_KEYS):
            return Allow("permissions are skipped")
        self._found.clear()
        analysis = analysed(command)
        if forbidding := self._forbidding(command, analysis, tables):
            return _decision(forbidding)
        if skips:
            return Allow("permissions are skipped")
        return self._permitting(command, analysis, tables, mode)

    def parts(self, command: str, tables: Tables, mode: Mode) -> tuple[PartJudged, ...]:
        if "\0" in command or len(command) > LONGEST:
            return ()
        self._found.clear()
        found = []
        for part in analysed(command).parts:
            alone = Analysis(parts=(part,))
            found.append(self._forbidding("", alone, tables) or self._permitted(part, tables, mode))
        return tuple(found)

    def _real(self, path: str) -> tuple[str, bool]:
        """Resolve each path once per command, because several rules check the same file."""
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._reach.real(path)
        return found

    def _may_forbid(self, tables: Tables) -> bool:
        rules = tables.commands
        if rules.deny.each or rules.ask.each or rules.bare_ask is not None:
            return True
        return not (tables.shell_reads.forbids_nothing and tables.shell_writes.forbids_nothing)

    def _forbidding(self, command: str, analysis: Analysis, tables: Tables) -> PartJudged | None:
        """Return the decision of a deny rule, or else an ask rule, about any part; a possible match asks."""
        doubt = self._touching_keys(analysis.parts)
        if doubt is not None and doubt.verdict == "deny":
            return doubt
        rules = tables.commands
        strengths: tuple[tuple[Behavior, CommandRules], ...] = (("deny", rules.deny), ("ask", rules.ask))
        for verdict, about in strengths:
            if about.silent_on(command, analysis):
                continue
            for rule in about.each:
                found = _concerned(verdict, rule, command, analysis)
                if found is not None and found.verdict == "deny":
                    return found
                doubt = doubt or found
        if rules.bare_ask is not None:
            doubt = doubt or _by_rule("ask", Part(text=command, argv=None), rules.bare_ask)
        if not (tables.shell_reads.forbids_nothing and tables.shell_writes.forbids_nothing):
            for part in analysis.parts:
                found = self._files_forbidden(part, tables)
                if found is not None and found.verdict == "deny":
                    return found
                doubt = doubt or found
        return doubt

    def _files_forbidden(self, part: Part, tables: Tables) -> PartJudged | None:
        doubt = None
        for paths, table in ((part.reads, tables.shell_reads), (part.writes, tables.shell_writes)):
            for path in paths:
                found = self._file_forbidden(part, path, table)
                if found is not None and found.verdict == "deny":
                    return found
                doubt = doubt or found
        return doubt or self._swept_forbidden(part, tables)

    def _swept_forbidden(self, part: Part, tables: Tables) -> PartJudged | None:
        """Check files it may read: in directories, by wildcards, through git, or as an unknown command."""
        table = tables.shell_reads
        if table.forbids_nothing:
            return None
        for directory in swept(part):
            rule = self._below(directory, tables)
            if rule is not None:
                told = f"the rule {rule} ({rule.source}) is about files there, which Grep would leave out"
                return PartJudged(part=part, verdict="ask", reason=told, rule=rule)
        for path in part.reads:
            if (rule := self._matching(path, table)) is not None:
                return _by_rule("ask", part, rule, may=True)
        for word in perhaps_named(part):
            # A path after a revision is relative to the top of the repository.
            for path in (word, f"{self._reach.root}/{word}"):
                found = self._file_forbidden(part, path, table) if word else None
                if found is not None and found.rule is not None:
                    return _by_rule("ask", part, found.rule, may=True)
        return None

    def _matching(self, path: str, table: FileTable) -> Rule | None:
        """Return the first rule that matches, or may match, a path that the wildcards expand to."""
        try:
            found = (table.deny.named(real) or table.ask.named(real) for real in self._reach.matching(path))
            return next(filter(None, found), None)
        except TooMany:
            return table.deny.any_named or table.ask.any_named

    def _touching_keys(self, parts: Iterable[Part]) -> PartJudged | None:
        doubt: PartJudged | None = None
        for part in parts:
            try:
                if any(map(self._names_key, (*part.reads, *part.writes))):
                    return PartJudged(part=part, verdict="deny", reason=KEYS)
            except TooMany:
                doubt = doubt or PartJudged(part=part, verdict="ask", reason=_TOO_WIDE)
        return doubt

    def _names_key(self, path: str) -> bool:
        try:
            real, _ = self._real(path)
        except WorkspaceError:
            return False
        if self._reach.is_key(real) or not GLOB.search(path):
            return self._reach.is_key(real)
        try:
            start, _ = self._real(before_glob(path))
        except WorkspaceError:
            return False
        # Expanding every pattern would cost more than everything else.
        above = self._reach.is_above_keys(start)
        return above and any(map(self._reach.is_key, self._reach.matching(path)))

    def _below(self, directory: str, tables: Tables) -> Rule | None:
        if directory == WORKING_DIRECTORY:
            return next(filter(None, map(tables.withheld.below, self._reach.directories)), None)
        try:
            return tables.withheld.below(self._real(directory)[0])
        except WorkspaceError:
            return None

    def _file_forbidden(self, part: Part, path: str, table: FileTable) -> PartJudged | None:
        if path.startswith(UNKNOWN_PATH):
            may = table.deny.any_named or table.ask.any_named
            return None if may is None else _by_rule("ask", part, may, may=True)
        try:
            real, _ = self._real(path)
        except WorkspaceError:
            return None
        if rule := table.deny.named(real):
            return _by_rule("deny", part, rule)
        rule = table.ask.named(real)
        return None if rule is None else _by_rule("ask", part, rule)

    def _permitting(self, command: str, analysis: Analysis, tables: Tables, mode: Mode) -> Decision:
        rules = tables.commands
        by_whole = rules.bare_allow or next(
            (each.rule for each in rules.allow.each if each.is_whole(command)), None
        )
        if by_whole is not None and mode != "plan":
            return self._by_whole(analysis, by_whole)
        if analysis.trouble is not None:
            return Ask(analysis.trouble, suggestions=suggestions.for_command(command, ()))
        judged = [self._permitted(part, tables, mode) for part in analysis.parts]
        open_ones = [each for each in judged if each.verdict != "allow"]
        if open_ones:
            first = open_ones[0]
            return Ask(
                first.reason,
                suggestions=()
                if any(each.guarded for each in open_ones)
                else suggestions.for_command(command, [each.part for each in open_ones]),
            )
        ruled = next((each for each in judged if each.rule is not None), None)
        return Allow("every part of it only reads") if ruled is None else _decision(ruled)

    def _by_whole(self, analysis: Analysis, rule: Rule) -> Decision:
        for part in analysis.parts:
            for path in part.writes:
                if path not in _NOWHERE and self._is_protected(path):
                    return Ask(_PROTECTED.format(shown(path)))
        return Allow(f"the rule {rule} ({rule.source})", str(rule), rule.source)

    def _permitted(self, part: Part, tables: Tables, mode: Mode) -> PartJudged:
        """Decide if a part may run: it only reads, or a rule covers it; the same applies to its files."""
        rule = None if mode == "plan" else _covering(tables.commands.allow.each, part)
        if rule is None and not part.read_only:
            writer = part.argv is not None and part.argv[0] in _ACCEPTED_WRITERS and not part.via
            if not (mode in ACCEPTING and writer and part.writes):
                return PartJudged(part=part, verdict="ask", reason=_why(part))
        for path in part.writes:
            if path not in _NOWHERE and (not_so := self._unwritable(part, path, rule, tables, mode)):
                return PartJudged(part=part, verdict="ask", reason=not_so.why, guarded=not_so.guarded)
        if rule is None:
            for path in part.reads:
                if path not in _NOWHERE and (why := self._unreadable(path, tables)):
                    return PartJudged(part=part, verdict="ask", reason=why)
            return PartJudged(part=part, verdict="allow", reason=part.why or "it only reads")
        return _by_rule("allow", part, rule)

    def _unwritable(
        self, part: Part, path: str, rule: Rule | None, tables: Tables, mode: Mode
    ) -> _Unwritable | None:
        try:
            real, _ = self._real(path)
        except WorkspaceError as refusal:
            return _Unwritable(str(refusal))
        if self._reach.is_guarded(real):
            return _Unwritable(_PROTECTED.format(shown(path)), guarded=True)
        if mode != "plan" and tables.shell_writes.allow.named(real):
            return None
        if not self._reach.holds(real):
            return _Unwritable(f"it writes {shown(path)}, outside the working directories")
        # A rule about `rm` covers the files that `rm` removes, not the target of a redirection.
        by_rule = rule is not None and path in part.changes and _is_argument(part, path)
        if by_rule or mode in ACCEPTING:
            return None
        return _Unwritable(f"it writes {shown(path)}")

    def _unreadable(self, path: str, tables: Tables) -> str | None:
        try:
            real, _ = self._real(path)
        except WorkspaceError as refusal:
            return str(refusal)
        if self._reach.holds(real) or tables.shell_reads.allow.named(real):
            return None
        return f"it reads {shown(path)}, outside the working directories"

    def _is_protected(self, path: str) -> bool:
        try:
            real, _ = self._real(path)
        except WorkspaceError:
            return True
        return self._reach.is_guarded(real)


_PROTECTED = "it writes {}, which is protected: it decides what programs do, or holds keys"


def _concerned(verdict: Behavior, rule: CommandRule, command: str, analysis: Analysis) -> PartJudged | None:
    doubt: PartJudged | None = None
    for part in analysis.parts:
        match rule.concerns(part):
            case "yes":
                return _by_rule(verdict, part, rule.rule)
            case "maybe" if doubt is None:
                doubt = _by_rule("ask", part, rule.rule, may=True)
            case _:
                pass
    if rule.is_whole(command):
        return _by_rule(verdict, Part(text=command, argv=None), rule.rule)
    if doubt is None and analysis.trouble is not None and rule.may_concern_text(command):
        doubt = _by_rule("ask", Part(text=command, argv=None), rule.rule, may=True)
    return doubt


def _covering(rules: tuple[CommandRule, ...], part: Part) -> Rule | None:
    for each in rules:
        if each.covers(part):
            return each.rule
    return None


def _by_rule(verdict: Behavior, part: Part, rule: Rule, *, may: bool = False) -> PartJudged:
    said = f"the rule {rule} ({rule.source})"
    reason = {
        "allow": said,
        "ask": f"{said} may be about it: {shown(part.text[:80])}" if may else f"{said} asks first",
        "deny": f"{said} forbids it.",
    }[verdict]
    return PartJudged(part=part, verdict=verdict, reason=reason, rule=rule)


def _decision(judged: PartJudged) -> Decision:
    rule = None if judged.rule is None else str(judged.rule)
    source = None if judged.rule is None else judged.rule.source
    match judged.verdict:
        case "allow":
            return Allow(judged.reason, rule, source)
        case "ask":
            return Ask(judged.reason, rule, source)
        case "deny":
            return Deny(judged.reason, rule, source)


def _is_argument(part: Part, path: str) -> bool:
    return part.argv is not None and any(path == word or path.endswith(f"/{word}") for word in part.argv)


def _why(part: Part) -> str:
    return f"`{shown(part.text[:80])}`: {part.why or 'not known to be safe'}"
