"""Modes of `chmod`, numeric or symbolic, compared by what they do to a file."""

from __future__ import annotations

import re

_CLAUSE = re.compile(r"([ugoa]*)((?:[-+=](?:[ugo]|[rwxXst]*))+)")
_ACTION = re.compile(r"([-+=])([ugo]|[rwxXst]*)")
_SHIFTS = {"u": 6, "g": 3, "o": 0}
_BITS = {"r": 4, "w": 2, "x": 1, "X": 1}
_USUAL_MODES = (0o644, 0o755, 0o600, 0o664, 0o775, 0o700, 0o000)
"""Modes that files have before a change."""


def may_set_same_mode(forbidden: str, mode: str) -> bool:
    """Return True if a mode grants to a file with a usual mode all that the forbidden mode would grant."""
    for before in _USUAL_MODES:
        after, other = _apply_mode(forbidden, before), _apply_mode(mode, before)
        if after is None or other is None:
            return False
        granted, removed = after & ~before, before & ~after
        if (
            (granted or removed)
            and other & granted == granted
            and not other & removed
            and (granted or other == after)
        ):
            return True
    return False


def _apply_mode(mode: str, before: int) -> int | None:
    """Return the permission bits after `chmod`, with an empty umask; None for a text that is no mode."""
    if mode.lstrip("+=-").isdigit():
        try:
            bits = int(mode.lstrip("+=-"), 8)
        except ValueError:
            return None
        return before | bits if mode[0] == "+" else before & ~bits if mode[0] == "-" else bits
    result = before
    for text in mode.split(","):
        clause = _CLAUSE.fullmatch(text)
        if clause is None:
            return None
        users = "ugo" if "a" in clause[1] or not clause[1] else clause[1]
        for sign, letters in _ACTION.findall(clause[2]):
            result = _apply_action(result, users, sign, letters)
    return result


def _apply_action(mode: int, users: str, sign: str, letters: str) -> int:
    for user in users:
        shift = _SHIFTS[user]
        bits = (
            (mode >> _SHIFTS[letters]) & 7
            if letters in _SHIFTS
            else sum({_BITS.get(each, 0) for each in letters})
        )
        if sign == "+":
            mode |= bits << shift
        elif sign == "-":
            mode &= ~(bits << shift)
        else:
            mode = (mode & ~(7 << shift)) | bits << shift
    return mode
