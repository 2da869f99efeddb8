"""Checks a command's words against the flags and operands under which it only reads."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from shoal.policy.policy_texts import format_shell_reason
from shoal.policy.shell.known_commands import SECRET_NAME
from shoal.policy.shell.shell_words import ShellWord, list_globbed_directories

OperandKind = Literal["paths", "text", "pattern", "one", "none", "plus", "name"]
"""Kind of operands: files it reads, plain text, a pattern followed by files, at most one file (a second one
would be written), none, formats that begin with a plus sign, or names of settings that hold no secret.
"""
FlagStyle = Literal["", "apart", "next"]
"""How a program reads its flags: in the usual way, each in a separate word, or with values always in the next
word, so that letters after one that takes a value are flags as well.
"""


_PATTERN_FLAGS = frozenset({"-e", "-f", "--regexp", "--file", "--files"})
_POSSIBLE_PATTERN_FLAG = re.compile(r"-[^-].*[ef]|-[ef]|--reg|--file|--from")
"""Used where any flag is allowed; a long flag may be abbreviated."""
_POSSIBLE_RECURSIVE_FLAG = re.compile(r"-(?!-).*[rRd]|--[rd]")
_PATTERN_FILE_FLAG = re.compile(r"-[^-ABCDdefm]*f(.+)", re.DOTALL)
"""A flag and its pattern file in one word, after flags that take no value."""
_FLAG_LETTERS = re.compile(r"-[A-Za-z0-9]*")


class ReadOnlyCommandUsageSpec(Struct, frozen=True, kw_only=True):
    """Usage under which a command only reads.

    `flags` lists the allowed flags: `:` follows one that takes a value, `?` follows a one-letter flag whose
    value must be in the same word; None means that any flag is allowed but those in `excluded`, that the
    values of `file_flags` are files it reads, and those of `value_flags` are not. With operands, one of the
    flags in `needs` must be present. `alone` is True if the command reads without any of its subcommands.
    """

    flags: str | None = None
    excluded: tuple[str, ...] = ()
    file_flags: tuple[str, ...] = ()
    value_flags: tuple[str, ...] = ()
    operands: OperandKind = "paths"
    needs: str = ""
    style: FlagStyle = ""
    subs: dict[str, ReadOnlyCommandUsageSpec] = field(default_factory=dict)
    alone: bool = True


class ReadOnlyCommandVerdict(Struct, frozen=True, kw_only=True):
    """Verdict on one use of a command; `doubt` says why even an allow rule must not cover it."""

    read_only: bool
    why: str
    reads: tuple[ShellWord, ...] = ()
    writes: tuple[ShellWord, ...] = ()
    doubt: str = ""
    follows_links: bool = False
    """True if it reads everything below `reads`, including through links."""


def build_readonly_verdict(why: str, *, reads: tuple[ShellWord, ...] = ()) -> ReadOnlyCommandVerdict:
    return ReadOnlyCommandVerdict(read_only=True, why=why, reads=reads)


def build_not_proven_readonly_verdict(key: str, /, **values: object) -> ReadOnlyCommandVerdict:
    """Return the verdict on a command that may change something; `key` names the reason in `shell.md`."""
    return ReadOnlyCommandVerdict(read_only=False, why=format_shell_reason(key, **values))


class ParsedCommandOptions(Struct, frozen=True):
    """Words after a command's name, parsed into flags and operands as the command itself does."""

    flags: tuple[tuple[str, ShellWord | None], ...]
    """Flags by name with their values; combined flags are listed one by one."""
    operands: tuple[ShellWord, ...]
    refused: str = ""
    """First word that is not allowed; nothing after it is parsed."""

    def get_option_values(self, *names: str) -> list[ShellWord]:
        return [value for name, value in self.flags if name in names and value is not None]

    def has_any_option(self, names: Container[str]) -> bool:
        return any(name in names for name, _ in self.flags)


class _CommandFlagTable(Struct, frozen=True):
    bare: frozenset[str]
    valued: frozenset[str]
    attached: frozenset[str]
    """One-letter flags whose optional value is in the same word."""


