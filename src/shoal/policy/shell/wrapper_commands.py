"""Commands that run another command from their words: where it begins, and what they change for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from shoal.policy.policy_texts import format_shell_reason
from shoal.policy.shell.readonly_usage import ParsedCommandOptions, parse_command_options
from shoal.policy.shell.shell_words import ShellWord


class WrapperCommandSpec(Struct, frozen=True):
    """`operands` is the number of words before the command; `rights` is True if it runs as another user."""

    flags: str = ""
    operands: int = 0
    rights: bool = False


WRAPPERS: dict[str, WrapperCommandSpec] = {
    "time": WrapperCommandSpec("-p"),
    "nice": WrapperCommandSpec("-n: --adjustment: -NUM"),
    "nohup": WrapperCommandSpec(),
    "timeout": WrapperCommandSpec(
        "-k: --kill-after: -s: --signal: --foreground --preserve-status -v --verbose", 1
    ),
    "gtimeout": WrapperCommandSpec("-k: -s: --foreground", 1),
    "command": WrapperCommandSpec("-p"),
    "builtin": WrapperCommandSpec(),
    "exec": WrapperCommandSpec("-c -l"),
    "setsid": WrapperCommandSpec("-w -f -c --wait --fork"),
    "stdbuf": WrapperCommandSpec("-i: -o: -e: --input: --output: --error:"),
    "ionice": WrapperCommandSpec("-c: -n: -t --class: --classdata:"),
    "unbuffer": WrapperCommandSpec("-p"),
    "caffeinate": WrapperCommandSpec("-d -i -m -s -u"),
    "env": WrapperCommandSpec("-i -u: --unset: --ignore-environment -0 -"),
    "sudo": WrapperCommandSpec("-n -E -H -S -k -b -u: -g: --user: --group: --non-interactive", rights=True),
    "doas": WrapperCommandSpec("-n -u:", rights=True),
    "xargs": WrapperCommandSpec(
        """-0 --null -r --no-run-if-empty -t --verbose -n: --max-args: -P: --max-procs: -I: -L: --max-lines
        -d: --delimiter: -s: --max-chars: -x --exit -E:"""
    ),
}
_APPENDING_FLAGS = frozenset({"-n", "--max-args", "-L", "--max-lines"})
"""Flags of xargs with which input is appended at the end."""
FIND_EXEC_FLAGS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""Flags of find that run commands."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_ASSIGNMENT = re.compile(r"([^=]+?)\+?=")


class UnwrappedCommand(Struct, frozen=True):
    """`sets` are variables set for the command; `trouble` says why the command is unknown."""

    words: tuple[ShellWord, ...] = ()
    sets: tuple[str, ...] = ()
    trouble: str = ""


def unwrap_command(name: str, words: Sequence[ShellWord], piped: ShellWord | None = None) -> UnwrappedCommand:
    """Return the command behind a wrapper, from the words after its name; `piped` is what xargs reads."""
    wrapper = WRAPPERS[name]
    options = parse_command_options(words, wrapper.flags, leading=True)
    if options.refused:
        return UnwrappedCommand(trouble=format_shell_reason("wrapper_flag", name=name))
    index = len(words) - len(options.operands) + wrapper.operands
    sets: list[str] = []
    if name in ("env", "sudo", "doas"):
        while index < len(words) and (match := _ASSIGNMENT.match(words[index].value or words[index].prefix)):
            sets.append(match[1])
            index += 1
    rest = tuple(words[index:])
    if any(word.many and word.value is None for word in words[:index]):
        return UnwrappedCommand(trouble=format_shell_reason("wrapper_arguments", name=name))
    if name == "xargs":
        rest = _add_xargs_input(options, rest, piped or ShellWord(None, many=True))
    return UnwrappedCommand(words=rest, sets=tuple(sets))


def _add_xargs_input(
    options: ParsedCommandOptions, rest: tuple[ShellWord, ...], piped: ShellWord
) -> tuple[ShellWord, ...]:
    """Return the command of xargs: its input is appended, or replaces a mark."""
    marks = options.get_option_values("-I")
    if options.has_any_option(("-d", "--delimiter", "-E")):
        piped = ShellWord(None, many=True)
    if not marks:
        return (*(rest or (ShellWord("echo"),)), piped)
    mark = marks[-1].value
    if not mark:
        return (ShellWord(None, many=True), *rest)
    if piped.pattern and piped.prefix and rest and rest[0].value in SHELLS:
        # Names with a meaning to the shell make the paths unknown.
        return tuple(
            ShellWord(word.value.replace(mark, piped.pattern)) if word.value else word for word in rest
        )
    replaced_words = tuple(
        piped if word.value == mark and piped.pattern else replace_placeholder_in_word(word, mark, None)
        for word in rest
    )
    # Of these flags and -I, the last one wins.
    return (*replaced_words, piped) if options.has_any_option(_APPENDING_FLAGS) else replaced_words


def replace_placeholder_in_word(
    word: ShellWord, mark: str, pattern: str | None, *, many: bool = False
) -> ShellWord:
    """Return the word with its mark replaced by something known only at run time."""
    if word.value is None or mark not in word.value:
        return word
    if word.value == mark and pattern is not None:
        prefix = "/" if pattern.startswith("/") else "./"
        return ShellWord(None, prefix=prefix, many=many, pattern=pattern)
    return ShellWord(None, prefix=word.value.partition(mark)[0], many=many)


def parse_find_exec_commands(words: Sequence[ShellWord]) -> list[tuple[ShellWord, ...]]:
    """Return the commands of find's -exec and similar flags, with the found path in place of `{}`."""
    start_path = (
        words[0].value
        if words and not words[0].may_be_flag
        else None
        if words and words[0].value is None
        else "."
    )
    has_more_paths = any(not word.may_be_flag for word in words[1:2])
    commands: list[tuple[ShellWord, ...]] = []
    for index, word in enumerate(words):
        if word.value not in FIND_EXEC_FLAGS:
            continue
        end = find_exec_command_end(words, index + 1)
        if word.value in ("-execdir", "-okdir"):
            commands.append(_hide_relative_words(words[index + 1 : end]))
            continue
        pattern = None if has_more_paths or start_path is None else f"{start_path}/*"
        many = end < len(words) and words[end].value == "+"
        commands.append(
            tuple(
                replace_placeholder_in_word(each, "{}", pattern, many=many) for each in words[index + 1 : end]
            )
        )
    return commands


def _hide_relative_words(words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return a command that runs in a directory known only at run time, where its words mean other files."""
    return tuple(
        word if index == 0 or (word.value or "").startswith("-") else ShellWord(None)
        for index, word in enumerate(words)
    )


def find_exec_command_end(words: Sequence[ShellWord], start: int) -> int:
    """Return the index where a command of find's -exec ends; a plus ends it only after `{}`."""
    for index in range(start, len(words)):
        value = words[index].value
        if value == ";" or (value == "+" and index > start and words[index - 1].value == "{}"):
            return index
    return len(words)


def get_shell_dash_c_script(words: Sequence[ShellWord]) -> ShellWord | None:
    """Return the script of `sh -c`; None if there is none, or if other flags change how it is read."""
    for index, word in enumerate(words):
        value = word.value
        if value is None or not value.startswith("-"):
            return None
        if re.fullmatch(r"-[eluxi]*c", value):
            next_word = words[index + 1] if index + 1 < len(words) else None
            if next_word is not None and (next_word.value or "").startswith("-"):
                return None
            return next_word
        if not re.fullmatch(r"-[elux]+|--login|--norc|--noprofile", value):
            return None
    return None
