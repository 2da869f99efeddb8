"""Meanings of a command for rules that forbid commands: git aliases, links to programs, new scripts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from shoal.core.user_environment import UserEnvironment
from shoal.policy.command_rules import skip_git_flags
from shoal.policy.path_resolver import PathResolver
from shoal.policy.program_names import get_standard_name
from shoal.policy.repository_programs import find_repository_config_files
from shoal.policy.shell.command_analysis import ShellCommandAnalysis
from shoal.policy.shell.known_commands import GIT_SUBCOMMANDS
from shoal.policy.shell.simple_commands import SimpleShellCommand

_UNKNOWN_ALIASES = re.compile(
    r"^[ \t]*\[(?:include|alias[ \t]+\")|(?:^|\])[ \t]*autocorrect[ \t]*=", re.IGNORECASE | re.MULTILINE
)
"""Settings that can give a name any meaning: included files, alias sections, autocorrection."""

_OTHER_SETTINGS = re.compile(
    r"\b(?:HOME|PATH|XDG_CONFIG_HOME|GIT_[A-Z_]+)\+?=|alias|autocorrect|\binclude|--config|--exec-path",
    re.IGNORECASE,
)
"""Text in a command line that lets git read aliases from elsewhere, or run programs with other names."""
_FORCED_PUSH = re.compile(
    r"\bpush[ \t]*(?:=|[ \t])[ \t]*[\"']?\+|\bmirror[ \t]*(?:=[ \t]*|[ \t]+)[\"']?(?:true|yes|on|1)",
    re.IGNORECASE,
)
"""Settings of git with which a push without flags replaces branches."""
_MAX_ALIAS_DEPTH = 10
_ASSIGNMENT = re.compile(r"\b[A-Za-z_]\w*\+?=")
_SEARCH_PATH = re.compile(r"\bPATH\+?=((?:[^\s;&|)\"'`$]|\"[^\"]*\"|'[^']*'|`[^`]*`|\$\([^)]*\)|\$)*)")
_OTHER_SEARCH_PATH = re.compile(
    r"\b(?:read|printf|for|select|mapfile|readarray|getopts|unset|typeset|declare|local)\b[^;&|\n]*(?<![$\w{])PATH\b"
    r"(?!\+?=)|\bPATH:?=(?=[^;&|\n]*\})|(?<!\w)path\+?="
)
"""Other means to change the search path, of which the new value is not known."""
_OLD_PATH = ("$PATH", "${PATH}")
_QUOTE = re.compile(r"[\"']")
_CURRENT_DIRECTORY = re.compile(r"\$\{?PWD\}?|\$\(pwd\)|`pwd`")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_UNKNOWN_PART = re.compile(r"[$`*?\[{\\]|^~")
_BUILTINS = frozenset(
    """
    cd echo printf export set unset read test [ true false : pwd shift return exit declare local readonly
    typeset wait trap umask
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Builtins of the shell, for which the search path does not matter."""
_PLAIN_GIT_SUBCOMMANDS = GIT_SUBCOMMANDS - {"push", "for-each-repo"}
"""Subcommands of git that settings give no other meaning."""


def add_git_alias_commands(
    analysis: ShellCommandAnalysis, command: str, paths: PathResolver
) -> ShellCommandAnalysis:
    """Return the analysis with the commands that aliases of git stand for."""
    found = [each for part in analysis.parts for each in _iter_alias_commands(part, command, paths)]
    return replace(analysis, parts=(*analysis.parts, *found)) if found else analysis


def _iter_alias_commands(
    part: SimpleShellCommand, command: str, paths: PathResolver
) -> Iterator[SimpleShellCommand]:
    words = part.words if part.argv is None else part.argv
    if not words or words[0] is None or not words[0].endswith("git"):
        return
    if len(words) > 1 and words[1] in _PLAIN_GIT_SUBCOMMANDS:
        return
    rest = skip_git_flags(words)
    if rest[1:2] == ("push",) and _may_force_push(command, paths.root):
        yield replace(part, argv=None, words=(*words, "--force", "--mirror"), code=())
    if rest[1:2] == ("for-each-repo",):
        yield replace(part, argv=None, words=("git",), code=(None,))
    yield from _iter_meanings(part, ("git", *rest[1:]), command, paths, depth=0)


def _may_force_push(command: str, root: str) -> bool:
    """Return True if settings of the repository, or of the command line, make every push a forced one."""
    if _FORCED_PUSH.search(command):
        return True
    for path in find_repository_config_files(root):
        try:
            content = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            continue
        if _FORCED_PUSH.search(content):
            return True
    return False


def _iter_meanings(
    part: SimpleShellCommand, words: tuple[str | None, ...], command: str, paths: PathResolver, *, depth: int
) -> Iterator[SimpleShellCommand]:
    """Yield what a subcommand that is not one of git's own may stand for."""
    name = words[1] if len(words) > 1 else None
    if name is None or name in GIT_SUBCOMMANDS:
        return
    is_elsewhere = part.places != ("",) or (part.words[1:2] or ("",))[0] != name
    for value in (
        *_iter_alias_values(name, command, paths),
        *((None,) if is_elsewhere and depth == 0 else ()),
    ):
        if value is None or value.startswith("!") or depth > _MAX_ALIAS_DEPTH:
            yield replace(part, argv=("git", name), words=("git", name), code=(value,))
            continue
        meaning = skip_git_flags(("git", *_split_alias(value), *words[2:]))
        yield replace(part, argv=None, words=("git", *_split_alias(value), *words[2:]), code=())
        yield from _iter_meanings(part, meaning, command, paths, depth=depth + 1)


def _iter_alias_values(name: str, command: str, paths: PathResolver) -> Iterator[str | None]:
    """Yield the values that an alias may have; None for one that is not known."""
    if _OTHER_SETTINGS.search(command) or _is_program(f"git-{name}", paths.user):
        yield None
    definition = re.compile(
        rf"(?:^|\])[ \t]*{re.escape(name)}[ \t]*=[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE
    )
    for path in (*_list_user_config_files(paths.user), *find_repository_config_files(paths.root)):
        try:
            content = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            continue
        for match in definition.finditer(content):
            value = match[1].strip().removeprefix('"').removesuffix('"')
            yield None if "\\" in value else value
        if _UNKNOWN_ALIASES.search(content):
            yield None


def _is_program(name: str, user: UserEnvironment) -> bool:
    from shutil import which

    return which(name, path=user.variables.get("PATH", os.defpath)) is not None


def _list_user_config_files(user: UserEnvironment) -> Sequence[str]:
    own = user.variables.get("XDG_CONFIG_HOME") or f"{user.home}/.config"
    return "/etc/gitconfig", f"{user.home}/.gitconfig", f"{own}/git/config"


def _split_alias(value: str) -> Sequence[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def add_commands_of_variables(analysis: ShellCommandAnalysis, command: str) -> ShellCommandAnalysis:
    """Return the analysis with the commands of programs that take arguments from a variable of the line."""
    if not _ASSIGNMENT.search(command):
        return analysis
    from shoal.policy.command_synonyms import ARGUMENT_VARIABLES, HOOK_VARIABLES

    programs = {name for names, users in ARGUMENT_VARIABLES if re.search(names, command) for name in users}
    skips_hooks = re.search(HOOK_VARIABLES, command) is not None
    found: list[SimpleShellCommand] = []
    for part in analysis.parts:
        name = get_standard_name(part.words[0]) if part.words and part.words[0] else ""
        if name in programs:
            found.append(replace(part, argv=None, words=(part.words[0], None), globs=()))
        if skips_hooks and name == "git":
            found.append(replace(part, argv=None, words=(*part.words, "--no-verify")))
    return replace(analysis, parts=(*analysis.parts, *found)) if found else analysis


def add_linked_programs(
    analysis: ShellCommandAnalysis, command: str, paths: PathResolver
) -> ShellCommandAnalysis:
    """Return the analysis with the programs that links lead to, under their real names."""
    root = paths.root
    directories = _list_searched_directories(command, root, paths.user)
    found = [
        replace(part, argv=None, words=(program, *part.words[1:]), outer=())
        for part in analysis.parts
        for program in _iter_programs(part, root, directories)
    ]
    return replace(analysis, parts=(*analysis.parts, *found)) if found else analysis


def _list_searched_directories(command: str, root: str, user: UserEnvironment) -> list[str | None]:
    """List the directories that the command line adds to the search path; None for one that is not known."""
    if "PATH" not in command:
        return []
    found: list[str | None] = [None] if _OTHER_SEARCH_PATH.search(command) else []
    for match in _SEARCH_PATH.finditer(command):
        text = _QUOTE.sub("", match[1])
        entries = _CURRENT_DIRECTORY.sub(root, text).split(":")
        found += [_expand_variables(entry, command, user) for entry in entries if entry not in _OLD_PATH]
    return found


def _expand_variables(entry: str, command: str, user: UserEnvironment) -> str | None:
    """Return an entry with the variables of the environment that the command line does not set, or None."""
    for match in _VARIABLE.finditer(entry):
        name = match[1] or match[2]
        if name not in user.variables or re.search(
            rf"\b{name}\b(?!\}})(?<!\${name})", command.replace(match[0], "")
        ):
            return None
    expanded = _VARIABLE.sub(lambda match: user.variables[match[1] or match[2]], entry)
    if expanded.startswith("~/"):
        expanded = user.home + expanded[1:]
    return None if _UNKNOWN_PART.search(expanded) else expanded


def _iter_programs(
    part: SimpleShellCommand, root: str, directories: list[str | None]
) -> Iterator[str | None]:
    """Yield the programs that a name may mean under their real names; None for one that is not known."""
    name = part.words[0] if part.words else None
    if not name:
        return
    if None in directories and "/" not in name and name not in _BUILTINS:
        yield None
    known = [directory for directory in directories if directory is not None]
    candidates = [name] if "/" in name else [f"{directory or '.'}/{name}" for directory in known]
    for place in part.places:
        for candidate in candidates:
            # Both absolute: joining keeps the last absolute path.
            path = os.path.join(root, place, candidate)  # noqa: PTH118
            try:
                real = os.path.realpath(path)
            except OSError:
                # A link that may not be read, as those of another process.
                yield None
                continue
            if real.rpartition("/")[2] != name.rpartition("/")[2] and os.access(real, os.X_OK):
                yield real
