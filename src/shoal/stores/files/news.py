"""Which files of a directory changed since one last asked, from the kernel where it tells."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from shoal.stores.files.inotify import inotify_on

_ROOM = 1 << 18


class News:
    """Names of files that were written, moved or removed; asking costs next to nothing while none was."""

    def __init__(self, inotify: Any, over: int) -> None:
        self._inotify = inotify
        self._over = over

    def fileno(self) -> int:
        """Readable when there is news."""
        return int(self._inotify.fileno())

    def names(self) -> set[str] | None:
        """Since the last call; None where too much happened to be told."""
        from inotify_simple import parse_events  # type: ignore[import-untyped]

        found: set[str] = set()
        lost = False
        while data := self._data():
            for event in parse_events(data):
                lost = lost or bool(event.mask & self._over)
                found.add(event.name)
            if len(data) < _ROOM // 2:
                break
        return None if lost else found

    def close(self) -> None:
        self._inotify.close()

    def _data(self) -> bytes:
        with suppress(BlockingIOError):
            return os.read(self._inotify.fileno(), _ROOM)
        return b""


def news_of(directory: int) -> News | None:
    """Of the open directory, from now on; None where the system tells nothing."""
    inotify = inotify_on(f"/proc/self/fd/{directory}", _changes)
    if inotify is None:
        return None
    from inotify_simple import flags

    return News(inotify, int(flags.Q_OVERFLOW | flags.IGNORED))


def _changes(flags: Any) -> Any:
    # Not MODIFY: a program that writes in place is heard when it has finished.
    moved = flags.MOVED_TO | flags.MOVED_FROM
    return flags.CLOSE_WRITE | flags.CREATE | moved | flags.DELETE | flags.ONLYDIR