@cache
def _parse_command_flag_table(text: str) -> _CommandFlagTable:
    names = text.split()
    return _CommandFlagTable(
        frozenset(name for name in names if name[-1] not in ":?"),
        frozenset(name[:-1] for name in names if name[-1] == ":"),
        frozenset(name[:-1] for name in names if name[-1] == "?"),
    )


def is_bare_flag(word: str, usage: ReadOnlyCommandUsageSpec) -> bool:
    """Return True if a word is one allowed flag that takes no value, so that no other word belongs to it."""
    bare = _parse_command_flag_table(usage.flags or "").bare
    return word in bare or (word[:1] == "-" and word[1:].isdigit() and ("-0" in bare or "-NUM" in bare))


def judge_readonly_usage(
    name: str, words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec
) -> ReadOnlyCommandVerdict:
    """Return the verdict on the words after a command's name, given its read-only usage."""
    if words and usage.subs and (sub := words[0].value) is not None and sub in usage.subs:
        return judge_readonly_usage(f"{name} {sub}", words[1:], usage.subs[sub])
    if not usage.alone:
        return build_not_proven_readonly_verdict(
            "word_changes", name=name, word=(words and words[0].value) or "…"
        )
    if usage.flags is None:
        if usage.excluded and (flag := _find_excluded_flag(words, usage.excluded)):
            return _build_refused_verdict(name, flag, words, usage)
        return _judge_any_flags(name, words, usage)
    # A word after the file that looks like a flag may be the output file.
    options = parse_command_options(words, usage.flags, leading=usage.operands == "one", style=usage.style)
    if options.refused:
        return _build_refused_verdict(name, options.refused, words, usage)
    if usage.needs and options.operands and not options.has_any_option(usage.needs.split()):
        return build_not_proven_readonly_verdict("name_changes", name=name, flag=usage.needs.split()[0])
    return _judge_readonly_operands(
        name, options.operands, usage, gives_pattern=options.has_any_option(_PATTERN_FLAGS)
    )


def _build_refused_verdict(
    name: str, flag: str, words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec
) -> ReadOnlyCommandVerdict:
    """Return the verdict on a command with a flag that is not allowed; it may read any unknown file."""
    verdict = build_not_proven_readonly_verdict("flag_changes", name=name, flag=flag)
    unknown = tuple(word for word in words if word.value is None)
    is_reader = usage.operands in ("paths", "pattern", "one")
    return replace(verdict, reads=unknown) if unknown and is_reader else verdict


def _judge_any_flags(
    name: str, words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec
) -> ReadOnlyCommandVerdict:
    """Return the verdict on a command that may have any flag."""
    for word in words:
        if word.value is None or word.value[:1] == "-":
            break
    else:
        return _judge_readonly_operands(name, words, usage, gives_pattern=False)
    operands = [word for word in words if not word.may_be_flag or word.value is None]
    if usage.value_flags and len(operands) > 1:
        taken = _find_taken_words(words, usage)
        operands = [word for word in operands if not any(word is each for each in taken)]
    certain = sum(1 for word in operands if word.value is not None) - _count_possible_values(words, usage)
    has_operands = bool(operands)
    operands.extend(ShellWord(path) for word in words for path in _iter_flag_paths(word, usage.operands))
    files = _list_file_flag_values(words, usage.file_flags) if usage.file_flags else []
    gives_pattern = bool(files) or _may_flag_supply_pattern(words)
    verdict = _judge_readonly_operands(name, operands, usage, gives_pattern=gives_pattern)
    if usage.operands == "paths":
        may_read_all = bool(files) or (bool(verdict.reads) and not has_operands)
    else:
        # The only operand may be the pattern or a value, and then it searches the working directory.
        are_values = gives_pattern or (bool(verdict.reads) and certain < 2)
        may_read_all = usage.operands == "pattern" and are_values and _may_recurse(words)
    if may_read_all:
        files.append(ShellWord("."))
    more = [word for word in files if not any(word is each for each in verdict.reads)]
    return replace(verdict, reads=(*verdict.reads, *more)) if more else verdict


