"""Directory events of the kernel (inotify), with one inotify instance per event loop.

A user may have few instances, 128 on most systems, and a team may have as many processes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

_ROOM = 1 << 18


class Notices:
    """Events of one directory: names of changed files, collected until they are taken."""

    def __init__(self, source: _Source, watch: int, mask: int) -> None:
        self._source = source
        self._names: set[str] = set()
        self._lost = False
        self.watch = watch
        self.mask = mask
        self.heard: Callable[[], None] | None = None

    def taken(self) -> set[str] | None:
        """Return the names since the last call, almost free if there are none; None if some were lost."""
        self._source.read(asker=self)
        names, lost = self._names, self._lost
        self._names, self._lost = set(), False
        return None if lost else names

    def tell(self, heard: Callable[[], None] | None) -> None:
        """Set the function that the running loop calls if there are names to take; None removes it."""
        self.heard = heard
        self._source.listen()
        if heard is not None and (self._names or self._lost):
            asyncio.get_running_loop().call_soon(self.hear)

    def hear(self) -> None:
        if self.heard is not None and (self._names or self._lost):
            self.heard()

    def add(self, name: str, *, lost: bool) -> None:
        self._names.add(name)
        self._lost = self._lost or lost

    def close(self) -> None:
        self.heard = None
        self._source.drop(self)


class _Source:
    def __init__(self) -> None:
        from inotify_simple import INotify, flags  # type: ignore[import-untyped]

        self._inotify = INotify(nonblocking=True)
        self._lost = int(flags.Q_OVERFLOW | flags.IGNORED)
        self._more = int(flags.MASK_ADD)
        self._loop: asyncio.AbstractEventLoop | None = None
        """Loop that reads events while a callback is set."""
        self._watches: dict[int, list[Notices]] = {}

    @property
    def closed(self) -> bool:
        return bool(self._inotify.closed)

    def watch(self, directory: Path | str, mask: int) -> Notices:
        # Watchers of the same directory share one watch, which reports what any of them needs.
        watch = self._inotify.add_watch(directory, mask | self._more)
        notices = Notices(self, watch, mask)
        self._watches.setdefault(watch, []).append(notices)
        return notices

    def drop(self, notices: Notices) -> None:
        sharing = self._watches.get(notices.watch, [])
        if notices in sharing:
            sharing.remove(notices)
            if not sharing:
                del self._watches[notices.watch]
                with suppress(OSError):  # the directory is gone, and the watch with it
                    self._inotify.rm_watch(notices.watch)
        self.close_if_unused()

    def close_if_unused(self) -> None:
        self.listen()
        if not self._watches:
            self._inotify.close()

    def listen(self) -> None:
        wanted = any(notices.heard is not None for sharing in self._watches.values() for notices in sharing)
        if self._loop is not None and self._loop.is_closed():
            self._loop = None
        if wanted and self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._inotify.fileno(), self._readable)
        elif not wanted and self._loop is not None:
            self._loop.remove_reader(self._inotify.fileno())
            self._loop = None

    def read(self, *, asker: Notices | None = None) -> None:
        """Distribute the available events. Callbacks of all but the requester are scheduled separately."""
        if self.closed:
            return
        from inotify_simple import parse_events

        touched: set[Notices] = set()
        while data := self._data():
            for event in parse_events(data):
                for notices in self._meant(event):
                    notices.add(event.name, lost=bool(event.mask & self._lost))
                    touched.add(notices)
            if len(data) < _ROOM // 2:
                break
        for notices in touched:
            if self._loop is not None and notices is not asker and notices.heard is not None:
                self._loop.call_soon(notices.hear)

    def _meant(self, event: Any) -> Iterator[Notices]:
        if event.wd == -1:
            for sharing in self._watches.values():
                yield from sharing
            return
        for notices in self._watches.get(event.wd, ()):
            if event.mask & (notices.mask | self._lost):
                yield notices

    def _readable(self) -> None:
        self.read()

    def _data(self) -> bytes:
        with suppress(BlockingIOError):
            return os.read(self._inotify.fileno(), _ROOM)
        return b""


_sources: WeakKeyDictionary[asyncio.AbstractEventLoop, _Source] = WeakKeyDictionary()


def notices_of(directory: Path | str, mask: Callable[[Any], Any]) -> Notices | None:
    """Watch a directory; `mask` selects flags of `inotify_simple`. Returns None without event support."""
    if sys.platform != "linux":
        return None
    from inotify_simple import flags

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    source = None if loop is None else _sources.get(loop)
    if source is None or source.closed:
        try:
            source = _Source()
        except OSError:
            return None  # the user's limit is reached
        if loop is not None:
            _sources[loop] = source
    try:
        return source.watch(directory, int(mask(flags)))
    except OSError:
        source.close_if_unused()
        return None
