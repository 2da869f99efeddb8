"""Expansion of one found command: itself, the command behind a wrapper, or a script in its words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from shoal.policy.policy_texts import format_shell_reason
from shoal.policy.shell.code_variables import find_variable_code, is_code_variable
from shoal.policy.shell.command_judge import judge_shell_command
from shoal.policy.shell.evaluated_text import EVALUATING_BUILTINS, ShellVariables, note_evaluated_words
from shoal.policy.shell.known_commands import (
    HARMLESS_VARIABLES,
    RESERVED_WORDS,
    STATE_CHANGING_BUILTINS,
    names_display_file,
)
from shoal.policy.shell.program_judges import get_found_name_pattern, list_tested_files
from shoal.policy.shell.readonly_usage import ReadOnlyCommandVerdict
from shoal.policy.shell.run_text import find_run_text, may_read_settings
from shoal.policy.shell.shell_directories import PossibleShellDirectories
from shoal.policy.shell.shell_syntax import UnjudgeableCommandError
from shoal.policy.shell.shell_words import FOUND_PATHS, ShellWord
from shoal.policy.shell.simple_commands import SimpleShellCommand, shell_home
from shoal.policy.shell.wrapper_commands import (
    SHELLS,
    WRAPPERS,
    get_shell_dash_c_script,
    parse_find_exec_commands,
    unwrap_command,
)

_SUCCESSES = re.compile(r"(?:[^;&|\n]|&&)*")
"""Command lines in which each command runs only if all before it succeeded."""
_MAX_WRAPPING = 12
_SYSTEM_DIRECTORIES = ("/bin/", "/usr/bin/")
_DIRECTORY_BUILTINS = frozenset({"cd", "pushd", "popd", "chdir"})
_SCRIPT_FLAG = re.compile(r"-[a-zA-Z]*[cs]|--(?:rcfile|init)|[+-][a-zA-Z]*[oO]")
"""Shell flags with which the first operand is not the script, or not the only one."""
_INPUT_FILES = ("/dev/", "/proc/")
_PLAIN_SHELL_OPTIONS = frozenset(
    {"-s", "-u", "-q", "globstar", "dotglob", "failglob", "inherit_errexit", "lastpipe", "nocasematch"}
)
"""Options of shopt that do not change the meaning of words."""
_BARE_COMMANDS: dict[str, frozenset[str]] = {"hash": frozenset({"-r"}), "shopt": _PLAIN_SHELL_OPTIONS}
"""Builtins that do not affect later words if they have only these arguments."""


class UnexpandedShellCommand(Struct, frozen=True, kw_only=True):
    """Simple command as found by the walk: its words, variables set for it, and redirections."""

    text: str
    words: tuple[ShellWord, ...]
    via: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    found_name: str = "*"
    outer: tuple[tuple[str | None, ...], ...] = ()
    """Words of the commands that run it."""


class _NamedFiles(Struct, frozen=True):
    """Files that the arguments of a command name: read, or changed."""

    reads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    follows_links: bool = False


_NO_FILES = _NamedFiles()


class ShellSyntaxWalkState(Protocol):
    parts: list[SimpleShellCommand]
    directories: PossibleShellDirectories
    repeated: int
    """Number of enclosing loops and functions, whose commands may run any number of times."""
    trapped: bool
    """True if a trap was set; its command was judged from the directory at that time."""
    text: str
    """The whole script that is walked."""
    outer: tuple[tuple[str | None, ...], ...]
    """Words of the commands that run the script."""
    are_paths_unknown: bool
    piped_from: str
    """Commands whose output the current command reads, or an empty text."""

    @property
    def variables(self) -> ShellVariables: ...

    def note_trouble(self, key: str, /, **values: object) -> None: ...

    def find_output(self, commands: str) -> ShellWord | None: ...

    def walk_script(
        self, text: str, via: tuple[str, ...] = (), outer: tuple[tuple[str | None, ...], ...] = ()
    ) -> None: ...

    def add_code(self, *code: str | None) -> None: ...


def expand_found_command(found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    """Add the simple commands that a found command leads to."""
    if len(found.via) > _MAX_WRAPPING:
        raise UnjudgeableCommandError("deep_wrapping")
    if not found.words:
        _append_simple_command(
            found,
            walk,
            read_only=not found.sets,
            reason=format_shell_reason("sets_variables") if found.sets else "it redirects",
        )
        return
    name = _get_command_name(found.words[0])
    if name is None:
        _append_simple_command(
            found, walk, read_only=False, reason=format_shell_reason("unknown_name"), doubt=True
        )
    elif name in RESERVED_WORDS and name != "[[":
        _expand_reserved_word(name, found, walk)
    elif name in STATE_CHANGING_BUILTINS:
        _expand_state_changing_builtin(name, found, walk)
    elif name in WRAPPERS:
        _expand_wrapper_command(name, found, walk)
    elif name in SHELLS:
        _expand_shell_invocation(name, found, walk)
    elif name in ("eval", "trap"):
        _expand_eval_or_trap_command(name, found, walk)
    else:
        _expand_plain_command(name, found, walk)
        if name in ("source", ".") and _is_input_sourced(found):
            _append_unknown_command(name, found, walk)


def _is_input_sourced(found: UnexpandedShellCommand) -> bool:
    """Return True if `source` reads its input, or no file that is named."""
    operands = [word for word in found.words[1:] if word.value != "--"]
    return not operands or _is_input_file(operands[0])


def _expand_reserved_word(name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    if name != "coproc" or len(found.words) == 1 or found.words[1].value in RESERVED_WORDS:
        raise UnjudgeableCommandError("unknown_construct", text=name)
    walk.note_trouble("unknown_construct", text=name)
    expand_found_command(replace(found, words=found.words[1:], via=(*found.via, name)), walk)


def _get_command_name(word: ShellWord) -> str | None:
    name = word.value
    if name is not None and name.startswith(_SYSTEM_DIRECTORIES):
        return name.rpartition("/")[2] if name.count("/") == (2 if name.startswith("/bin/") else 3) else name
    return name


def _find_code(
    name: str, found: UnexpandedShellCommand, verdict: ReadOnlyCommandVerdict, walk: ShellSyntaxWalkState
) -> tuple[str | None, ...]:
    """Return text that a command may run."""
    if not verdict.read_only:
        return find_run_text(name, found.words[1:], walk.text, is_runner=bool(verdict.doubt))
    # A variable may name settings that are in the command line.
    return (walk.text.strip(),) if found.sets and may_read_settings(found.words[1:], walk.text) else ()


def _expand_plain_command(name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    rest = found.words[1:]
    if name in _DIRECTORY_BUILTINS:
        _note_directory_change(name, rest, walk)
    if name == "cd":
        _expand_cd_command(found, walk)
        return
    if name == "[[":
        tested = walk.directories.resolve_paths(list_tested_files(rest))
        _append_simple_command(
            found, walk, read_only=True, reason="it only compares values", files=_NamedFiles(reads=tested)
        )
        return
    if name in EVALUATING_BUILTINS:
        note_evaluated_words(name, rest, walk.variables)
        if any(word.value and is_code_variable(word.value.removeprefix("-v")) for word in rest):
            walk.add_code(None)
        if name in ("let", "unset"):
            walk.note_trouble("later_reading", name=name)
    verdict = judge_shell_command(name, rest, moved=walk.directories.may_have_moved)
    resolve_paths = walk.directories.resolve_paths
    code = _find_code(name, found, verdict, walk)
    _append_simple_command(
        found,
        walk,
        read_only=verdict.read_only,
        reason=verdict.why,
        doubt=bool(verdict.doubt),
        code=code,
        files=_NamedFiles(
            resolve_paths(verdict.reads) if verdict.reads else (),
            resolve_paths(verdict.writes) if verdict.writes else (),
            verdict.follows_links,
        )
        if verdict.reads or verdict.writes
        else _NO_FILES,
    )
    if name == "find":
        for command in parse_find_exec_commands(rest):
            expand_found_command(
                UnexpandedShellCommand(
                    text=found.text,
                    words=command,
                    via=(*found.via, "find"),
                    found_name=get_found_name_pattern(rest),
                    sets=found.sets,
                    outer=found.outer,
                ),
                walk,
            )


def _note_directory_change(name: str, words: Sequence[ShellWord], walk: ShellSyntaxWalkState) -> None:
    if walk.repeated or walk.trapped:
        walk.note_trouble("changes_directory_repeatedly" if walk.repeated else "changes_directory_in_trap")
        walk.are_paths_unknown = True
    if name != "cd":
        is_plain = name != "popd" and len(words) == 1 and (words[0].value or "-")[:1] not in "+-"
        walk.directories.add_cd_target(words[0] if is_plain and not words[0].many else ShellWord(None))


def _expand_state_changing_builtin(
    name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState
) -> None:
    if name == "alias" and len(found.words) == 1:
        _append_simple_command(found, walk, read_only=True, reason="it only shows the aliases")
        return
    if not all(word.value in _BARE_COMMANDS.get(name, ()) for word in found.words[1:]):
        raise UnjudgeableCommandError("later_reading", name=name)
    walk.note_trouble("later_reading", name=name)
    reason = format_shell_reason("later_reading", name=name)
    _append_simple_command(found, walk, read_only=False, reason=reason)


def _is_input_file(word: ShellWord) -> bool:
    """Return True if a script is not a file: the input of the shell, a stream, or known only at run time."""
    return word.value is None or word.value == "-" or word.value.startswith(_INPUT_FILES)


def _expand_cd_command(found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    operands = [word for word in found.words[1:] if word.value not in ("-L", "-P", "--")]
    is_plain = len(operands) <= 1 and not any(word.many or word.may_be_flag for word in operands)
    directories = walk.directories
    if directories.may_have_moved and _SUCCESSES.fullmatch(walk.text):
        # This one is reached only if the `cd` before it succeeded.
        directories = PossibleShellDirectories(directories.candidates[1:])
    # Without an operand, it changes to the home directory.
    target = (operands[0] if operands else ShellWord(shell_home.get())) if is_plain else ShellWord(None)
    reads = (directories if is_plain else walk.directories).resolve_paths((target,))
    walk.directories.add_cd_target(target)
    _append_simple_command(
        replace(found, reads=(*found.reads, *reads)),
        walk,
        read_only=is_plain,
        reason=format_shell_reason("changes_directory"),
    )


def _expand_wrapper_command(name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    rest = found.words[1:]
    if name == "command" and rest and rest[0].value in ("-v", "-V"):
        # A name with a slash is a file.
        named = [word for word in rest[1:] if "/" in (word.value or word.prefix)]
        files = _NamedFiles(walk.directories.resolve_paths(named)) if named else _NO_FILES
        _append_simple_command(
            found, walk, read_only=True, reason="it only prints the path of a command", files=files
        )
        return
    piped = None
    if name == "xargs" and walk.piped_from and not found.via and "<" not in walk.text:
        piped = walk.find_output(walk.piped_from)
    inner = unwrap_command(name, rest, piped)
    if inner.trouble:
        _append_simple_command(found, walk, read_only=False, reason=inner.trouble, doubt=True)
        _append_unknown_command(name, found, walk)
        return
    if not inner.words:
        _append_simple_command(
            found,
            walk,
            read_only=name in ("exec", "time"),
            reason=format_shell_reason("no_inner_command", name=name),
        )
        return
    if WRAPPERS[name].rights:
        _append_simple_command(
            found, walk, read_only=False, reason=format_shell_reason("other_privileges", name=name)
        )
    for word in rest[: len(rest) - len(inner.words)] if inner.sets else ():
        variable, _, value = (word.value or word.prefix).partition("=")
        if names_display_file(variable, None if word.value is None else value):
            walk.note_trouble("sets_variable", name=variable)
        if code := find_variable_code(variable, None if word.value is None else value):
            walk.add_code(*code)
    inner_found = replace(
        found,
        words=inner.words,
        via=(*found.via, name),
        sets=(*found.sets, *inner.sets),
        outer=(*found.outer, _get_known_words(found)),
        found_name=found.found_name if piped is None else _get_piped_name(walk),
    )
    if name == "exec" and inner.words[0].value is None and inner.words[0].many:
        _append_simple_command(
            found, walk, read_only=False, reason=format_shell_reason("unknown_name"), doubt=True
        )
        _append_unknown_command(name, found, walk)
        return
    expand_found_command(inner_found, walk)


def _get_piped_name(walk: ShellSyntaxWalkState) -> str:
    """Return a pattern for the names of links that `find` passes through a pipe."""
    for part in reversed(walk.parts):
        if part.words[:1] == ("find",) and walk.piped_from.startswith(part.text):
            return get_found_name_pattern([ShellWord(word) for word in part.words[1:]])
    return "*"


def _expand_shell_invocation(name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    script = get_shell_dash_c_script(found.words[1:])
    if script is None or script.value is None or found.sets:
        verdict = judge_shell_command(name, found.words[1:], moved=False)
        operand = next((word for word in found.words[1:] if not word.may_be_flag), None)
        has_script_flag = (not verdict.read_only and (operand is None or _is_input_file(operand))) or (
            any(_is_script_flag(word) for word in found.words[1:])
        )
        _append_simple_command(
            found,
            walk,
            read_only=verdict.read_only,
            reason=format_shell_reason("unknown_script", name=name),
            doubt=has_script_flag,
        )
        if has_script_flag:
            _append_unknown_command(name, found, walk)
        return
    if found.reads or found.writes:
        _append_simple_command(replace(found, words=()), walk, read_only=True, reason="it redirects")
    saved_directories = PossibleShellDirectories(walk.directories.candidates)
    walk.walk_script(script.value, (*found.via, name), (*found.outer, _get_known_words(found)))
    walk.directories = saved_directories


def _is_script_flag(word: ShellWord) -> bool:
    return word.value is None or _SCRIPT_FLAG.match(word.value) is not None


def _expand_eval_or_trap_command(
    name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState
) -> None:
    rest = found.words[1:]
    if rest and rest[0].value == "--":
        rest = rest[1:]
    values = [word.value for word in rest]
    if name == "trap":
        values = values[:1]
    if not values or None in values or any(word.many for word in rest) or found.sets:
        _append_simple_command(
            found,
            walk,
            read_only=False,
            reason=format_shell_reason("unknown_text_run", name=name),
            doubt=True,
        )
        _append_unknown_command(name, found, walk)
        return
    if found.reads or found.writes:
        _append_simple_command(replace(found, words=()), walk, read_only=True, reason="it redirects")
    walk.trapped = walk.trapped or name == "trap"
    walk.walk_script(
        " ".join(value for value in values if value is not None),
        (*found.via, name),
        (*found.outer, _get_known_words(found)),
    )


def _append_unknown_command(name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    """Add a placeholder for an unknown inner command, which a rule may forbid."""
    unknown = UnexpandedShellCommand(
        text=found.text,
        words=(ShellWord(None),),
        via=(*found.via, name),
        sets=found.sets,
        outer=(*found.outer, _get_known_words(found)),
    )
    _append_simple_command(
        unknown, walk, read_only=False, reason=format_shell_reason("unknown_run", name=name), doubt=True
    )


def _append_simple_command(
    found: UnexpandedShellCommand,
    walk: ShellSyntaxWalkState,
    *,
    read_only: bool,
    reason: str,
    doubt: bool = False,
    code: tuple[str | None, ...] = (),
    files: _NamedFiles = _NO_FILES,
) -> None:
    words: tuple[str | None, ...] = tuple([word.value for word in found.words])
    globs: tuple[int, ...] = ()
    if None in words:
        globs = tuple([index for index, word in enumerate(words) if word is None])
        words = tuple(
            [word.value if word.value is not None else _get_glob_text(word) for word in found.words]
        )
    argv = None if doubt else _return_words_if_all_known(words)
    if found.sets:
        risky_variables = [name for name in found.sets if name not in HARMLESS_VARIABLES]
        if risky_variables:
            argv, read_only, reason = (
                None,
                False,
                format_shell_reason("gets_variable", name=risky_variables[0]),
            )
    walk.parts.append(
        SimpleShellCommand(
            text=found.text,
            argv=argv,
            via=found.via,
            reads=(*found.reads, *files.reads),
            writes=(*found.writes, *files.changes),
            changes=files.changes,
            read_only=read_only,
            follows_links=files.follows_links,
            # A directory of that name may contain links of any name.
            found_name="*" if files.follows_links and found.found_name else found.found_name,
            why=reason,
            words=words,
            globs=globs,
            outer=found.outer,
            code=code,
            places=walk.directories.candidates,
        )
    )


def _get_known_words(found: UnexpandedShellCommand) -> tuple[str | None, ...]:
    return tuple([word.value for word in found.words])


def _return_words_if_all_known(words: tuple[str | None, ...]) -> tuple[str, ...] | None:
    return None if None in words else cast("tuple[str, ...]", words)


def _get_glob_text(word: ShellWord) -> str | None:
    """Return a glob's own text if it can be neither a flag nor the command name."""
    is_text = word.prefix and not word.may_be_flag and word.pattern != FOUND_PATHS
    return word.pattern if is_text else None
