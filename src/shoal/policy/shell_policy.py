"""Permission decisions about shell commands: each simple command and each file that it reads or writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from msgspec.structs import replace

from shoal.core.errors import WorkspaceError
from shoal.core.permissions.permission_changes import PermissionMode, RuleBehavior
from shoal.core.permissions.permission_decisions import (
    AllowDecision,
    AskDecision,
    DenyDecision,
    PermissionDecision,
)
from shoal.core.text.filenames import escape_filename
from shoal.policy import rule_suggestions
from shoal.policy.accepted_commands import (
    PLAIN_WRITERS,
    AcceptedCommandChecker,
    FileWriteObjection,
    is_accepted_command,
)
from shoal.policy.changed_files import (
    iter_possible_changed_paths,
)
from shoal.policy.checkout_settings import (
    get_checkout_judge,
    may_obey_new_settings,
    may_write_python_module,
    may_write_settings,
    runs_python_module,
)
from shoal.policy.command_meanings import (
    add_commands_of_variables,
    add_git_alias_commands,
    add_linked_programs,
)
from shoal.policy.command_rules import ShellCommandRules
from shoal.policy.inner_parts import list_inner_parts
from shoal.policy.open_rule_effects import (
    find_script_effects,
    iter_possible_outer_paths,
    names_open_end,
    undoes_check,
)
from shoal.policy.output_flags import iter_output_paths
from shoal.policy.path_resolver import CommandPathResolver, PathResolver
from shoal.policy.permission_rules import EDIT_ACCEPTING_MODES, ToolPermissionRule
from shoal.policy.policy_texts import format_policy_notice, format_shell_reason
from shoal.policy.rule_decisions import (
    ShellCommandPartDecision,
    build_rule_decision,
    match_forbidding_rule,
    to_permission_decision,
)
from shoal.policy.rule_tables import PermissionRuleTables
from shoal.policy.shell.command_analysis import (
    UNKNOWN_PATH,
    ShellCommandAnalysis,
    SimpleShellCommand,
    analyze_shell_command,
)
from shoal.policy.shell.plain_lines import is_kept_command
from shoal.policy.shell_file_rules import REMOVERS, ShellFileRuleChecker
from shoal.policy.unpacked_files import find_unpacking_objection, unpacks_files
from shoal.policy.unreadable_files import (
    find_glob_base,
    is_found_path,
    iter_possible_read_paths,
    iter_text_tokens,
    list_searched_directories,
    reads_listed_files,
)
from shoal.policy.wildcards import GLOB, TooManyDirectoryEntriesError, has_odd_names, iter_link_targets
from shoal.policy.written_scripts import add_written_scripts

_QUOTED_WILDCARD = re.compile(r"\[([*?\[])\]")
_KEY_WORDS = re.compile(r"keys|credentials", re.IGNORECASE)
MAX_COMMAND_LENGTH = 100_000
"""Maximum length; the system accepts little more in one argument, and nobody can review a longer one."""
_MAY_REMOVE = re.compile(r"\br\W*m|rmdir|delete|\\[xu0-7]|[`$]\(?")
"""Text that may hide a command that removes files."""
_VARIABLE_PATH = re.compile(r"\"?\$\{?[A-Za-z_]\w*\}?\"?/+\*?(?=\s|\"|$)")
_FIND_TESTS = re.compile(r"\s-(?!delete|depth|d\b|maxdepth|mindepth|L|H|P|xdev|mount|print|follow)[a-z]")
_WRITES_FILE = re.compile(r">|\b(?:cp|mv|tee|ln|dd|install|touch|mkdir|rm|sed|rsync|tar|git)\b")
_EVERYTHING = re.compile(r"\s\*(?=\s|$)")
_REMOVER_ENDS = ("rm", "rmdir")
_PUBLIC_FILES = frozenset(
    {"/etc/os-release", "/etc/debian_version", "/etc/lsb-release", "/proc/cpuinfo", "/proc/meminfo"}
    | {"/proc/loadavg", "/proc/uptime", "/proc/version"}
)
"""Files outside the project that describe the system and contain no personal data."""
_PUBLIC_DIRECTORIES = ("/usr/bin/", "/usr/include/", "/usr/share/doc/")
_MAX_ALLOWED_PARTS = 1_000
_get_writes = attrgetter("writes")
_is_read_only = attrgetter("read_only")
_NULL_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


class ShellCommandPermissionDecider:
    def __init__(self, paths: PathResolver) -> None:
        self._paths = paths
        self._command_paths = CommandPathResolver(paths)
        self._file_rules = ShellFileRuleChecker(self._command_paths)
        self._accepted_commands = AcceptedCommandChecker(paths, self._command_paths)
        self._allowed_parts: dict[int, SimpleShellCommand] = {}
        """Commands without files that these rules allow in this mode, by identity."""
        self._allowed_under: tuple[PermissionRuleTables, PermissionMode] | None = None

    def decide_command(
        self, command: str, tables: PermissionRuleTables, mode: PermissionMode
    ) -> PermissionDecision:
        try:
            return self._decide_command(command, tables, mode)
        except OSError as error:
            # A path of the command that cannot be looked at, as those of another process.
            return AskDecision(format_shell_reason("failed_analysis", error=type(error).__name__))

    def _decide_command(
        self, command: str, tables: PermissionRuleTables, mode: PermissionMode
    ) -> PermissionDecision:
        rules = tables.shell_command_rules
        if "\0" in command:
            return DenyDecision(format_policy_notice("nul_in_command"))
        if len(command) > MAX_COMMAND_LENGTH:
            return DenyDecision(
                format_policy_notice(
                    "long_command", length=f"{len(command):,}", maximum=f"{MAX_COMMAND_LENGTH:,}"
                )
            )
        if rules.bare_deny is not None:
            return to_permission_decision(
                build_rule_decision("deny", SimpleShellCommand(text=command, argv=None), rules.bare_deny)
            )
        bypasses = mode == "bypassPermissions"
        if (
            bypasses
            and not self._has_forbidding_rules(tables)
            and not _KEY_WORDS.search(command)
            and not _MAY_REMOVE.search(command)
        ):
            return AllowDecision("permissions are skipped")
        self._command_paths.forget()
        analysis = self._leave_out_allowed_parts(
            analyze_shell_command(command, self._paths.user.home), command, tables, mode
        )
        if objection := self._find_rule_objection(
            command, self._add_meanings(analysis, command, tables), tables
        ):
            return to_permission_decision(objection)
        if removed := self._find_critical_removal(analysis):
            return AskDecision(format_policy_notice("critical_removal", path=removed), needs_person=True)
        if bypasses:
            return AllowDecision("permissions are skipped")
        return self._decide_command_permission(command, analysis, tables, mode)

    def _leave_out_allowed_parts(
        self, analysis: ShellCommandAnalysis, command: str, tables: PermissionRuleTables, mode: PermissionMode
    ) -> ShellCommandAnalysis:
        """Return the analysis without the commands that were allowed before and concern no file."""
        if (
            self._allowed_under is None
            or self._allowed_under[0] is not tables
            or self._allowed_under[1] != mode
        ):
            self._allowed_under = tables, mode
            self._allowed_parts.clear()
        allowed = self._allowed_parts
        # With another search path, as after `printf -v PATH`, a name may be another program.
        if not allowed or "PATH" in command:
            return analysis
        parts = [part for part in analysis.parts if id(part) not in allowed]
        return analysis if len(parts) == len(analysis.parts) else replace(analysis, parts=tuple(parts))

    def _keep_allowed_part(self, decision: ShellCommandPartDecision) -> None:
        """Keep the decision about a command that depends on its words alone."""
        part = decision.part
        if is_kept_command(part) and _has_no_files(part):
            if len(self._allowed_parts) >= _MAX_ALLOWED_PARTS:
                self._allowed_parts.clear()
            self._allowed_parts[id(part)] = part

    def _add_meanings(
        self, analysis: ShellCommandAnalysis, command: str, tables: PermissionRuleTables
    ) -> ShellCommandAnalysis:
        """Return the analysis with the commands behind aliases and links, for forbidding rules."""
        rules = tables.shell_command_rules
        if not (rules.deny.rules or rules.ask.rules):
            return analysis
        if len(analysis.parts) > 1 and not all(map(_is_read_only, analysis.parts)):
            analysis = add_written_scripts(analysis, command, self._paths.user.home)
        if "git" in command:
            analysis = add_git_alias_commands(analysis, command, self._paths)
        if "=" in command:
            analysis = add_commands_of_variables(analysis, command)
        if "/" in command or "PATH" in command:
            analysis = add_linked_programs(analysis, command, self._paths)
        return analysis

    def decide_command_parts(
        self, command: str, tables: PermissionRuleTables, mode: PermissionMode
    ) -> tuple[ShellCommandPartDecision, ...]:
        if "\0" in command or len(command) > MAX_COMMAND_LENGTH:
            return ()
        self._command_paths.forget()
        found = []
        for part in analyze_shell_command(command, self._paths.user.home).parts:
            single_part = ShellCommandAnalysis(parts=(part,))
            found.append(
                self._find_rule_objection("", single_part, tables)
                or self._decide_simple_command(part, tables, mode)
            )
        return tuple(found)

    def _find_critical_removal(self, analysis: ShellCommandAnalysis) -> str | None:
        """Return what a command would remove that nobody wants to lose, or None."""
        for part in analysis.parts:
            name = part.words[0] if part.words else None
            if name == "find" and part.changes and not _FIND_TESTS.search(part.text):
                removed = next(filter(self._is_critical_path, part.changes), None)
                if removed is not None:
                    return format_policy_notice("below", path=escape_filename(removed))
            if name is None or not name.endswith(_REMOVER_ENDS) or name.rpartition("/")[2] not in REMOVERS:
                continue
            if found := _VARIABLE_PATH.search(part.text):
                return format_policy_notice("variable_path", path=found[0])
            if _EVERYTHING.search(part.text):
                return format_policy_notice("everything")
            for path in part.writes:
                if path != UNKNOWN_PATH and self._is_critical_path(path):
                    return escape_filename(path)
        return None

    def _is_critical_path(self, path: str) -> bool:
        """Return True for the root, its children, the home, the working directories and all above."""
        if path.endswith("/*") or path == "*":
            path = path[:-2] or ("/" if path == "/*" else ".")
        critical = (
            *self._paths.directories,
            self._paths.user.home,
            str(self._command_paths.resolve_path(".")[0]),
        )
        return any(
            real.count("/") == 1 or any(f"{each}/".startswith(f"{real}/") for each in critical)
            for real in self._command_paths.list_real_paths(path)
        )

    def _has_forbidding_rules(self, tables: PermissionRuleTables) -> bool:
        rules = tables.shell_command_rules
        if rules.deny.rules or rules.ask.rules or rules.bare_ask is not None:
            return True
        return not (tables.shell_read_rules.forbids_nothing and tables.shell_write_rules.forbids_nothing)

    def _find_rule_objection(
        self, command: str, analysis: ShellCommandAnalysis, tables: PermissionRuleTables
    ) -> ShellCommandPartDecision | None:
        """Return the decision of a deny rule, or else an ask rule, about any part; a possible match asks."""
        doubt = self._check_shoal_key_access(analysis.parts)
        if doubt is None and not analysis.are_paths_known and _KEY_WORDS.search(command):
            part = SimpleShellCommand(text=command, argv=None)
            doubt = ShellCommandPartDecision(
                part=part, verdict="ask", reason=format_policy_notice("unclear_files")
            )
        if doubt is not None and doubt.verdict == "deny":
            return doubt
        rules = tables.shell_command_rules
        strengths: tuple[tuple[RuleBehavior, ShellCommandRules], ...] = (
            ("deny", rules.deny),
            ("ask", rules.ask),
        )
        for verdict, command_rules in strengths:
            if command_rules.is_certain_no_match(command, analysis):
                continue
            for rule in command_rules.rules:
                found = match_forbidding_rule(verdict, rule, command, analysis)
                if found is not None and found.verdict == "deny":
                    return found
                doubt = doubt or found
        if rules.bare_ask is not None:
            doubt = doubt or build_rule_decision(
                "ask", SimpleShellCommand(text=command, argv=None), rules.bare_ask
            )
        if tables.shell_read_rules.forbids_nothing and tables.shell_write_rules.forbids_nothing:
            return doubt
        return self._file_rules.find_objection(command, analysis, tables, doubt)

    def _check_shoal_key_access(self, parts: Iterable[SimpleShellCommand]) -> ShellCommandPartDecision | None:
        doubt: ShellCommandPartDecision | None = None
        for part in parts if self._paths.has_home else ():
            try:
                if any(map(self._may_be_shoal_key_path, (*part.reads, *part.writes))):
                    return ShellCommandPartDecision(
                        part=part, verdict="deny", reason=format_policy_notice("keys")
                    )
            except TooManyDirectoryEntriesError:
                doubt = doubt or ShellCommandPartDecision(
                    part=part, verdict="ask", reason=format_policy_notice("wide_wildcards")
                )
        return doubt

    def _may_be_shoal_key_path(self, path: str) -> bool:
        if not GLOB.search(path):
            return any(map(self._paths.is_shoal_secret_file, self._command_paths.list_real_paths(path)))
        is_secret = any(map(self._paths.is_shoal_secret_file, self._command_paths.list_real_paths(path)))
        if is_secret:
            return is_secret
        try:
            start, _ = self._command_paths.resolve_path(find_glob_base(path))
        except WorkspaceError:
            return False
        # Expanding every pattern would cost more than everything else.
        is_above = self._paths.is_above_shoal_secret_files(start)
        return is_above and any(
            map(self._paths.is_shoal_secret_file, self._paths.expand_path_wildcards(path))
        )

    def _decide_command_permission(
        self, command: str, analysis: ShellCommandAnalysis, tables: PermissionRuleTables, mode: PermissionMode
    ) -> PermissionDecision:
        rules = tables.shell_command_rules
        by_whole = rules.bare_allow or rules.allow.find_exact_rule(command)
        if by_whole is not None and mode != "plan":
            return self._allow_whole_command(command, analysis, by_whole)
        if analysis.trouble is not None:
            return AskDecision(
                analysis.trouble, suggestions=rule_suggestions.suggest_rules_for_command(command, ())
            )
        parts = analysis.parts
        if len(parts) > 1 and any(map(_get_writes, parts)) and self._may_obey_written_settings(parts):
            return AskDecision(format_policy_notice("new_settings"))
        decisions = [self._decide_simple_command(part, tables, mode) for part in analysis.parts]
        not_allowed = [each for each in decisions if each.verdict != "allow"]
        if not_allowed:
            first = not_allowed[0]
            return AskDecision(
                first.reason,
                suggestions=()
                if any(each.guarded for each in not_allowed)
                else rule_suggestions.suggest_rules_for_command(command, [each.part for each in not_allowed]),
            )
        has_changes = not all(map(_is_read_only, parts))
        if has_changes:
            objection = self._find_unpacking_objection(parts) or self._find_line_objection(decisions)
            if objection:
                return AskDecision(objection)
        rule_decision = None
        for each in decisions:
            if each.rule is not None:
                rule_decision = rule_decision or each
            elif not each.part.reads and not each.part.writes:
                self._keep_allowed_part(each)
        return (
            AllowDecision(
                "edits in the working directories are accepted"
                if has_changes
                else "every part of it is read-only"
            )
            if rule_decision is None
            else to_permission_decision(rule_decision)
        )

    def _find_line_objection(self, decisions: Sequence[ShellCommandPartDecision]) -> str | None:
        """Return why commands that the mode accepts need approval because of the rest of the line."""
        if all(each.part.read_only or each.rule is not None for each in decisions):
            return None
        try:
            return self._accepted_commands.find_line_objection([each.part for each in decisions])
        except WorkspaceError as error:
            return str(error)

    def _find_unpacking_objection(self, parts: tuple[SimpleShellCommand, ...]) -> str | None:
        """Return why a command must be asked that unpacks or copies files which it does not name."""
        if all(map(_is_read_only, parts)):
            return None
        are_files_final = len(parts) == 1 or not any(map(_may_write_archive, parts))
        try:
            found = (
                find_unpacking_objection(
                    part, self._command_paths.resolve_path, are_files_final=are_files_final
                )
                for part in parts
                if not part.read_only
            )
            return next(filter(None, found), None)
        except WorkspaceError as error:
            return str(error)

    def _may_obey_written_settings(self, parts: tuple[SimpleShellCommand, ...]) -> bool:
        for part in parts:
            if part.words and get_checkout_judge(part.words) is not None:
                break
        else:
            return False
        if any(map(runs_python_module, parts)) and any(map(may_write_python_module, parts)):
            return True
        return any(map(may_write_settings, parts)) and any(
            may_obey_new_settings(part, self._paths.root) for part in parts
        )

    def _allow_whole_command(
        self, command: str, analysis: ShellCommandAnalysis, rule: ToolPermissionRule
    ) -> PermissionDecision:
        if rule.pattern is None and (objection := self._find_hidden_protected_path(command, analysis)):
            return AskDecision(objection)
        for part in analysis.parts:
            for path in part.writes:
                if path not in _NULL_DEVICES and self._is_protected_write_path(path):
                    return AskDecision(_format_protected_write(path))
            if (inner := self._find_inner_protected_path(part)) is not None:
                return AskDecision(_format_protected_write(inner))
            if rule.pattern is None and (named := self._find_named_protected_path(part)) is not None:
                return AskDecision(_format_protected_write(named))
        if rule.pattern is None and (objection := self._find_unpacking_objection(analysis.parts)):
            return AskDecision(objection)
        return AllowDecision(f"the rule {rule} ({rule.source})", str(rule), rule.source)

    def _find_hidden_protected_path(self, command: str, analysis: ShellCommandAnalysis) -> str | None:
        """Return why a line whose files are not known may change a protected file that its text names."""
        if not analysis.is_complete and analysis.trouble is not None and _WRITES_FILE.search(command):
            return analysis.trouble
        if not any(path.startswith(UNKNOWN_PATH) for part in analysis.parts for path in part.writes):
            return None
        named = (token for token in iter_text_tokens(command) if "." in token)
        found = next(filter(self._is_protected_write_path, named), None)
        return None if found is None else _format_protected_write(found)

    def _decide_simple_command(
        self, part: SimpleShellCommand, tables: PermissionRuleTables, mode: PermissionMode
    ) -> ShellCommandPartDecision:
        """Decide if a part may run: it is read-only, or a rule covers it; the same applies to its files."""
        rule = None if mode == "plan" else tables.shell_command_rules.allow.find_covering_rule(part)
        if rule is None and not part.read_only and (refusal := self._check_accepted(part, tables, mode)):
            return refusal
        for path in part.writes:
            if path not in _NULL_DEVICES and (
                objection := self._find_write_objection(part, path, rule, tables, mode)
            ):
                return ShellCommandPartDecision(
                    part=part, verdict="ask", reason=objection.why, guarded=objection.guarded
                )
        if rule is None:
            for path in part.reads:
                is_found = ("find" in part.via and path.endswith("/*")) or is_found_path(path)
                if path not in _NULL_DEVICES and (
                    read_objection := self._find_read_objection(path, tables, is_found=is_found)
                ):
                    return ShellCommandPartDecision(part=part, verdict="ask", reason=read_objection)
            if objection_to_search := self._find_search_objection(part, tables):
                return ShellCommandPartDecision(part=part, verdict="ask", reason=objection_to_search)
            return ShellCommandPartDecision(part=part, verdict="allow", reason=part.why or "it is read-only")
        named = self._find_named_protected_path(part) or self._find_inner_protected_path(part)
        if named is not None:
            reason = _format_protected_write(named)
            return ShellCommandPartDecision(part=part, verdict="ask", reason=reason, guarded=True)
        if uncovered := self._find_uncovered_effect(part, rule, tables):
            return ShellCommandPartDecision(part=part, verdict="ask", reason=uncovered)
        return build_rule_decision("allow", part, rule)

    def _find_unnamed_input(self, part: SimpleShellCommand, tables: PermissionRuleTables) -> str | None:
        """Return why the input of a command needs approval, which a rule about its words does not name."""
        inputs = (path for path in part.reads if path not in _NULL_DEVICES)
        found = (
            self._find_read_objection(path, tables, is_found=False)
            for path in inputs
            if not _is_command_argument(part, path)
        )
        return next(filter(None, found), None)

    def _find_uncovered_effect(
        self, part: SimpleShellCommand, rule: ToolPermissionRule, tables: PermissionRuleTables
    ) -> str | None:
        """Return why a rule does not cover all that a command may do which writes or runs something."""
        if part.read_only or part.argv is None:
            return None
        if not names_open_end(rule):
            return None if rule.pattern == "*" else self._find_unnamed_input(part, tables)
        if undoes_check(rule, part):
            return format_policy_notice("undone_check", rule=rule)
        effects = find_script_effects(part)
        if effects.runs:
            return format_policy_notice("script_runs", rule=rule)
        for word in (*iter_possible_outer_paths(part, rule), *effects.files):
            for place in part.places:
                path = f"{place}/{word}" if place and word[:1] != "/" else word
                if self._leads_outside(path, tables):
                    return format_policy_notice("rule_ends", rule=rule, path=escape_filename(path[:200]))
        named = (path for path in part.reads if path not in _NULL_DEVICES)
        return next(
            filter(None, (self._find_read_objection(each, tables, is_found=False) for each in named)), None
        )

    def _leads_outside(self, path: str, tables: PermissionRuleTables) -> bool:
        """Return True if a word leads out of the working directories, unless a rule allows writing there."""
        if not path or path in _NULL_DEVICES:
            return False
        is_outer = path[0] in "/~" or ".." in path.split("/")
        try:
            for each in self._iter_wildcard_paths(path) if GLOB.search(path) else (path,):
                real, _ = self._command_paths.resolve_path(each)
                if not self._paths.is_inside_workspace(real) and not (
                    tables.shell_write_rules.allow.find_match(real)
                ):
                    return True
        except (WorkspaceError, TooManyDirectoryEntriesError):
            # Long or odd text that is no path.
            return is_outer
        return False

    def _check_accepted(
        self, part: SimpleShellCommand, tables: PermissionRuleTables, mode: PermissionMode
    ) -> ShellCommandPartDecision | None:
        """Return the refusal of a command that changes something, unless the mode accepts its changes."""
        if not (mode in EDIT_ACCEPTING_MODES and is_accepted_command(part)):
            return ShellCommandPartDecision(
                part=part, verdict="ask", reason=_format_simple_command_reason(part)
            )
        if tables.bare_edit_rule is not None:
            return build_rule_decision("ask", part, tables.bare_edit_rule)
        objection = self._accepted_commands.find_objection(part, tables)
        if objection is None:
            return None
        return ShellCommandPartDecision(
            part=part, verdict="ask", reason=objection.why, guarded=objection.guarded
        )

    def _find_named_protected_path(self, part: SimpleShellCommand) -> str | None:
        """Return a protected file that a command names and may change, or None."""
        if part.read_only:
            return None
        paths = (
            *iter_possible_changed_paths(part, is_closed=False),
            *iter_output_paths(part),
        )
        return next(
            (
                path
                for path in paths
                if any(sign in path for sign in ".~") and self._is_protected_write_path(path)
            ),
            None,
        )

    def _find_inner_protected_path(self, part: SimpleShellCommand) -> str | None:
        """Return a protected file that a command may change through one that it runs, or None."""
        for inner in list_inner_parts(part, self._paths.user.home):
            for path in inner.writes:
                if path not in _NULL_DEVICES and path != UNKNOWN_PATH and self._is_protected_write_path(path):
                    return path
            if (named := self._find_named_protected_path(inner)) is not None:
                return named
        return None

    def _find_write_objection(
        self,
        part: SimpleShellCommand,
        path: str,
        rule: ToolPermissionRule | None,
        tables: PermissionRuleTables,
        mode: PermissionMode,
    ) -> FileWriteObjection | None:
        if not GLOB.search(path):
            return self._find_real_write_objection(part, path, path, rule, tables, mode)
        try:
            for real_path in self._iter_wildcard_paths(path):
                if objection := self._find_real_write_objection(part, path, real_path, rule, tables, mode):
                    return objection
        except TooManyDirectoryEntriesError:
            return FileWriteObjection(format_policy_notice("wide_wildcards"))
        return None

    def _iter_wildcard_paths(self, path: str) -> Iterator[str]:
        """Yield the paths that a word with wildcards may mean: those it matches, or its own text."""
        yield path
        yield _QUOTED_WILDCARD.sub(r"\1", path)
        yield from self._paths.expand_path_wildcards(path)

    def _find_real_write_objection(
        self,
        part: SimpleShellCommand,
        path: str,
        real_path: str,
        rule: ToolPermissionRule | None,
        tables: PermissionRuleTables,
        mode: PermissionMode,
    ) -> FileWriteObjection | None:
        try:
            real, _ = self._command_paths.resolve_path(real_path)
        except WorkspaceError as error:
            return FileWriteObjection(str(error))
        if self._paths.is_change_guarded(real):
            return FileWriteObjection(_format_protected_write(path), guarded=True)
        if mode != "plan" and tables.shell_write_rules.allow.find_match_once(real):
            return None
        if not self._paths.is_inside_workspace(real):
            return FileWriteObjection(format_policy_notice("writes_outside", path=escape_filename(path)))
        # A rule about `rm` covers the files that `rm` removes, not the target of a redirection.
        by_rule = rule is not None and path in part.changes and _is_command_argument(part, path)
        if by_rule or (mode in EDIT_ACCEPTING_MODES and tables.bare_edit_rule is None):
            return None
        return FileWriteObjection(format_policy_notice("writes", path=escape_filename(path)))

    def _find_read_objection(self, path: str, tables: PermissionRuleTables, *, is_found: bool) -> str | None:
        """Return why a read needs approval; with `is_found` the path stands for files that `find` passes."""
        if is_found or not GLOB.search(path):
            return self._find_real_read_objection(path, tables)
        try:
            found = (self._find_real_read_objection(each, tables) for each in self._iter_wildcard_paths(path))
            return next(filter(None, found), None)
        except TooManyDirectoryEntriesError:
            return format_policy_notice("wide_wildcards")

    def _find_link_objection(self, part: SimpleShellCommand, tables: PermissionRuleTables) -> str | None:
        """Return why a command that reads everything below its paths, including through links, needs
        approval."""
        paths = part.reads if part.follows_links else list_searched_directories(part)
        try:
            for path in paths:
                for directory in self._iter_wildcard_paths(path) if GLOB.search(path) else (path,):
                    real, is_directory = self._command_paths.resolve_path(directory)
                    if is_directory and any(map(is_found_path, part.reads)) and has_odd_names(real):
                        return format_policy_notice("odd_names")
                    if is_directory and (target := self._find_outer_link(real, part.found_name, tables)):
                        return format_policy_notice("link_outside", path=target)
        except TooManyDirectoryEntriesError:
            return format_policy_notice("linked_files")
        except WorkspaceError as error:
            return str(error)
        return None

    def _find_search_objection(self, part: SimpleShellCommand, tables: PermissionRuleTables) -> str | None:
        """Return why a command needs approval because of what is in the directories that it reads."""
        if part.words and (judge := get_checkout_judge(part.words)) is not None:
            return judge(part, self._command_paths.resolve_path, self._paths.root)
        if part.follows_links or "find" in part.via or any(map(is_found_path, part.reads)):
            return self._find_link_objection(part, tables)
        return None

    def _find_outer_link(self, directory: str, name_pattern: str, tables: PermissionRuleTables) -> str | None:
        targets = iter_link_targets(directory, self._paths.is_inside_workspace, name_pattern=name_pattern)
        return next((escape_filename(each) for each in targets if not self._is_readable(each, tables)), None)

    def _is_readable(self, real: str, tables: PermissionRuleTables) -> bool:
        return (
            self._paths.is_inside_workspace(real)
            or tables.shell_read_rules.allow.find_match(real) is not None
        )

    def _find_real_read_objection(self, path: str, tables: PermissionRuleTables) -> str | None:
        try:
            real, _ = self._command_paths.resolve_path(path)
        except WorkspaceError as error:
            return str(error)
        if self._is_readable(real, tables) or path in _PUBLIC_FILES or real.startswith(_PUBLIC_DIRECTORIES):
            return None
        return format_policy_notice("reads_outside", path=escape_filename(path))

    def _is_protected_write_path(self, path: str) -> bool:
        try:
            paths = self._iter_wildcard_paths(path) if GLOB.search(path) else (path,)
            return any(
                self._paths.is_change_guarded(self._command_paths.resolve_path(each)[0]) for each in paths
            )
        except (WorkspaceError, TooManyDirectoryEntriesError):
            return True


def _is_command_argument(part: SimpleShellCommand, path: str) -> bool:
    return part.argv is not None and any(path == word or path.endswith(f"/{word}") for word in part.argv)


def _has_no_files(part: SimpleShellCommand) -> bool:
    """Return True if no file, and no other part of a line, matters for the decision about a command."""
    return (
        part.read_only
        and not (part.reads or part.writes or part.via or part.globs or part.code or part.follows_links)
        and part.places == ("",)
        and get_checkout_judge(part.words) is None
        and not list_searched_directories(part)
        and not reads_listed_files(part)
        and not any(iter_possible_read_paths(part))
    )


def _may_write_archive(part: SimpleShellCommand) -> bool:
    """Return True if a command may write a file that another part of the line unpacks."""
    is_plain = bool(part.words) and part.words[0] in PLAIN_WRITERS
    return not (part.read_only and not part.writes) and not is_plain and not unpacks_files(part)


def _format_simple_command_reason(part: SimpleShellCommand) -> str:
    return f"`{escape_filename(part.text[:80])}`: {part.why or format_policy_notice('unknown_tool')}"


def _format_protected_write(path: str) -> str:
    return format_policy_notice("writes_protected", path=escape_filename(path))
