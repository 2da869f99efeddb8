"""Compact set for very many ids: about twenty bytes for each, whatever its length."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

_FEW = 8
_SHARE = 8
"""Fraction of all ids that may be unsorted, so that sorting costs little per id."""


class Seen:
    """Set of ids, stored as 64-bit hashes that nobody outside this process can predict."""

    __slots__ = ("_new", "_sorted")

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._sorted = array("q", sorted({hash(each) for each in ids}))
        self._new: set[int] = set()

    def __contains__(self, each: object) -> bool:
        known = hash(each)
        if known in self._new:
            return True
        at = bisect_left(self._sorted, known)
        return at < len(self._sorted) and self._sorted[at] == known

    def __len__(self) -> int:
        return len(self._sorted) + len(self._new)

    def update(self, ids: Iterable[str]) -> None:
        self._new.update(hash(each) for each in ids if each not in self)
        if len(self._new) > max(_FEW, len(self._sorted) // _SHARE):
            self._sorted = array("q", sorted((*self._sorted, *self._new)))
            self._new = set()
