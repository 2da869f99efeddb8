"""Other spellings of a command that a rule forbids: names, order and length of flags, other operands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from shoal.policy.command_synonyms import (
    ABBREVIATING_PROGRAMS,
    EFFECTS,
    GROUPS,
    INNER_NAMES,
    KNOWN_SUBCOMMANDS,
    LEADING_WORDS,
    SAME_FLAGS,
    SUBCOMMAND_NAMES,
    TARGET_PROGRAMS,
    UNIVERSAL_SUBCOMMANDS,
    CommandEffect,
)
from shoal.policy.file_modes import may_set_same_mode
from shoal.policy.program_names import PROGRAM_NAMES, get_plain_name, get_standard_name

KnownWords: TypeAlias = tuple[str | None, ...]

_SKIPPED = re.compile(r"\+\w|[A-Za-z_]\w*=")
"""Operands before a subcommand: `cargo +stable`, `make A=b`."""
_CAPITAL = re.compile(r"[A-Z]")
_ANY_BRANCH = ("--all", "--branches", "--mirror", "--tags")
_PLAIN_FIRST = re.compile(r"[A-Za-z][\w-]*")
_UNUSUAL_PROGRAMS = frozenset(
    {*ABBREVIATING_PROGRAMS, *TARGET_PROGRAMS, *KNOWN_SUBCOMMANDS, *UNIVERSAL_SUBCOMMANDS, "chmod", "uv"}
)
"""Programs whose subcommands are not simply words that are equal or not."""
_OTHER_FIRST_WORDS = ("send-pack", "http-push", "fetch-pack", "commit-tree", "subtree", "for-each-repo")
"""Subcommands of git that do the work of others."""
_CASELESS_PROGRAMS = frozenset({"redis-cli", "valkey-cli", "keydb-cli", "cmd", "reg", "net", "sc", "wmic"})
"""Programs that ignore the case of their commands."""
_DASHLESS_PROGRAMS = frozenset({"tar", "bsdtar", "star", "ar", "ps", "jar"})
"""Programs whose first word contains flags, also without a dash."""
_ONE_LETTER = re.compile(r"-[A-Za-z]")
_LETTERS = re.compile(r"[A-Za-z0-9]+")
_PIP_STARTERS = {"uv": "pip", "pipx": "runpip"}
"""Programs that work as pip after this word, which flags may precede."""
_MAX_PIP_POSITION = 8
_MAX_WORDS = 200
"""Words of a command that are compared; nobody reads more in a question."""


def standardize_words(words: Sequence[str | None]) -> KnownWords:
    """Return a command with the usual names of its program and subcommands."""
    plain_name = get_plain_name(words[0] or "")
    known: KnownWords = (*PROGRAM_NAMES.get(plain_name, (plain_name,)), *words[1:])
    name = known[0] or ""
    if name in _DASHLESS_PROGRAMS and len(known) > 1 and _LETTERS.fullmatch(known[1] or ""):
        known = (name, f"-{known[1]}", *known[2:])
    if name in _CASELESS_PROGRAMS:
        known = (name, *(word and word.lower() for word in known[1:]))
    if name in _PIP_STARTERS and _PIP_STARTERS[name] in known[1:_MAX_PIP_POSITION]:
        start = known.index(_PIP_STARTERS[name])
        # pipx takes the name of an environment before the words for pip.
        known = ("pip", *known[1:start], *known[start + (2 if name == "pipx" else 1) :])
        name = "pip"
    position = _find_subcommand(known)
    if position is None:
        return known
    first = known[position] or ""
    if name == "npm" and _CAPITAL.search(first):
        first = _CAPITAL.sub(lambda letter: f"-{letter[0].lower()}", first)
    first_names = SUBCOMMAND_NAMES.get(name, {}).get(first, (first,))
    rest = known[position + 1 :]
    group = GROUPS.get(name, {}).get(first)
    inner_names = INNER_NAMES.get(name, {})
    if inner_names or group is not None:
        rest = _standardize_inner_word(rest, inner_names, group)
    if group is not None:
        first_names = ()
    return (*known[:position], *first_names, *rest)


def _standardize_inner_word(
    rest: KnownWords, names: dict[str, str], group: dict[str, str] | None
) -> KnownWords:
    for index, word in enumerate(rest):
        if word is None or word.startswith("-"):
            continue
        # As in `pod/web` and `pods,services` of kubectl.
        kind, slash, item = word.partition("/") if "pods" in names else (word, "", "")
        kinds = [names.get(each, each) for each in kind.split(",")]
        if group is not None:
            kinds = [group.get(each, each) for each in kinds]
        return (*rest[:index], *kinds, *((item,) if slash else ()), *rest[index + 1 :])
    return rest


def _find_subcommand(words: Sequence[str | None]) -> int | None:
    """Return the position of the first operand; a word after a flag may be its value."""
    names = SUBCOMMAND_NAMES.get(words[0] or "", {})
    known = KNOWN_SUBCOMMANDS.get(words[0] or "", frozenset())
    after_flag = False
    found: int | None = None
    for index, word in enumerate(words[1:], 1):
        if word is None:
            return found
        if word.startswith("-") or _SKIPPED.match(word):
            after_flag = word.startswith("-") and "=" not in word
            continue
        found = index
        if not after_flag or word in names or word in known:
            return index
        after_flag = False
    return found


def iter_equivalent_commands(words: Sequence[str | None]) -> Iterator[KnownWords]:
    """Yield a command in its usual form, then other commands that do the same with its operands."""
    known = standardize_words(words[:_MAX_WORDS])
    yield known
    if known[0] in LEADING_WORDS:
        yield standardize_words(_drop_leading_words(known, LEADING_WORDS[known[0] or ""]))
    for effect, rest in _iter_effects(known):
        for means in effect.means:
            yield (*means.split(), *rest)


def _drop_leading_words(known: KnownWords, leading: dict[str, int]) -> KnownWords:
    """Return `yarn publish` for `yarn workspace a publish`."""
    position = _find_subcommand(known)
    while position is not None and (count := leading.get(known[position] or "")) is not None:
        known = (*known[:position], *known[position + 1 + count :])
        position = _find_subcommand(known)
    return known


def _iter_effects(known: KnownWords) -> Iterator[tuple[CommandEffect, KnownWords]]:
    """Yield what a command amounts to, with its words after the subcommand."""
    name = known[0] or ""
    position = _find_subcommand(known)
    first = "" if position is None else known[position] or ""
    words = [word for word in known[1:] if word is not None and word.startswith("-")]
    flags = _list_flags(words) | _list_long_names(words)
    rest = known[1:] if position is None else (*known[1:position], *known[position + 1 :])
    for subcommand, operands in ((first, rest), ("", known[1:])):
        for effect in EFFECTS.get((name, subcommand), ()):
            if all(not group.isdisjoint(flags) for group in effect.flags) and (
                effect.word is None or any(word is None or _is_effect_word(effect, word) for word in operands)
            ):
                yield effect, operands
        if not first:
            return


def _is_effect_word(effect: CommandEffect, word: str) -> bool:
    return effect.word is not None and re.fullmatch(effect.word, word, re.IGNORECASE) is not None


class OtherSpellings:
    """Spellings of the command that one rule names; the words of the rule begin with the program."""

    def __init__(self, rule: Sequence[str]) -> None:
        words = [word for word in rule if word != "*"]
        self._is_comparable = not any("*" in word for word in words[:-1])
        words[-1] = words[-1].strip("*") or "*"
        self._name = get_standard_name(rule[0])
        self._meanings = tuple(_iter_rule_meanings(words)) if self._is_comparable else ()
        self._firsts = frozenset((each[1] if len(each) > 1 else "") or "" for each in self._meanings)
        # Without a subcommand in the second place, every command has to be compared.
        self._is_plain = (
            not any(first[:1] in ("", "-") for first in self._firsts)
            and get_plain_name(rule[0]) not in PROGRAM_NAMES
            and self._name not in _UNUSUAL_PROGRAMS
            and self._name not in _CASELESS_PROGRAMS
            and (self._name, "") not in EFFECTS
        )
        self._other_firsts = {
            *self._firsts,
            *SUBCOMMAND_NAMES.get(self._name, ()),
            *GROUPS.get(self._name, ()),
            *LEADING_WORDS.get(self._name, ()),
            *(subcommand for name, subcommand in EFFECTS if name == self._name),
            *_OTHER_FIRST_WORDS,
        }

    def may_include(self, words: Sequence[str | None]) -> bool:
        """Return True if a command may do what the rule forbids, although its words are others.

        Words of the command that are not known may be anything.
        """
        if not self._is_comparable or not words or words[0] is None:
            return False
        if get_plain_name(words[0]) not in PROGRAM_NAMES and self.is_other_subcommand(
            words[1] if len(words) > 1 else None
        ):
            is_pip = self._name == "pip" and get_standard_name(words[0]) in _PIP_STARTERS
            return is_pip and self._has_spelling(words)
        name = get_standard_name(words[0])
        is_pip = {self._name, name} <= {"pip", *_PIP_STARTERS}
        return (self._name == name or is_pip) and self._has_spelling(words)

    def is_other_subcommand(self, word: str | None) -> bool:
        """Return True if the word after the program is certainly another subcommand than that of the rule."""
        is_other = self._is_plain and bool(word) and word not in self._other_firsts
        return is_other and _PLAIN_FIRST.fullmatch(word or "") is not None

    def _has_spelling(self, words: Sequence[str | None]) -> bool:
        commands = list(iter_equivalent_commands(words))
        return any(_is_same_command(rule, command) for rule in self._meanings for command in commands)


def has_more_words(words: Sequence[str | None], rule: Sequence[str]) -> bool:
    """Return True if a command has more operands or other flags than a rule."""
    # A `--` at the end has no effect.
    known, rule_words = (
        standardize_words(each[:-1] if each[-1:] == ("--",) else each) for each in (tuple(words), tuple(rule))
    )
    flags, rule_flags = (
        [word for word in each[1:] if word is not None and word.startswith("-")]
        for each in (known, rule_words)
    )
    if len(known) - len(flags) > len(rule_words) - len(rule_flags):
        return True
    given = _list_flags(rule_flags)
    context = tuple(word for word in rule_words if word)
    return not all(_is_flag_word_given(word, given, set(), context) for word in flags)


def _iter_rule_meanings(rule_words: Sequence[str]) -> Iterator[KnownWords]:
    """Yield a rule in its usual form, then the commands that amount to what it forbids."""
    known = standardize_words(rule_words)
    yield known
    for effect, rest in _iter_effects(known):
        # The flags and words that make it so are not needed in the other command.
        operands = [word for word in rest if word and word[0] != "-" and not _is_effect_word(effect, word)]
        for means in effect.means:
            yield (*means.split(), *operands)


def _is_same_command(rule: KnownWords, command: KnownWords) -> bool:
    name = rule[0] or ""
    if command[0] != name:
        return False
    operands = [word for word in rule[1:] if word and not word.startswith("-")]
    flags = [word for word in rule[1:] if word and word.startswith("-")]
    if not operands and not flags:
        return True
    if (values := _list_flag_values(rule)) and _has_flag_values(values, command):
        # A flag and its value may stand anywhere.
        operands = [word for word in operands if word not in values]
    if operands and _is_unknown_subcommand(name, command):
        return True
    if not _has_operands(name, operands, command[1:]):
        return False
    given_words = [word for word in command[1:] if word is not None and word.startswith("-")]
    given = _list_flags(given_words)
    long_names = _list_long_names(given_words)
    context = (name, *operands)
    return all(_is_flag_word_given(word, given, long_names, context) for word in flags)


def _list_flag_values(rule: KnownWords) -> list[str]:
    """Return the words of a rule that follow a flag of one letter and may be its value."""
    return [
        word
        for flag, word in pairwise(rule)
        if flag and word and _ONE_LETTER.fullmatch(flag) and not word.startswith("-")
    ]


def _has_flag_values(values: list[str], command: KnownWords) -> bool:
    return all(
        any(
            word is None or word == value or (word[:1] == "-" and word.endswith(value))
            for word in command[1:]
        )
        for value in values
    )


def _is_unknown_subcommand(name: str, command: KnownWords) -> bool:
    """Return True if a subcommand may be an alias of the user's, or can do what any other one does."""
    position = _find_subcommand(command)
    first = None if position is None else command[position]
    if first is None:
        return False
    if name in KNOWN_SUBCOMMANDS and first not in KNOWN_SUBCOMMANDS[name]:
        return True
    sign = UNIVERSAL_SUBCOMMANDS.get(name, {}).get(first)
    return sign is not None and any(word is None or re.fullmatch(sign, word) for word in command)


