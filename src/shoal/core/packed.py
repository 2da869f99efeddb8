"""Mapping for very many tasks of a board that packs the values of completed ones.

Completed tasks are rarely read, and each process of a team holds the whole board.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, MutableMapping
from typing import Protocol, TypeVar

import msgspec

from shoal.core.names import TaskId

_SPAN = 32
"""Consecutive task numbers packed together; reading one of them unpacks all."""
_LOOSE = 128
"""Completed tasks left unpacked: the latest are read most, and packing in bulk is cheap."""


class HasStatus(Protocol):
    @property
    def status(self) -> str: ...


V = TypeVar("V", bound=HasStatus)


class ByTask(MutableMapping[TaskId, V]):
    """Mapping by task id. A packed value is equal to the stored one, but a new object on each read."""

    __slots__ = ("_count", "_decode", "_encode", "_latest", "_loose", "_most_loose", "_packs", "open")

    def __init__(self, kind: type[V]) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(dict[int, kind]).decode  # type: ignore[valid-type]
        self.open: dict[TaskId, V] = {}
        """Values of tasks that are not completed."""
        self._loose: dict[int, V] = {}
        self._most_loose = _LOOSE
        self._packs: dict[int, tuple[int, bytes]] = {}
        """Packs by number divided by the pack size: a bit for each number present, and the values."""
        self._count = 0
        self._latest: tuple[int, dict[int, V]] = (-1, {})
        """Pack that was read last and its content: readers often read the neighbors next."""

    def __getitem__(self, task: TaskId) -> V:
        if (found := self.open.get(task)) is not None:
            return found
        number = _number(task)
        if (found := self._loose.get(number)) is not None:
            return found
        if self._is_packed(number):
            return self._unpacked(number // _SPAN)[number]
        raise KeyError(task)

    def __contains__(self, task: object) -> bool:
        return task in self.open or (isinstance(task, str) and self.is_completed(task))

    def __setitem__(self, task: TaskId, value: V) -> None:
        if value.status != "completed":
            self._forget(_number(task))
            self.open[task] = value
            return
        self.open.pop(task, None)
        number = _number(task)
        if number < 0:
            raise ValueError(f"{task!r} is no number of a task.")
        if number not in self._loose:
            self._forget(number)
        self._loose[number] = value
        if len(self._loose) > self._most_loose:
            self._pack()

    def __delitem__(self, task: TaskId) -> None:
        if self.open.pop(task, None) is None and not self._forget(_number(task)):
            raise KeyError(task)

    def __iter__(self) -> Iterator[TaskId]:
        """Iterate in no particular order."""
        yield from list(self.open)
        yield from [TaskId(str(number)) for number in self._loose]
        for place, (there, _) in list(self._packs.items()):
            yield from [TaskId(str(place * _SPAN + bit)) for bit in range(_SPAN) if there >> bit & 1]

    def __len__(self) -> int:
        return len(self.open) + len(self._loose) + self._count

    def by_number(self) -> list[V]:
        every = {_number(task): value for task, value in self.open.items()} | self._loose
        for _, packed in self._packs.values():
            every.update(self._decode(zlib.decompress(packed)))
        return [every[number] for number in sorted(every)]

    def is_completed(self, task: str) -> bool:
        number = _number(task)
        return number in self._loose or self._is_packed(number)

    def _is_packed(self, number: int) -> bool:
        pack = self._packs.get(number // _SPAN)
        return pack is not None and bool(pack[0] >> number % _SPAN & 1)

    def _forget(self, number: int) -> bool:
        """Remove the value of a completed task; return True if there was one."""
        if self._loose.pop(number, None) is not None:
            return True
        if not self._is_packed(number):
            return False
        place = number // _SPAN
        values = dict(self._unpacked(place))
        del values[number]
        self._put(place, values)
        return True

    def _pack(self) -> None:
        places: dict[int, dict[int, V]] = {}
        odd: dict[int, V] = {}
        for number, value in self._loose.items():
            kept = places.setdefault(number // _SPAN, {}) if self._comes_back(value) else odd
            kept[number] = value
        self._loose, self._most_loose = odd, 2 * len(odd) + _LOOSE
        for place, values in places.items():
            self._put(place, {**self._unpacked(place), **values} if place in self._packs else values)

    def _comes_back(self, value: V) -> bool:
        """Return True if packing preserves the value: programs write numbers and text that only JSON has."""
        try:
            return self._decode(self._encode({0: value})) == {0: value}
        except (ValueError, TypeError, OverflowError, RecursionError):
            return False

    def _put(self, place: int, values: dict[int, V]) -> None:
        self._latest = (-1, {})
        there, _ = self._packs.pop(place, (0, b""))
        self._count += len(values) - there.bit_count()
        if values:
            there = sum(1 << number % _SPAN for number in values)
            self._packs[place] = there, zlib.compress(self._encode(values), 1)

    def _unpacked(self, place: int) -> dict[int, V]:
        if self._latest[0] != place:
            self._latest = (place, self._decode(zlib.decompress(self._packs[place][1])))
        return self._latest[1]


def _number(task: str) -> int:
    """Return the number of a task id, or -1 if it is not one."""
    return int(task) if task.isascii() and task.isdecimal() and task[0] != "0" else -1
