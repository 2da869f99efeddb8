"""Compact set for very many ids: about twenty bytes for each, whatever its length."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b

_MIN_UNSORTED = 8
_UNSORTED_SHARE = 8
"""Fraction of all ids that may be unsorted, so that sorting costs little per id."""


class CompactIdSet:
    """Set of ids, stored as 64-bit hashes that nobody outside this process can predict.

    With a random `key` the hashes are the same in every process that has the key.
    """

    __slots__ = ("_key", "_new", "_sorted")

    def __init__(self, ids: Iterable[str] = (), *, key: bytes | None = None) -> None:
        self._key = key
        self._sorted = array("q", sorted({self._hash_id(each) for each in ids}))
        self._new: set[int] = set()

    def __contains__(self, each: object) -> bool:
        id_hash = self._hash_id(each)
        if id_hash in self._new:
            return True
        index = bisect_left(self._sorted, id_hash)
        return index < len(self._sorted) and self._sorted[index] == id_hash

    def __len__(self) -> int:
        return len(self._sorted) + len(self._new)

    def add_ids(self, ids: Iterable[str]) -> None:
        self._new.update(self._hash_id(each) for each in ids if each not in self)
        if len(self._new) > max(_MIN_UNSORTED, len(self._sorted) // _UNSORTED_SHARE):
            self._sorted = array("q", sorted((*self._sorted, *self._new)))
            self._new = set()

    def _hash_id(self, each: object) -> int:
        if self._key is None:
            return hash(each)
        digest = blake2b(str(each).encode(errors="surrogatepass"), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "little", signed=True)
