"""Paths on file systems that ignore case: a rule about `.env` holds for `.ENV` where both are one file.

Whether that is so, the file system itself tells: the name in other case leads to the same file. A directory
on such a file system may lie in one that distinguishes case, so each step of a path is looked at.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator

_CASED_SET = re.compile(r"\[\^/[^\]]")
"""A set of excluded characters, which excludes more if case is ignored."""
_MAX_LISTED_NAMES = 50


class ForbiddingPathPattern:
    """Pattern of a rule that forbids; where the file system ignores case, it does too."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._exact = re.compile(expression, re.DOTALL)
        self._folded = re.compile(_decompose(expression), re.DOTALL | re.IGNORECASE)

    @property
    def is_plain(self) -> bool:
        """True if every text of ASCII characters that it matches is also matched when case is ignored."""
        return self.expression.isascii() and _CASED_SET.search(self.expression) is None

    def fullmatch(self, path: str) -> bool:
        if self._exact.fullmatch(path) is not None:
            return True
        return self._folded.fullmatch(_decompose(path)) is not None and may_ignore_case(path)


def is_same_or_below(path: str, directory: str) -> bool:
    """Return True if a path is a directory or below it, perhaps only because case is ignored there."""
    start = f"{directory.rstrip('/')}/"
    if f"{path}/".startswith(start):
        return True
    is_folded = _fold(f"{path}/").startswith(_fold(start))
    return is_folded and may_ignore_case(path if len(path) <= len(directory) else directory)


def may_ignore_case(path: str) -> bool:
    """Return False if the file system certainly distinguishes case in every name of an absolute path."""
    existing = path
    while not os.path.lexists(existing):
        parent = os.path.dirname(existing)  # noqa: PTH120 - a path may be any text
        if parent == existing:
            return True
        existing = parent
    if existing != path and _may_directory_ignore_case(existing):
        return True
    while existing.strip("/"):
        if any(_is_same_file(existing, other) for other in _iter_other_spellings(existing)):
            return True
        existing = os.path.dirname(existing)  # noqa: PTH120 - as above
    return False


def _may_directory_ignore_case(directory: str) -> bool:
    """Return False if a name in the directory shows that case matters; without one, nobody knows."""
    try:
        with os.scandir(directory) as entries:
            for _, entry in zip(range(_MAX_LISTED_NAMES), entries, strict=False):
                for other in _iter_other_spellings(entry.path):
                    return _is_same_file(entry.path, other)
    except OSError:
        return True
    return True


def _iter_other_spellings(path: str) -> Iterator[str]:
    """Yield the path with its last name in other case or in another Unicode form."""
    directory, _, name = path.rpartition("/")
    spellings = (name.swapcase(), *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")))
    yield from (f"{directory}/{other}" for other in dict.fromkeys(spellings) if other != name)


def _is_same_file(path: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except (OSError, ValueError):
        return False


def _decompose(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFD", text)


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFD", text).casefold()
