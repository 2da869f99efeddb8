"""Rules about files, applied to the files that a shell command reads, searches or changes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache, partial

from shoal.core.errors import WorkspaceError
from shoal.policy.changed_files import (
    changes_git_tree,
    changes_system_files,
    find_formatted_endings,
    has_unknown_target,
    iter_possible_changed_paths,
    list_changed_directories,
    mounts_files,
)
from shoal.policy.git_contents import find_git_contents, list_tracked_files
from shoal.policy.included_files import find_unseen_includer
from shoal.policy.incoming_files import list_incoming_files
from shoal.policy.inner_parts import PACKAGE_MANAGERS, list_inner_parts
from shoal.policy.output_flags import iter_output_paths
from shoal.policy.path_resolver import CommandPathResolver
from shoal.policy.permission_rules import ToolPermissionRule
from shoal.policy.policy_texts import format_policy_notice
from shoal.policy.rule_decisions import ShellCommandPartDecision, build_rule_decision, find_any_file_rule
from shoal.policy.rule_tables import FilePermissionRuleTable, PermissionRuleTables
from shoal.policy.shell.command_analysis import UNKNOWN_PATH, ShellCommandAnalysis, SimpleShellCommand
from shoal.policy.unreadable_files import (
    WORKING_DIRECTORY,
    UnreadableFileRules,
    iter_possible_read_paths,
    iter_text_tokens,
    join_places,
    list_places,
    list_searched_directories,
    may_read_other_files,
    reads_computed_files,
    reads_listed_files,
)
from shoal.policy.wildcards import GLOB, TooManyDirectoryEntriesError
from shoal.policy.written_scripts import iter_written_texts

REMOVERS = frozenset({"rm", "rmdir"})
_PROCESS_FILE = re.compile(r"/+proc/+[^/]+/+(?:cwd|root|fd|map_files|task)(?:/|$)|/+dev/+fd/.*\.\.")
"""Paths that lead to other files in the process that opens them."""
_ASSIGNED_PATH = re.compile(r"(?:^|[\s;&|(])[A-Z][A-Z0-9_]*=(?:\"([^\"`]*)\"|'?([^\s\"'`;&|)]+))")
_ASSIGNED_PART = re.compile(r"[:=,]")
_CURRENT_DIRECTORY = re.compile(r"\$\{?PWD\}?|\$\(pwd\)")


class ShellFileRuleChecker:
    """Finds the rules that forbid what a command does with files."""

    def __init__(self, paths: CommandPathResolver) -> None:
        self._paths = paths

    def find_objection(
        self,
        command: str,
        analysis: ShellCommandAnalysis,
        tables: PermissionRuleTables,
        doubt: ShellCommandPartDecision | None,
    ) -> ShellCommandPartDecision | None:
        if not analysis.are_paths_known:
            doubt = doubt or find_any_file_rule(command, tables)
        if doubt is None and "=" in command:
            doubt = self._check_assigned_paths(command, analysis, tables)
        may_include = False
        for part in analysis.parts:
            may_include = may_include or not part.read_only
            found = self._check_files_against_rules(part, tables)
            if found is not None and found.verdict == "deny":
                return found
            doubt = doubt or found
            if doubt is None and (part.code or part.words[:1] in PACKAGE_MANAGERS):
                doubt = self._check_inner_parts(part, tables)
        if doubt is not None or not may_include:
            return doubt
        return self._check_included_files(analysis, tables) or self._check_written_texts(
            command, analysis, tables
        )

    def _check_written_texts(
        self, command: str, analysis: ShellCommandAnalysis, tables: PermissionRuleTables
    ) -> ShellCommandPartDecision | None:
        """Check the files named in a text that the line writes and that another part of it reads."""
        tables_to_check = [
            table
            for table in (tables.shell_read_rules, tables.shell_write_rules)
            if not table.forbids_nothing
        ]
        for part, text in iter_written_texts(analysis, command) if len(analysis.parts) > 1 else ():
            for token in iter_text_tokens(text):
                found = (self._find_possible_file_rule(part, token, table) for table in tables_to_check)
                if (rule := next(filter(None, found), None)) is not None:
                    return build_rule_decision("ask", part, rule, is_doubtful=True)
        return None

    def _check_inner_parts(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> ShellCommandPartDecision | None:
        """Check the commands that it may run from its words; what they do is never certain."""
        for inner in list_inner_parts(part, self._paths.user.home):
            found = self._check_files_against_rules(inner, tables)
            if found is not None and found.rule is not None:
                return build_rule_decision("ask", part, found.rule, is_doubtful=True)
        return None

    def _check_assigned_paths(
        self, command: str, analysis: ShellCommandAnalysis, tables: PermissionRuleTables
    ) -> ShellCommandPartDecision | None:
        """Check directories that variables of the environment name, as in `TMPDIR=locked mktemp`."""
        table = tables.shell_write_rules
        if table.forbids_nothing or all(part.read_only for part in analysis.parts):
            return None
        for match in _ASSIGNED_PATH.finditer(command):
            for value in filter(None, _ASSIGNED_PART.split(match[1] or match[2])):
                path = _CURRENT_DIRECTORY.sub(self._paths.root, value)
                part = SimpleShellCommand(text=match[0].strip(), argv=None)
                rule = self._find_possible_file_rule(part, path, table)
                if rule is not None:
                    return build_rule_decision("ask", part, rule, is_doubtful=True)
        return None

    def _check_included_files(
        self, analysis: ShellCommandAnalysis, tables: PermissionRuleTables
    ) -> ShellCommandPartDecision | None:
        """Check compilers and similar programs, whose input may name files that they include."""
        table = tables.shell_read_rules
        rule = table.deny.first_patterned_rule or table.ask.first_patterned_rule
        part = None if rule is None else find_unseen_includer(analysis.parts)
        if rule is None or part is None:
            return None
        return build_rule_decision("ask", part, rule, is_doubtful=True)

    def _check_files_against_rules(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> ShellCommandPartDecision | None:
        doubt = None
        if not part.reads and not part.writes and part.read_only:
            return self._check_searched_files(part, tables)
        is_removal = bool(part.writes and part.words) and part.words[0] in REMOVERS
        write_rules = tables.shell_removal_rules if is_removal else tables.shell_write_rules
        for path in part.writes:
            rule = self._find_wildcard_rule(path, write_rules) if GLOB.search(path) else None
            if rule is not None:
                doubt = doubt or build_rule_decision("ask", part, rule, is_doubtful=True)
        for paths, table in ((part.reads, tables.shell_read_rules), (part.writes, write_rules)):
            for path in paths:
                found = self._check_file_against_rules(part, path, table)
                if found is not None and found.verdict == "deny":
                    return found
                doubt = doubt or found
        doubt = doubt or self._check_searched_files(part, tables)
        return doubt if doubt is not None or part.read_only else self._check_changed_files(part, tables)

    def _check_searched_files(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> ShellCommandPartDecision | None:
        """Check files it may read: in directories, by wildcards, through git, or as an unknown command."""
        table = tables.shell_read_rules
        if table.forbids_nothing or not may_read_other_files(part) or _is_git_query(part):
            return None
        for directory in list_searched_directories(part):
            rule = self._find_unreadable_rule_below(directory, tables)
            if rule is not None:
                reason = format_policy_notice("rule_for_searched", rule=rule, source=rule.source)
                return ShellCommandPartDecision(part=part, verdict="ask", reason=reason, rule=rule)
        if (found := self._check_git_and_listed_files(part, tables)) is not None:
            return found
        for path in part.reads:
            if GLOB.search(path) and (rule := self._find_wildcard_rule(path, table)) is not None:
                return build_rule_decision("ask", part, rule, is_doubtful=True)
        found_rules = (
            self._find_possible_file_rule(part, path, table) for path in self._iter_possible_read_paths(part)
        )
        rule = next(filter(None, found_rules), None)
        return None if rule is None else build_rule_decision("ask", part, rule, is_doubtful=True)

    def _iter_possible_read_paths(self, part: SimpleShellCommand) -> Iterator[str]:
        words = [word for word in iter_possible_read_paths(part) if word]
        places = list_places(part) if words else ()
        for word in words:
            yield from join_places((word,), places)
            if not self._paths.is_at_root or word[0] in ("/", "~"):
                # A path after a revision is relative to the top of the repository.
                yield f"{self._paths.root}/{word}"

    def _find_possible_file_rule(
        self, part: SimpleShellCommand, path: str, table: FilePermissionRuleTable
    ) -> ToolPermissionRule | None:
        """Return the rule about a path that may have wildcards, or None."""
        if GLOB.search(path):
            return self._find_wildcard_rule(path, table)
        found = self._check_file_against_rules(part, path, table)
        return None if found is None else found.rule

    def _check_changed_files(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> ShellCommandPartDecision | None:
        """Check files that a command which is not read-only may change: named by its words, in directories,
        or tracked by git."""
        table, unchangeable = tables.shell_write_rules, tables.unchangeable_files
        if table.forbids_nothing:
            return None
        rule = self._find_unnamed_change_rule(part, tables)
        places = list_places(part)
        words = (
            *iter_possible_changed_paths(part, is_closed=True),
            *iter_output_paths(part),
        )
        named = [path for word in words for path in join_places((word,), places)]
        for path in filter(None, named):
            rule = rule or self._find_possible_file_rule(part, path, table)
            if rule is None and self._paths.is_existing_path(path):
                rule = unchangeable.find_rule_below(self._paths.resolve_path(path)[0])
        for directory in list_changed_directories(part):
            if directory == WORKING_DIRECTORY:
                rule = rule or unchangeable.find_possible_rule_below(self._paths.directories)
            else:
                rule = rule or self._find_unchangeable_rule_below(directory, places, unchangeable)
        endings = find_formatted_endings(part)
        if rule is None and endings is not None:
            rule = unchangeable.find_rule_for_kind(self._paths.root, endings)
        if rule is None and changes_git_tree(part):
            rule = self._find_tracked_file_rule(part, places, unchangeable)
        return None if rule is None else build_rule_decision("ask", part, rule, is_doubtful=True)

    def _find_unchangeable_rule_below(
        self, directory: str, places: tuple[str, ...], unchangeable: UnreadableFileRules
    ) -> ToolPermissionRule | None:
        """Return a rule about files under a directory, which may have wildcards."""
        for path in join_places((directory,), places):
            try:
                expanded = self._paths.expand_path_wildcards(path) if GLOB.search(path) else ()
                found = map(unchangeable.find_rule_below, (*self._paths.list_real_paths(path), *expanded))
                if (rule := next(filter(None, found), None)) is not None:
                    return rule
            except TooManyDirectoryEntriesError:
                return unchangeable.find_possible_rule_below(self._paths.directories)
        return None

    def _find_unnamed_change_rule(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> ToolPermissionRule | None:
        """Return a rule about files that a command changes under no name, or under one that it computes."""
        table = tables.shell_write_rules
        rule = None
        if has_unknown_target(part):
            rule = table.deny.first_patterned_rule or table.ask.first_patterned_rule
        if rule is None and changes_system_files(part):
            return tables.unchangeable_files.find_outer_rule(self._paths.directories)
        return rule

    def _find_tracked_file_rule(
        self, part: SimpleShellCommand, places: tuple[str, ...], unchangeable: UnreadableFileRules
    ) -> ToolPermissionRule | None:
        """Return a rule about files that git tracks, or would add, where a command may run."""
        possible = unchangeable.find_possible_rule_below(self._paths.directories)
        for place in ("", *places) if possible is not None else ():
            directory = os.path.realpath(f"{self._paths.root}/{place}" if place[:1] != "/" else place)
            # Listing the files that would be added is slow, so it is done only if no tracked file matches.
            for list_files in (
                list_tracked_files,
                partial(list_incoming_files, part, self._paths.user.variables),
            ):
                files = list_files(directory)
                rule = possible if files is None else unchangeable.find_rule_for_files(files)
                if rule is not None:
                    return rule
        return None

    def _check_git_and_listed_files(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> ShellCommandPartDecision | None:
        if (rule := self._find_git_contents_rule(part, tables)) is not None:
            reason = format_policy_notice("rule_for_git", rule=rule, source=rule.source)
            return ShellCommandPartDecision(part=part, verdict="ask", reason=reason, rule=rule)
        if not reads_listed_files(part) and not reads_computed_files(part) and not mounts_files(part):
            return None
        table = tables.shell_read_rules
        rule = table.deny.first_patterned_rule or table.ask.first_patterned_rule
        return None if rule is None else build_rule_decision("ask", part, rule, is_doubtful=True)

    def _find_git_contents_rule(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> ToolPermissionRule | None:
        """Return a rule about files whose contents a git command may show, now or from its history."""
        contents = find_git_contents(part)
        if contents is None:
            return None
        operands, places = contents.operands, part.places
        if places != ("",):
            operands = tuple(join_places(filter(None, operands), places))
        existing = [word for word in operands if word and self._paths.is_existing_path(word)]
        is_current = contents.is_current and len(existing) == len(operands)
        unreadable = tables.unreadable_files
        if is_current and (tracked := list_tracked_files(self._paths.root)) is not None:
            rule = unreadable.find_rule_for_files(tracked)
            if rule is None or not (existing or contents.paths):
                return rule
        paths = (*join_places(contents.paths, places), *existing)
        if not paths or any(path.startswith(":") or GLOB.search(path) for path in paths):
            return unreadable.find_possible_rule_below(self._paths.directories)
        for path in filter(None, paths):
            try:
                real, is_directory = self._paths.resolve_path(path)
            except WorkspaceError:
                return unreadable.find_possible_rule_below(self._paths.directories)
            rule = (
                unreadable.find_possible_rule_below((real,))
                if is_directory
                else unreadable.find_rule_for_files((real, f"{self._paths.root}/{path}"))
            )
            if rule is not None:
                return rule
        return None

    def _find_wildcard_rule(self, path: str, table: FilePermissionRuleTable) -> ToolPermissionRule | None:
        """Return the first rule that matches, or may match, a path that the wildcards expand to."""
        try:
            found = (
                table.deny.find_match(real) or table.ask.find_match(real)
                for real in self._paths.expand_path_wildcards(path)
            )
            return next(filter(None, found), None)
        except TooManyDirectoryEntriesError:
            return table.deny.first_patterned_rule or table.ask.first_patterned_rule

    def _find_unreadable_rule_below(
        self, directory: str, tables: PermissionRuleTables
    ) -> ToolPermissionRule | None:
        if directory == WORKING_DIRECTORY:
            return next(
                filter(None, map(tables.unreadable_files.find_rule_below, self._paths.directories)), None
            )
        found = map(tables.unreadable_files.find_rule_below, self._paths.list_real_paths(directory))
        return next(filter(None, found), None)

    def _check_file_against_rules(
        self, part: SimpleShellCommand, path: str, table: FilePermissionRuleTable
    ) -> ShellCommandPartDecision | None:
        if path[:1] == "/" and (path.startswith(UNKNOWN_PATH) or _PROCESS_FILE.match(path)):
            possible_rule = table.deny.first_patterned_rule or table.ask.first_patterned_rule
            return (
                None
                if possible_rule is None
                else build_rule_decision("ask", part, possible_rule, is_doubtful=True)
            )
        if table.forbids_nothing:
            return None
        paths = self._paths.list_real_paths(path)
        for real in paths:
            if rule := table.deny.find_match_once(real):
                return build_rule_decision("deny", part, rule)
        if table.ask.is_empty:
            return None
        for real in paths:
            if rule := table.ask.find_match_once(real):
                return build_rule_decision("ask", part, rule)
        return None


def _is_git_query(part: SimpleShellCommand) -> bool:
    """Return True if a git command has only flags that name no file and show no contents."""
    words = part.argv
    if (
        not words
        or words[0] != "git"
        or len(words) < 2
        or not part.read_only
        or part.reads
        or part.via
        or part.code
    ):
        return False
    subcommand = words[1]
    for word in words[2:]:
        if word[:1] != "-":
            return False
        # The number of a count such as `-20` is no file.
        if not _shows_no_files(subcommand, "-1" if word[1:].isdigit() else word):
            return False
    return _shows_no_files(subcommand, "")


@lru_cache(maxsize=1_000)
def _shows_no_files(subcommand: str, flag: str) -> bool:
    """Return True if nothing looks at files for a subcommand of git with this flag alone."""
    words = ("git", subcommand, flag) if flag else ("git", subcommand)
    part = SimpleShellCommand(text=" ".join(words), argv=words, words=words, read_only=True)
    return not (
        subcommand.startswith("-")
        or list_searched_directories(part)
        or find_git_contents(part) is not None
        or reads_listed_files(part)
        or reads_computed_files(part)
        or mounts_files(part)
        or any(iter_possible_read_paths(part))
    )