def _count_possible_values(words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec) -> int:
    """Return how many words follow an abbreviated flag that takes a value."""
    if not usage.value_flags:
        return 0
    return sum(
        1
        for word, following in pairwise(words)
        if following.value is not None
        and following.value[:1] != "-"
        and "=" not in (value := word.value or "")
        and value not in usage.value_flags
        and _match_long_flag(value, usage.value_flags)
    )


def _find_taken_words(words: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec) -> list[ShellWord]:
    """Return the words that are values of the flags before them, not operands."""
    taken: list[ShellWord] = []
    valued = (*usage.file_flags, *usage.value_flags)
    for index, word in enumerate(words[:-1]):
        value = word.value or ""
        if value == "--":
            break
        letter = _find_flag_letter(value, valued)
        is_last_letter = letter > 0 and letter == len(value) - 1
        if value in usage.value_flags or (is_last_letter and f"-{value[letter]}" in usage.value_flags):
            taken.append(words[index + 1])
    return taken


def _may_recurse(words: Sequence[ShellWord]) -> bool:
    return any(_POSSIBLE_RECURSIVE_FLAG.match(word.value or word.prefix) for word in words)


def _iter_flag_paths(word: ShellWord, kind: OperandKind) -> Iterator[str]:
    """Yield the paths in `--file=/x`, `-f/x` or `-vf/x`: an allowed flag may still name a file it reads."""
    value = word.value or ""
    if value[:1] != "-":
        return
    if value.startswith("--"):
        path = value.partition("=")[2]
    elif "/" in value:
        path = value[2:]
        # Other flags may precede the one with the path.
        if len(rest := _FLAG_LETTERS.sub("", value, count=1)) > 1 and rest != path:
            yield rest
    elif kind == "pattern" and (match := _PATTERN_FILE_FLAG.match(value)):
        path = match[1]
    else:
        return
    if len(path) > 1:
        yield path


def _find_excluded_flag(words: Sequence[ShellWord], excluded: tuple[str, ...]) -> str:
    """Return the first word that has an excluded flag, even abbreviated or among other letters."""
    for word in words:
        value = word.value or ""
        if value == "--":
            break
        if _match_long_flag(value, excluded) or _find_flag_letter(value, excluded) > 0:
            return value
    return ""


def _list_file_flag_values(words: Sequence[ShellWord], file_flags: tuple[str, ...]) -> list[ShellWord]:
    """Return the files that flags name, in the same word or in the next."""
    found: list[ShellWord] = []
    for index, word in enumerate(words):
        value = word.value or ""
        if value == "--":
            break
        letter = _find_flag_letter(value, file_flags)
        if letter > 0 and value[letter + 1 :]:
            found.append(ShellWord(value[letter + 1 :]))
        elif letter > 0 or (_match_long_flag(value, file_flags) and "=" not in value):
            found += words[index + 1 : index + 2]
        elif _match_long_flag(value, file_flags):
            found.append(ShellWord(value.partition("=")[2]))
    return found


def _match_long_flag(value: str, flags: tuple[str, ...]) -> bool:
    """Return True if a word is one of the long flags, which may be abbreviated."""
    name = value.partition("=")[0]
    return len(name) > 2 and name.startswith("--") and any(flag.startswith(name) for flag in flags)


def _find_flag_letter(value: str, flags: tuple[str, ...]) -> int:
    """Return the position of the first of the one-letter flags in a word, or 0."""
    if not value.startswith("-") or value.startswith("--"):
        return 0
    letters = [flag[1] for flag in flags if len(flag) == 2]
    return next((position for position, letter in enumerate(value) if position and letter in letters), 0)


def _may_flag_supply_pattern(words: Sequence[ShellWord]) -> bool:
    """Return True if a flag may supply the pattern, so that the first operand is a file too."""
    return any(_POSSIBLE_PATTERN_FLAG.match(word.value or "") for word in words)


