"""Commands that move, copy, remove and edit files, and run unasked where edits are accepted.

Every file that such a command changes is inside the working directories, unprotected, and free of rules that
forbid it: also those in the directories that it names, and those that it would create.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from os.path import normpath
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import WorkspaceError
from shoal.core.text.filenames import escape_filename
from shoal.policy.path_resolver import CommandPathResolver, PathResolver
from shoal.policy.policy_texts import format_policy_notice
from shoal.policy.rule_tables import FilePermissionRuleTable, PermissionRuleTables
from shoal.policy.shell.command_analysis import SimpleShellCommand
from shoal.policy.shell.program_judges import judge_sed
from shoal.policy.shell.shell_words import ShellWord
from shoal.policy.unreadable_files import join_places
from shoal.policy.wildcards import GLOB

PLAIN_WRITERS = frozenset({"mkdir", "touch"})
"""Accepted commands that change nothing but what they name."""
_MOVERS = frozenset({"mv", "cp"})
_ACCEPTED = frozenset({"rm", "rmdir", "sed", *_MOVERS})
_RECURSIVE = re.compile(r"-[a-zA-Z]*[rR][a-zA-Z]*|--recursive")
_IN_PLACE = re.compile(r"-[nErsuz]*i(?P<short>.*)|--in-place(?:=(?P<long>.*))?", re.DOTALL)
_SUFFIX = re.compile(r"[\w.~-]*")
_MAX_ENTRIES = 10_000


class FileWriteObjection(Struct, frozen=True):
    why: str
    guarded: bool = False


class _TooManyFilesError(Exception):
    """A directory has more files than can be checked before a command."""


def is_accepted_command(part: SimpleShellCommand) -> bool:
    """Return True for a command that may run unasked where edits are accepted, if its files permit it."""
    if part.argv is None or not part.argv or part.via or not part.writes:
        return False
    return part.argv[0] in PLAIN_WRITERS or _is_checked_command(part)


def _is_checked_command(part: SimpleShellCommand) -> bool:
    return bool(part.argv) and part.argv is not None and part.argv[0] in _ACCEPTED


class AcceptedCommandChecker:
    """Finds the files that an accepted command must not change unasked."""

    def __init__(self, paths: PathResolver, command_paths: CommandPathResolver) -> None:
        self._paths = paths
        self._command_paths = command_paths

    def find_objection(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> FileWriteObjection | None:
        """Return why a command needs approval because of files that it does not name."""
        if not _is_checked_command(part):
            return None
        assert part.argv is not None
        try:
            match part.argv[0]:
                case "sed":
                    return self._check_sed(part, tables)
                case "rm" | "rmdir":
                    return self._check_removal(part, tables)
                case _:
                    return self._check_move(part, tables)
        except _TooManyFilesError:
            return FileWriteObjection(format_policy_notice("too_many_files"))
        except WorkspaceError as error:
            return FileWriteObjection(str(error))

    def find_line_objection(self, parts: Sequence[SimpleShellCommand]) -> str | None:
        """Return why accepted commands of a line need approval because of its other parts."""
        if len(parts) == 1 or not any(map(is_checked := _is_checked_command, parts)):
            return None
        if any(not part.read_only and not is_accepted_command(part) for part in parts):
            return format_policy_notice("mixed_line")
        for mover in filter(is_checked, parts):
            for source in self._list_absolute(_list_sources(mover)):
                for other in parts:
                    written = self._list_absolute(other.writes) if other is not mover else ()
                    may_fill = any(f"{path}/".startswith(f"{source}/") for path in written if path != source)
                    is_moved = _is_mover(other) and any(_is_related(path, source) for path in written)
                    if may_fill or is_moved:
                        return format_policy_notice("chained_moves")
        return None

    def _list_absolute(self, paths: Iterable[str]) -> list[str]:
        return [normpath(self._make_absolute(path)) for path in paths]

    def _make_absolute(self, path: str) -> str:
        return path if path.startswith("/") else f"{self._command_paths.resolve_path('.')[0]}/{path}"

    def _check_sed(self, part: SimpleShellCommand, tables: PermissionRuleTables) -> FileWriteObjection | None:
        """Check that the script changes only the files, and where backups of them are written."""
        suffix = ""
        words: list[ShellWord] = []
        is_in_place = False
        for word in (part.argv or ())[1:]:
            match = _IN_PLACE.fullmatch(word)
            if match is None:
                words.append(ShellWord(word))
                continue
            is_in_place = True
            suffix = match["short"] or match["long"] or suffix
        if not is_in_place or not _SUFFIX.fullmatch(suffix) or not judge_sed(words).read_only:
            return FileWriteObjection(format_policy_notice("unclear_script"))
        backups = (f"{path}{suffix}" for path in part.changes if suffix)
        return self._check_new_files(backups, tables)

    def _check_removal(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> FileWriteObjection | None:
        """Check what is removed, also what may not be read: nobody would notice the loss."""
        is_recursive = any(map(_RECURSIVE.fullmatch, part.argv or ()))
        for path in part.changes:
            for each in self._iter_operand_paths(path):
                real, _ = self._command_paths.resolve_path(each)
                entries = (entry.path for entry in self._iter_entries(real)) if is_recursive else ()
                for removed in (real, *entries):
                    if objection := self._check_old_file(removed, tables.shell_write_rules):
                        return objection
        return None

    def _check_move(
        self, part: SimpleShellCommand, tables: PermissionRuleTables
    ) -> FileWriteObjection | None:
        sources, targets = _list_sources(part), _list_targets(part)
        if not sources or any(map(GLOB.search, targets)):
            return FileWriteObjection(format_policy_notice("unclear_move"))
        is_move = part.argv is not None and part.argv[0] == "mv"
        for path in sources:
            for source in self._iter_operand_paths(path):
                name = source.rstrip("/").rpartition("/")[2]
                if name in ("", ".."):
                    return FileWriteObjection(format_policy_notice("unclear_move"))
                if Path(self._make_absolute(source).rstrip("/")).is_symlink():
                    return FileWriteObjection(
                        format_policy_notice("moved_link", path=escape_filename(source))
                    )
                # A target that does not exist now may be a directory once an earlier part has run.
                new_places = [*targets, *(f"{target}/{name}" for target in targets)]
                objection = self._check_new_files(new_places, tables) or self._check_moved_tree(
                    self._command_paths.resolve_path(source)[0], new_places, tables, is_move=is_move
                )
                if objection is not None:
                    return objection
        return None

    def _check_moved_tree(
        self, source: str, new_places: Sequence[str], tables: PermissionRuleTables, *, is_move: bool
    ) -> FileWriteObjection | None:
        for entry in self._iter_entries(source):
            if entry.is_symlink():
                return FileWriteObjection(
                    format_policy_notice("moved_link", path=escape_filename(entry.path))
                )
            relative = entry.path[len(source) :]
            objection = (
                self._check_old_file(entry.path, tables.shell_read_rules)
                or (self._check_old_file(entry.path, tables.shell_write_rules) if is_move else None)
                or self._check_new_files((f"{place}{relative}" for place in new_places), tables)
            )
            if objection is not None:
                return objection
        return None

    def _check_old_file(self, real: str, rules: FilePermissionRuleTable) -> FileWriteObjection | None:
        if self._paths.is_change_guarded(real):
            return FileWriteObjection(
                format_policy_notice("writes_protected", path=escape_filename(real)), guarded=True
            )
        return _check_rules(real, rules)

    def _check_new_files(
        self, paths: Iterable[str], tables: PermissionRuleTables
    ) -> FileWriteObjection | None:
        for path in paths:
            real, _ = self._paths.resolve_path(path)
            if not self._paths.is_inside_workspace(real):
                return FileWriteObjection(format_policy_notice("writes_outside", path=escape_filename(path)))
            if objection := self._check_old_file(real, tables.shell_write_rules):
                return objection
        return None

    def _iter_operand_paths(self, path: str) -> Iterator[str]:
        """Yield the paths that an operand may mean, without following links; a superset for wildcards."""
        yield path
        head, slash, pattern = path.rstrip("/").rpartition("/")
        if not GLOB.search(path):
            return
        if GLOB.search(head):
            raise WorkspaceError(format_policy_notice("unclear_move"))
        matches = re.compile(".*" if "[" in pattern else translate(pattern), re.DOTALL).match
        directory = self._make_absolute(head or ("/" if slash else "."))
        yield from (f"{head}{slash}{entry.name}" for entry in _list_entries(directory) if matches(entry.name))

    def _iter_entries(self, directory: str) -> Iterator[os.DirEntry[str]]:
        """Yield everything in a directory tree without following links."""
        pending, count = [directory], 0
        while pending:
            for entry in _list_entries(pending.pop()):
                count += 1
                if count > _MAX_ENTRIES:
                    raise _TooManyFilesError
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def _list_entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        # A directory that cannot be listed cannot be checked.
        raise _TooManyFilesError from error


def _check_rules(real: str, rules: FilePermissionRuleTable) -> FileWriteObjection | None:
    if rules.forbids_nothing:
        return None
    rule = rules.deny.find_match(real) or rules.ask.find_match(real)
    if rule is None:
        return None
    return FileWriteObjection(
        format_policy_notice("changed_by_rule", path=escape_filename(real), rule=rule), guarded=True
    )


def _is_mover(part: SimpleShellCommand) -> bool:
    return bool(part.argv) and part.argv is not None and part.argv[0] in _MOVERS


def _is_related(first: str, second: str) -> bool:
    """Return True if two paths are the same, or one contains the other."""
    return f"{first}/".startswith(f"{second}/") or f"{second}/".startswith(f"{first}/")


def _list_operands(part: SimpleShellCommand) -> list[str]:
    words = list((part.argv or ())[1:])
    if "--" in words:
        index = words.index("--")
        return [word for word in words[:index] if not word.startswith("-")] + words[index + 1 :]
    return [word for word in words if not word.startswith("-")]


def _list_sources(part: SimpleShellCommand) -> list[str]:
    """Return the files that a command moves or copies, as seen from each directory it may run in."""
    return join_places(_list_operands(part)[:-1], part.places) if _is_mover(part) else []


def _list_targets(part: SimpleShellCommand) -> list[str]:
    return join_places(_list_operands(part)[-1:], part.places)
