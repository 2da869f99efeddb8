"""Other spellings of a command that a rule forbids: the order, the bundling and the length of its flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_VERSION = re.compile(r"[\d.]+$")
_SKIPPED = re.compile(r"\+\w|[A-Za-z_]\w*=")
"""Operands before a subcommand: `cargo +stable`, `make A=b`."""
_SAME_FLAGS = (
    ("rm", ("r", "R", "--recursive")),
    ("rm", ("f", "--force")),
    ("push", ("f", "--force", "--force-with-lease", "--mirror")),
    ("commit", ("n", "--no-verify")),
    ("chmod", ("R", "--recursive")),
    ("chown", ("R", "--recursive")),
    ("cp", ("r", "R", "a", "--recursive", "--archive")),
)
"""Flags with the same effect, by the program or subcommand that has them."""


def may_be_other_spelling(rule: Sequence[str], words: Sequence[str | None]) -> bool:
    """Return True if a command may do what a rule forbids, with its flags written in another way.

    The words of both begin with the program. Words of the command that are not known may be anything.
    """
    if not words or words[0] is None or get_plain_name(words[0]) != get_plain_name(rule[0]):
        return False
    rule_words = [word for word in rule[1:] if word != "*"]
    if any("*" in word for word in rule_words[:-1]):
        return False
    rule_words = [word.rstrip("*") for word in rule_words]
    rule_operands = [word for word in rule_words if not word.startswith("-")]
    if not _has_operands(rule_operands, words[1:]):
        return False
    required = _list_flags(word for word in rule_words if word.startswith("-"))
    given = _list_flags(word for word in words[1:] if word is not None and word.startswith("-"))
    context = {rule[0], *rule_operands}
    return all(_is_given(flag, given, context) for flag in required) and bool(required or rule_operands)


def get_plain_name(name: str) -> str:
    """Return the program without directory and version, as `python` for `/usr/bin/python3.11`."""
    base_name = name[name.rfind("/") + 1 :]
    return _VERSION.sub("", base_name) if base_name[-1:].isdigit() else base_name


def _has_operands(operands: list[str], words: Sequence[str | None]) -> bool:
    """Return True if these operands begin those of the command; values of flags may come between."""
    wanted = iter(operands)
    operand = next(wanted, None)
    after_flag = False
    for word in words:
        if operand is None:
            break
        if word is None:
            return True
        if word == operand:
            operand = next(wanted, None)
        elif not (word.startswith("-") or after_flag or _SKIPPED.match(word)):
            return False
        after_flag = word.startswith("-")
    return operand is None


def _list_flags(words: Iterable[str]) -> set[str]:
    """List flags one by one: letters of bundles, and long flags without their values."""
    found: set[str] = set()
    for word in words:
        if word.startswith("--"):
            found.add(word.partition("=")[0])
        else:
            found.update(word[1:].partition("=")[0])
    return found - {"--"}


def _is_given(flag: str, given: set[str], context: set[str]) -> bool:
    same = {flag}
    for owner, flags in _SAME_FLAGS:
        if owner in context and flag in flags:
            same.update(flags)
    if same & given:
        return True
    # A long flag can be abbreviated.
    return any(
        len(each) > 3 and each.startswith("--") and long.startswith(each)
        for each in given
        for long in same
        if long.startswith("--")
    )