def _has_operands(name: str, operands: list[str], words: Sequence[str | None]) -> bool:
    """Return True if these operands begin those of the command; values of flags may come between."""
    if name in TARGET_PROGRAMS and operands:
        return any(word is None or _is_same_target(name, operands[0], word) for word in words)
    if name == "git" and operands[:1] == ["push"] and len(operands) > 1:
        return _may_push_to(operands[1:], words)
    wanted = iter(operands)
    operand = next(wanted, None)
    after_flag = False
    for word in words:
        if operand is None:
            break
        if word is None:
            return True
        if _is_same_operand(name, operand, word):
            operand = next(wanted, None)
        elif not (word.startswith("-") or after_flag or _SKIPPED.match(word)):
            return False
        after_flag = word.startswith("-")
    return operand is None


def _is_same_operand(name: str, operand: str, word: str) -> bool:
    if word == operand:
        return True
    if word.startswith("-") and operand in (word.partition("=")[2], word[2:]):
        # The value of a flag, attached to it.
        return True
    if name == "chmod" and word.startswith("--ref"):
        return True
    if name == "chmod" and not word.startswith("--"):
        return may_set_same_mode(operand, word)
    complete = ABBREVIATING_PROGRAMS.get(name)
    if complete is None or word in complete or word.startswith("-") or not word:
        return False
    steps, full_steps = word.split(":"), operand.split(":")
    return len(steps) == len(full_steps) and all(map(str.startswith, full_steps, steps))


