"""Mapping for very many tasks of a board that packs the values of completed ones.

Completed tasks are rarely read, and each process of a team holds the whole board.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, MutableMapping
from itertools import islice
from typing import Any, Protocol, TypeVar

import msgspec

from shoal.core.names import TaskId

_PACK_SIZE = 32
"""Consecutive task numbers packed together; reading one of them unpacks all."""
_LATEST_UNPACKED = 96
"""Completed tasks left unpacked: their files are still being read again."""
_PACKED_AT_ONCE = 64
"""Completed tasks packed together, the oldest first: packing in bulk is cheap."""


class HasTaskStatus(Protocol):
    @property
    def status(self) -> str: ...


V = TypeVar("V", bound=HasTaskStatus)


class PackedTaskMap(MutableMapping[TaskId, V]):
    """Mapping by task id. A packed value is equal to the stored one, but a new object on each read."""

    __slots__ = (
        "_count",
        "_decode",
        "_encode",
        "_kind",
        "_last_read",
        "_loose_values",
        "_max_loose",
        "_packs",
        "unfinished",
    )

    def __init__(self, kind: type[V]) -> None:
        self._kind = kind
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(dict[int, kind]).decode  # type: ignore[valid-type]
        self.unfinished: dict[TaskId, V] = {}
        """Values of tasks that are not completed."""
        self._loose_values: dict[int, V] = {}
        self._max_loose = _LATEST_UNPACKED + _PACKED_AT_ONCE
        self._packs: dict[int, tuple[int, bytes]] = {}
        """Packs by number divided by the pack size: a bit for each number present, and the values."""
        self._count = 0
        self._last_read: tuple[int, dict[int, V]] = (-1, {})
        """Pack that was read last and its content: readers often read the neighbors next."""

    def __getstate__(self) -> tuple[Any, ...]:
        return self._kind, self.unfinished, self._loose_values, self._packs, self._count, self._max_loose

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(state[0])  # type: ignore[misc]
        _, self.unfinished, self._loose_values, self._packs, self._count, self._max_loose = state

    def __getitem__(self, task: TaskId) -> V:
        if (found := self.find_value(task)) is None:
            raise KeyError(task)
        return found

    def find_value(self, task: TaskId) -> V | None:
        """Return the value, or None: without the exception of `get`, which is slow for many new tasks."""
        if (found := self.unfinished.get(task)) is not None:
            return found
        number = _parse_task_number(task)
        if (found := self._loose_values.get(number)) is not None:
            return found
        pack_number = number // _PACK_SIZE
        if self._last_read[0] == pack_number:
            return self._last_read[1].get(number)
        return self._read_pack(pack_number)[number] if self._is_task_packed(number) else None

    def get(self, task: TaskId, default: Any = None) -> Any:
        """Return the value or the default, without the exception that the inherited method catches."""
        found = self.find_value(task)
        return default if found is None else found

    def __contains__(self, task: object) -> bool:
        return task in self.unfinished or (isinstance(task, str) and self.is_completed(task))

    def __setitem__(self, task: TaskId, value: V) -> None:
        if value.status != "completed":
            self._remove_completed(_parse_task_number(task))
            self.unfinished[task] = value
            return
        self.unfinished.pop(task, None)
        number = _parse_task_number(task)
        if number < 0:
            raise ValueError(f"{task!r} is not a task number.")
        # Removed first: the value becomes the latest one.
        self._remove_completed(number)
        self._loose_values[number] = value
        if len(self._loose_values) > self._max_loose:
            self._pack_completed_tasks()

    def __delitem__(self, task: TaskId) -> None:
        if self.unfinished.pop(task, None) is None and not self._remove_completed(_parse_task_number(task)):
            raise KeyError(task)

    def __iter__(self) -> Iterator[TaskId]:
        """Iterate in no particular order."""
        yield from list(self.unfinished)
        yield from [TaskId(str(number)) for number in self._loose_values]
        for pack_number, (present_bits, _) in list(self._packs.items()):
            yield from [
                TaskId(str(pack_number * _PACK_SIZE + bit))
                for bit in range(_PACK_SIZE)
                if present_bits >> bit & 1
            ]

    def __len__(self) -> int:
        return len(self.unfinished) + len(self._loose_values) + self._count

    def list_values_by_task_number(self) -> list[V]:
        values = {
            _parse_task_number(task): value for task, value in self.unfinished.items()
        } | self._loose_values
        for _, packed in self._packs.values():
            values.update(self._decode(zlib.decompress(packed)))
        return [values[number] for number in sorted(values)]

    def is_completed(self, task: str) -> bool:
        number = _parse_task_number(task)
        return number in self._loose_values or self._is_task_packed(number)

    def _is_task_packed(self, number: int) -> bool:
        pack = self._packs.get(number // _PACK_SIZE)
        return pack is not None and bool(pack[0] >> number % _PACK_SIZE & 1)

    def _remove_completed(self, number: int) -> bool:
        """Remove the value of a completed task; return True if there was one."""
        if self._loose_values.pop(number, None) is not None:
            return True
        if not self._is_task_packed(number):
            return False
        pack_number = number // _PACK_SIZE
        values = dict(self._read_pack(pack_number))
        del values[number]
        self._store_pack(pack_number, values)
        return True

    def _pack_completed_tasks(self) -> None:
        values_by_pack: dict[int, dict[int, V]] = {}
        unpackable: dict[int, V] = {}
        oldest_count = len(self._loose_values) - _LATEST_UNPACKED
        oldest = dict(islice(self._loose_values.items(), oldest_count))
        all_survive = self._survive_packing(oldest)
        for number, value in oldest.items():
            is_packable = all_survive or self._survive_packing({number: value})
            group = values_by_pack.setdefault(number // _PACK_SIZE, {}) if is_packable else unpackable
            group[number] = value
        latest = islice(self._loose_values.items(), oldest_count, None)
        self._max_loose = 2 * len(unpackable) + _LATEST_UNPACKED + _PACKED_AT_ONCE
        self._loose_values = unpackable | dict(latest)
        for pack_number, values in values_by_pack.items():
            self._store_pack(
                pack_number,
                {**self._read_pack(pack_number), **values} if pack_number in self._packs else values,
            )

    def _survive_packing(self, values: dict[int, V]) -> bool:
        """Return True if packing preserves the values: programs write numbers and text that only JSON has."""
        try:
            return self._decode(self._encode(values)) == values
        except (ValueError, TypeError, OverflowError, RecursionError):
            return False

    def _store_pack(self, pack_number: int, values: dict[int, V]) -> None:
        self._last_read = (-1, {})
        present_bits, _ = self._packs.pop(pack_number, (0, b""))
        self._count += len(values) - present_bits.bit_count()
        if values:
            present_bits = sum(1 << number % _PACK_SIZE for number in values)
            self._packs[pack_number] = present_bits, zlib.compress(self._encode(values), 1)

    def _read_pack(self, pack_number: int) -> dict[int, V]:
        if self._last_read[0] != pack_number:
            self._last_read = (pack_number, self._decode(zlib.decompress(self._packs[pack_number][1])))
        return self._last_read[1]


def _parse_task_number(task: str) -> int:
    """Return the number of a task id, or -1 if it is not one."""
    return int(task) if task.isascii() and task.isdecimal() and task[0] != "0" else -1
