"""Directories that a command may run in, derived from preceding `cd` commands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shoal.policy.shell.parts import UNKNOWN_PATH
from shoal.policy.shell.words import Word

_MOST_PLACES = 6


class Places:
    """Directories the shell may be in; a `cd` adds one and never removes one, because it may fail."""

    def __init__(self, known: tuple[str, ...] = ("",)) -> None:
        self.known = known

    @property
    def moved(self) -> bool:
        return self.known != ("",)

    def move(self, to: Word | None) -> None:
        target = str(Path.home()) if to is None else to.value
        if target is None or target == "-" or len(self.known) >= _MOST_PLACES:
            new: tuple[str, ...] = (UNKNOWN_PATH,)
        else:
            new = tuple(_joined(place, target) for place in self.known)
        self.known = tuple(dict.fromkeys((*self.known, *new)))

    def paths(self, words: Iterable[Word]) -> tuple[str, ...]:
        """Return the paths that words name from these directories; an unknown one is UNKNOWN_PATH."""
        found: dict[str, None] = {}
        for word in words:
            if word.stream:
                continue
            path = word.pattern if word.value is None else word.value
            if path is None:
                found[UNKNOWN_PATH] = None
            elif path:
                for place in self.known:
                    found[_joined(place, path)] = None
        return tuple(found)


def _joined(place: str, path: str) -> str:
    return f"{place}/{path}" if place and not path.startswith("/") else path