def parse_command_options(
    words: Sequence[ShellWord], flags: str, *, leading: bool = False, style: FlagStyle = ""
) -> ParsedCommandOptions:
    """Parse flags and operands; with `leading`, flags are allowed only before the first operand."""
    flag_table = _parse_command_flag_table(flags)
    found: list[tuple[str, ShellWord | None]] = []
    operands: list[ShellWord] = []
    index = 0
    while index < len(words):
        word = words[index]
        value = word.value
        if not word.may_be_flag or (value == "-" and "-" not in flag_table.bare):
            if leading:
                break
            operands.append(word)
            index += 1
            continue
        if value is None:
            return ParsedCommandOptions(
                tuple(found), tuple(operands), format_shell_reason("unknown_argument")
            )
        index += 1
        if value == "--":
            break
        word_flags = _parse_flag_word(value, flag_table)
        if word_flags is None or (style and not _is_style_kept(value, word_flags, style)):
            return ParsedCommandOptions(tuple(found), tuple(operands), value)
        name, own_value = word_flags[-1]
        if own_value is None and name in flag_table.valued:
            if index == len(words) or words[index].many:
                return ParsedCommandOptions(tuple(found), tuple(operands), value)
            word_flags[-1] = name, words[index]
            index += 1
        found.extend(word_flags)
    operands.extend(words[index:])
    return ParsedCommandOptions(tuple(found), tuple(operands))


def _parse_flag_word(value: str, flags: _CommandFlagTable) -> list[tuple[str, ShellWord | None]] | None:
    """Return the flags in one word with the values in it; None if one of them is not allowed."""
    name, equals, attached_value = value.partition("=")
    if name in flags.bare:
        return [(name, ShellWord(attached_value) if equals else None)]
    if name in flags.valued and (len(name) > 2 or not equals):
        return [(name, ShellWord(attached_value) if equals else None)]
    if value.startswith("--"):
        return None
    if value[1:].isdigit():
        return [(value, None)] if "-0" in flags.bare or "-NUM" in flags.bare else None
    found: list[tuple[str, ShellWord | None]] = []
    for position, letter in enumerate(value[1:], start=2):
        name = f"-{letter}"
        if name in flags.valued or name in flags.attached:
            found.append((name, ShellWord(value[position:]) if position < len(value) else None))
            return found
        if name not in flags.bare:
            return None
        found.append((name, None))
    return found


def _is_style_kept(value: str, flags: list[tuple[str, ShellWord | None]], style: FlagStyle) -> bool:
    """Return True if a program with an unusual style reads a word of flags in the same way."""
    _, attached_value = flags[-1]
    if value.startswith("--"):
        return True
    if attached_value is not None and not (attached_value.value or "").isdigit():
        return False
    return style == "next" or len(flags) == 1


def _judge_readonly_operands(
    name: str, operands: Sequence[ShellWord], usage: ReadOnlyCommandUsageSpec, *, gives_pattern: bool
) -> ReadOnlyCommandVerdict:
    kind = usage.operands
    if kind == "one" and (len(operands) > 1 or any(word.many for word in operands)):
        return build_not_proven_readonly_verdict("second_operand", name=name)
    if kind == "plus" and any(not (word.value or word.prefix).startswith("+") for word in operands):
        return build_not_proven_readonly_verdict("operand_changes", name=name)
    if kind == "none" and operands:
        return build_not_proven_readonly_verdict("operand_changes", name=name)
    if kind == "name" and not (
        operands and all(word.value is not None and not SECRET_NAME.search(word.value) for word in operands)
    ):
        return build_not_proven_readonly_verdict("prints_secret", name=name)
    if kind in ("paths", "one") or (kind == "pattern" and gives_pattern):
        return build_readonly_verdict(f"{name} is read-only", reads=tuple(operands))
    return build_readonly_verdict(
        f"{name} is read-only",
        reads=tuple(operands[1:]) if kind == "pattern" else list_globbed_directories(operands),
    )
