"""Table with a maximum number of rows: it keeps the latest rows and counts all."""

from __future__ import annotations

import os
from typing import TypeVar

from shoal.app.run_view.change_table import ChangeTrackingRowMap
from shoal.core.teams.compact_id_set import CompactIdSet

_Row = TypeVar("_Row")


class BoundedChangeTrackingRowMap(ChangeTrackingRowMap[str, _Row]):
    """Change table that evicts the oldest settled rows first."""

    def __init__(self, max_rows: int) -> None:
        super().__init__()
        self.total = 0
        """Number of rows ever added, including evicted ones."""
        self._max_rows = max_rows
        self._settled: dict[str, None] = {}
        self._evicted = CompactIdSet(key=os.urandom(16))

    def put_row(self, key: str, row: _Row, offset: int, *, is_settled: bool) -> None:
        """Put a row; `is_settled` means that it will not change again."""
        if key not in self:
            self.total += 1
        self.put(key, row, offset)
        if is_settled:
            self._settled[key] = None
        else:
            self._settled.pop(key, None)
        while len(self) > self._max_rows:
            self.evict_row(next(iter(self._settled), None) or self.first_key())

    def evict_row(self, key: str) -> None:
        self._settled.pop(key, None)
        self._evicted.add_ids((key,))
        self.drop_row(key)

    def is_evicted(self, key: str) -> bool:
        return key in self._evicted
