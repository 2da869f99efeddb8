"""Parts of a store that all handles in one event loop share, because a process may have thousands of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class ClosablePart(Protocol):
    def close(self) -> None: ...


P = TypeVar("P", bound=ClosablePart)


class SharedPart(Generic[P]):
    """A part, which is closed when its last user has released it."""

    def __init__(self, part: P, on_unused: Callable[[], None]) -> None:
        self.part = part
        self.users = 0
        self._on_unused = on_unused

    def release(self) -> None:
        self.users -= 1
        if not self.users:
            self._on_unused()
            self.part.close()


class SharedParts:
    def __init__(self) -> None:
        self._parts: dict[tuple[object, ...], SharedPart[Any]] = {}

    def acquire(self, key: tuple[str, str], create: Callable[[], P]) -> SharedPart[P]:
        """Return the part of the running event loop; without one, a part for the caller alone."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            shared = SharedPart(create(), lambda: None)
        else:
            # The event loop itself: the id of one that is gone may be in use again.
            place = (loop, *key)
            if place not in self._parts:
                self._parts[place] = SharedPart(create(), lambda: self._remove(place))
            shared = self._parts[place]
        shared.users += 1
        return shared

    def _remove(self, place: tuple[object, ...]) -> None:
        del self._parts[place]
