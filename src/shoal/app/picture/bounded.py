"""Table with a maximum number of rows: it keeps the latest rows and counts all."""

from __future__ import annotations

from typing import TypeVar

from shoal.app.picture.table import Table
from shoal.core.seen import Seen

_Row = TypeVar("_Row")


class Bounded(Table[str, _Row]):
    """Change table that evicts the oldest settled rows first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.in_all = 0
        """Number of rows ever added, including evicted ones."""
        self._most = most
        self._settled: dict[str, None] = {}
        self._gone = Seen()

    def keep(self, key: str, row: _Row, offset: int, *, settled: bool) -> None:
        """Put a row; `is_settled` means that it will not change again."""
        if key not in self:
            self.in_all += 1
        self.put(key, row, offset)
        if settled:
            self._settled[key] = None
        else:
            self._settled.pop(key, None)
        while len(self) > self._most:
            self.let_go(next(iter(self._settled), None) or self.first())

    def let_go(self, key: str) -> None:
        self._settled.pop(key, None)
        self._gone.update((key,))
        self.drop(key)

    def was_let_go(self, key: str) -> bool:
        return key in self._gone