def _is_same_target(name: str, target: str, word: str) -> bool:
    # As in `:app:publish` of Gradle and `deploy:deploy` of Maven.
    if target == word or (name in ("gradle", "mvn") and target in word.split(":")):
        return True
    return name == "gradle" and word[:1].isalpha() and target.startswith(word.rpartition(":")[2])


def _may_push_to(operands: list[str], words: Sequence[str | None]) -> bool:
    """Return True if git may push the branch that a rule names, to the remote that it names."""
    if None in words:
        return "push" in words
    known = [word or "" for word in words]
    if "push" not in known:
        return False
    rest = known[known.index("push") + 1 :]
    given = [word for word in rest if not word.startswith("-")]
    remote, refs = operands[0], operands[1:]
    if given and given[0] != remote and not any(sign in given[0] for sign in ":/."):
        return False
    if not refs or len(given) < 2 or any(word in _ANY_BRANCH for word in rest):
        return True
    wanted = {_get_branch(ref) for ref in refs}
    return any(_get_branch(word) in ("", "HEAD", "@", *wanted) or "*" in word for word in given[1:])


def _get_branch(refspec: str) -> str:
    """Return the branch that a refspec changes at the remote."""
    source, colon, target = refspec.lstrip("+").partition(":")
    return (target if colon else source).removeprefix("refs/heads/").removeprefix("heads/")


