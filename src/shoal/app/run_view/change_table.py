"""Table that records for each row the event that last changed it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct

_Key = TypeVar("_Key")
_Row = TypeVar("_Row")


class ChangeTrackingRowMap(Generic[_Key, _Row]):
    """Rows by key. Finding the changes after an event does not scan the other rows."""

    def __init__(self) -> None:
        self._rows: dict[_Key, _Row] = {}
        self._changed: dict[_Key, int] = {}
        """Offset of the last change per key, ordered by that change."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a snapshot: rows of structs by column, which need half the memory there."""
        state, rows = dict(self.__dict__), list(self._rows.values())
        kinds = {type(row) for row in rows}
        if len(kinds) == 1 and issubclass(kind := kinds.pop(), Struct):
            columns = tuple(tuple(getattr(row, name) for row in rows) for name in kind.__struct_fields__)
            state["_rows"] = kind, tuple(self._rows), columns
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(state["_rows"], tuple):
            kind, keys, columns = state["_rows"]
            names, values = kind.__struct_fields__, zip(*columns, strict=True)
            self._rows = {
                key: kind(**dict(zip(names, row, strict=True))) for key, row in zip(keys, values, strict=True)
            }

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: _Key) -> bool:
        return key in self._rows

    def get(self, key: _Key) -> _Row | None:
        return self._rows.get(key)

    def values(self) -> Iterator[_Row]:
        """Return the rows in order of insertion."""
        return iter(self._rows.values())

    def put(self, key: _Key, row: _Row, offset: int) -> None:
        """Put a row; `offset` is that of the event that changes it."""
        self._rows[key] = row
        self.mark_row_changed(key, offset)

    def mark_row_changed(self, key: _Key, offset: int) -> None:
        """Mark a row as changed; a key without a row, as in a damaged journal, is ignored."""
        if key in self._rows:
            self._changed.pop(key, None)
            self._changed[key] = offset

    def list_keys_changed_since(self, offset: int) -> list[_Key]:
        """Return the keys of rows changed at or after the offset, the oldest change first."""
        found = []
        for key in reversed(self._changed):
            if self._changed[key] < offset:
                break
            found.append(key)
        return found[::-1]

    def get_row(self, key: _Key) -> _Row:
        return self._rows[key]

    def first_key(self) -> _Key:
        """Return the key that was inserted first."""
        return next(iter(self._rows))

    def drop_row(self, key: _Key) -> None:
        """Remove a row without recording a change."""
        del self._rows[key], self._changed[key]
