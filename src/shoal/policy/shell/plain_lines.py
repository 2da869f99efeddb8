"""Fast path for plain command lines, which are read without the parser because they are unambiguous.

Words consist of letters, digits and signs without a special meaning, or are quoted with nothing to expand;
one blank separates them. Pipes, lists and a final output redirection are allowed. Every other line goes to
the parser, which reads these lines the same way.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from msgspec import Struct

from shoal.policy.shell.command_expansion import (
    ShellSyntaxWalkState,
    UnexpandedShellCommand,
    expand_found_command,
)
from shoal.policy.shell.command_judge import is_plain_git_flag, is_plain_reader, takes_git_names
from shoal.policy.shell.evaluated_text import EVALUATING_BUILTINS
from shoal.policy.shell.known_commands import RESERVED_WORDS, STATE_CHANGING_BUILTINS
from shoal.policy.shell.redirections import add_redirect_target
from shoal.policy.shell.shell_words import SIMPLE_WORD, ShellWord
from shoal.policy.shell.simple_commands import SimpleShellCommand
from shoal.policy.shell.wrapper_commands import SHELLS, WRAPPERS

_ENDS = r"(?=[ ;]|\Z)"
_IN_QUOTES = r"\"[ #%-\[\]-_a-~]*+\"|'[ -&(-~]*+'"
_NAME = rf"(?>{SIMPLE_WORD.pattern}){_ENDS}"
_WORD = rf"(?>{SIMPLE_WORD.pattern}|{_IN_QUOTES}){_ENDS}"
# Atomic groups: possessive quantifiers of groups backtrack incorrectly before Python 3.11.5.
_COMMAND = rf"{_NAME}(?>(?: {_WORD})*)(?>(?: 2>(?:&1|/dev/null){_ENDS})?)"
_BETWEEN = r"(?: \|| &&| \|\||;) "
_LINE = re.compile(rf"({_COMMAND}(?>(?:{_BETWEEN}{_COMMAND})*))(?: (>>?) ?({_NAME})(?: 2>&1)?)?")
_LISTED = re.compile(_BETWEEN)
_QUOTED = re.compile(_IN_QUOTES)
_QUOTE_MARK = "'"
"""Stands for a quoted word while the line is split; a plain line cannot contain it otherwise."""
_MAX_LENGTH = 2_000
_STATEFUL_COMMANDS = EVALUATING_BUILTINS | {"cd", "pushd", "popd", "chdir"}
"""Commands that tell the walk something about later commands."""
_SPECIAL_NAMES = (
    *(RESERVED_WORDS, STATE_CHANGING_BUILTINS, WRAPPERS, SHELLS, _STATEFUL_COMMANDS),
    frozenset({"eval", "trap", "source", ".", "find"}),
)
"""Names of commands that the walk expands in another way."""
_PATH_STARTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./")
_READONLY_COMMANDS: dict[str, SimpleShellCommand] = {}
"""Read-only commands at the top of plain lines by their text, which alone decides what they are."""
_MAX_READONLY_COMMANDS = 1_000
_GIT_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./~^@-]*")
"""Revisions and files; a colon may stand for a transport."""
# Words that begin a construct or a declaration, which sets variables.
_KEYWORDS = RESERVED_WORDS | {"declare", "typeset", "export", "readonly", "local", "unset", "unsetenv"}


class ParsedPlainCommandLine(Struct, frozen=True):
    """Simple commands, as written and word by word, and the output file of the last one."""

    commands: list[tuple[str, list[str]]]
    sign: str | None
    target: str | None


@lru_cache(maxsize=16)
def parse_plain_command_line(text: str) -> ParsedPlainCommandLine | None:
    """Parse the line, or return None if it is not plain."""
    match = _LINE.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        return None
    line, sign, target = match.groups()
    quoted: list[str] = []
    if "'" in line or '"' in line:
        quoted = _QUOTED.findall(line)
        line = _QUOTED.sub(_QUOTE_MARK, line)
    if sign is not None and ";" in line:
        return None
    commands: list[tuple[str, list[str]]] = []
    is_list = "&&" in line or ";" in line or "||" in line
    for command_text in _LISTED.split(line) if is_list else line.split(" | "):
        words = command_text.split(" ")
        name = words[0]
        if "=" in name or name in _KEYWORDS:
            return None
        if ">" in words[-1]:  # stderr goes to stdout, or nowhere
            command_text = command_text[: -len(words.pop()) - 1]  # noqa: PLW2901
        commands.append(
            _restore_quoted_words(words, quoted) if quoted and _QUOTE_MARK in words else (command_text, words)
        )
    return ParsedPlainCommandLine(commands, sign, target)


def _restore_quoted_words(words: list[str], quoted: list[str]) -> tuple[str, list[str]]:
    """Return a command with its quoted words restored; they are taken from the front of `quoted`."""
    values: list[str] = []
    for index, word in enumerate(words):
        if word == _QUOTE_MARK:
            words[index] = quoted.pop(0)
            values.append(words[index][1:-1])
        else:
            values.append(word)
    return " ".join(words), values


def list_reading_commands(text: str) -> tuple[SimpleShellCommand, ...] | None:
    """Return the commands of a plain line of which each is known, or only reads the files that it names.

    Return None for every other line, which needs the walk.
    """
    line = parse_plain_command_line(text)
    if line is None or "xargs" in text:
        return None
    parts: list[SimpleShellCommand] = []
    for command, words in line.commands:
        part = _READONLY_COMMANDS.get(command) or _build_reading_command(command, words)
        if part is None:
            return None
        parts.append(part)
    if line.sign is not None:
        target = line.target or ""
        if len(parts) == 1 or target[0] == "/" or target[0] not in _PATH_STARTS:
            return None
        parts.append(
            SimpleShellCommand(text=text, argv=(), writes=(target,), read_only=True, why="it redirects")
        )
    return tuple(parts)


def add_plain_line_commands(
    text: str, line: ParsedPlainCommandLine, via: tuple[str, ...], walk: ShellSyntaxWalkState
) -> None:
    """Add the simple commands of a line, as the walk over its tree would."""
    is_pipe = "xargs" in text and not any(sign in text for sign in ("&&", "||", ";"))
    single_writes = _resolve_redirect_writes(line, walk) if len(line.commands) == 1 else ()
    is_top = not via and not walk.outer and not walk.repeated and not walk.trapped and not single_writes
    for index, (command, words) in enumerate(line.commands):
        if is_pipe:
            walk.piped_from = " | ".join(each for each, _ in line.commands[:index])
        elif is_top and not walk.directories.may_have_moved:
            part = _READONLY_COMMANDS.get(command) or _build_reading_command(command, words)
            if part is not None:
                walk.parts.append(part)
                continue
        old_count = len(walk.parts)
        expand_found_command(
            UnexpandedShellCommand(
                text=command,
                words=tuple(map(ShellWord, words)),
                via=via,
                writes=single_writes,
                outer=walk.outer,
            ),
            walk,
        )
        if is_top and not is_pipe and len(walk.parts) == old_count + 1:
            _keep_readonly_command(command, walk.parts[-1])
    if len(line.commands) > 1 and (writes := _resolve_redirect_writes(line, walk)):
        walk.parts.append(
            SimpleShellCommand(text=text, argv=(), via=via, writes=writes, read_only=True, why="it redirects")
        )


def _build_reading_command(text: str, words: list[str]) -> SimpleShellCommand | None:
    """Return a command that only reads the files that its words name, or None; the walk builds the same."""
    name, *operands = words
    if name == "git":
        return _build_git_query(text, words)
    if not _is_plain_reader(name):
        return None
    for operand in operands:
        if not operand or operand[0] not in _PATH_STARTS:
            return None
    argv = tuple(words)
    part = SimpleShellCommand(
        text=text,
        argv=argv,
        words=argv,
        reads=tuple(operands) if len(operands) < 2 else tuple(dict.fromkeys(operands)),
        read_only=True,
        why=f"{name} is read-only",
    )
    _add_readonly_command(text, part)
    return part


def _build_git_query(text: str, words: list[str]) -> SimpleShellCommand | None:
    """Return a git command that only reads and names no file, or None; the walk builds the same."""
    if len(words) < 2 or not takes_git_names(subcommand := words[1]):
        return None
    for word in words[2:]:
        if word[:1] == "-":
            # The number of a count such as `-20` does not matter.
            if not is_plain_git_flag(subcommand, "-1" if word[1:].isdigit() else word):
                return None
        elif not _GIT_NAME.fullmatch(word):
            return None
    argv = tuple(words)
    part = SimpleShellCommand(
        text=text, argv=argv, words=argv, read_only=True, why=f"git {subcommand} is read-only"
    )
    _add_readonly_command(text, part)
    return part


@cache
def _is_plain_reader(name: str) -> bool:
    return is_plain_reader(name) and not any(name in names for names in _SPECIAL_NAMES)


def is_kept_command(part: SimpleShellCommand) -> bool:
    """Return True if the same object stands for this command the next time."""
    return _READONLY_COMMANDS.get(part.text) is part


def _keep_readonly_command(text: str, part: SimpleShellCommand) -> None:
    """Keep a command that changes nothing for the ones after it, so that the same text is judged once."""
    if (
        not part.read_only
        or part.via
        or not part.argv
        or part.argv[0] in _STATEFUL_COMMANDS
        or part.places != ("",)
    ):
        return
    _add_readonly_command(text, part)


def _add_readonly_command(text: str, part: SimpleShellCommand) -> None:
    if len(_READONLY_COMMANDS) >= _MAX_READONLY_COMMANDS:
        _READONLY_COMMANDS.clear()
    _READONLY_COMMANDS[text] = part


def _resolve_redirect_writes(line: ParsedPlainCommandLine, walk: ShellSyntaxWalkState) -> tuple[str, ...]:
    if line.sign is None:
        return ()
    writes: list[ShellWord] = []
    add_redirect_target(line.sign, ShellWord(line.target), [], writes)
    return walk.directories.resolve_paths(writes)