def _list_flags(words: Sequence[str]) -> set[str]:
    """List flags one by one: letters of bundles, and long flags without their values."""
    found: set[str] = set()
    for word in words:
        if word.startswith("--"):
            found.add(word.partition("=")[0])
        else:
            found.update(word[1:].partition("=")[0])
    return found - {"--"}


def _list_long_names(words: Sequence[str]) -> set[str]:
    """List the flags of several letters with one dash as the long flags that they are in some programs."""
    return {f"-{word}".partition("=")[0] for word in words if word[1:2] != "-" and len(word) > 2}


def _is_flag_word_given(word: str, given: set[str], long_names: set[str], context: Sequence[str]) -> bool:
    name = word.partition("=")[0]
    if word.startswith("--"):
        return name in long_names or _is_given(name, given, context)
    letters = name[1:]
    if f"--{letters}" in given:
        return True
    return all(_is_given(letter, given, context) for letter in letters)


def _is_given(flag: str, given: set[str], context: Sequence[str]) -> bool:
    same = {flag}
    for owner in context:
        for flags in SAME_FLAGS.get(owner, ()):
            if flag in flags:
                same.update(flags)
    if same & given:
        return True
    # A long flag can be abbreviated.
    return any(
        len(each) > 2 and each.startswith("--") and long.startswith(each)
        for each in given
        for long in same
        if long.startswith("--")
    )
