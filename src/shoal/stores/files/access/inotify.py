"""Directory events of the kernel (inotify), with one inotify instance per event loop.

A user may have few instances, 128 on most systems, and a team may have as many processes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any
from weakref import WeakKeyDictionary

from shoal.stores.files.access.atomic_rename import FILE_NAME_CODEC

_EVENT_HEADER = Struct("iIII")
"""Watch, flags, cookie and length of the name. A name is followed by zeros."""
_EVENT_HEADER_SIZE = _EVENT_HEADER.size
_LOCK_SUFFIX = b".lock"
_BUFFER_SIZE = 1 << 14
"""Python maps new memory for a larger one at each read, and most reads find nothing."""


class InotifyDirectoryWatch:
    """Events of one directory: names of changed files, collected until they are taken."""

    def __init__(self, source: _InotifyReader, watch: int, mask: int, *, skips_locks: bool) -> None:
        self._source = source
        self.names: set[bytes] = set()
        """Names that were not taken yet."""
        self.is_lost = False
        """True if events were lost."""
        self.watch = watch
        self.mask = mask
        self.skips_locks = skips_locks
        """True if names that end with `.lock` are not reported."""
        self.callback: Callable[[], None] | None = None
        self.is_callback_scheduled = False

    def take_changed_names(self) -> set[str] | None:
        """Return the names since the last call, almost free if there are none; None if some were lost."""
        self._source.read_and_distribute_events(requester=self)
        if self.is_lost:
            self.names, self.is_lost = set(), False
            return None
        if not self.names:
            return set()
        names, self.names = self.names, set()
        return {str(name, *FILE_NAME_CODEC) for name in names}

    def set_callback(self, callback: Callable[[], None] | None) -> None:
        """Set the function that the running loop calls if there are names to take; None removes it."""
        self.callback = callback
        self._source.update_loop_reader()
        if callback is not None and (self.names or self.is_lost):
            asyncio.get_running_loop().call_soon(self.run_callback_if_pending)

    def run_callback_if_pending(self) -> None:
        self.is_callback_scheduled = False
        if self.callback is not None and (self.names or self.is_lost):
            self.callback()

    def close(self) -> None:
        self.callback = None
        self._source.remove_watch(self)


class _InotifyReader:
    def __init__(self) -> None:
        from inotify_simple import INotify, flags  # type: ignore[import-untyped]

        self._inotify = INotify(nonblocking=True)
        self._fd = self._inotify.fileno()
        self._lost = int(flags.Q_OVERFLOW | flags.IGNORED)
        self._more = int(flags.MASK_ADD)
        self._loop: asyncio.AbstractEventLoop | None = None
        """Loop that reads events while a callback is set."""
        self._watches: dict[int, list[InotifyDirectoryWatch]] = {}

    @property
    def is_closed(self) -> bool:
        return bool(self._inotify.closed)

    def add_watch(self, directory: Path | str, mask: int, *, skips_locks: bool) -> InotifyDirectoryWatch:
        # Watchers of the same directory share one watch, which reports what any of them needs.
        watch = self._inotify.add_watch(directory, mask | self._more)
        notices = InotifyDirectoryWatch(self, watch, mask, skips_locks=skips_locks)
        self._watches.setdefault(watch, []).append(notices)
        return notices

    def remove_watch(self, events: InotifyDirectoryWatch) -> None:
        watchers = self._watches.get(events.watch, [])
        if events in watchers:
            watchers.remove(events)
            if not watchers:
                del self._watches[events.watch]
                with suppress(OSError):  # the directory is gone, and the watch with it
                    self._inotify.rm_watch(events.watch)
        self.close_if_unused()

    def close_if_unused(self) -> None:
        self.update_loop_reader()
        if not self._watches:
            self._inotify.close()

    def update_loop_reader(self) -> None:
        is_needed = any(
            notices.callback is not None for sharing in self._watches.values() for notices in sharing
        )
        if self._loop is not None and self._loop.is_closed():
            self._loop = None
        if is_needed and self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._inotify.fileno(), self._on_readable)
        elif not is_needed and self._loop is not None:
            self._loop.remove_reader(self._inotify.fileno())
            self._loop = None

    def read_and_distribute_events(self, *, requester: InotifyDirectoryWatch | None = None) -> None:
        """Distribute the available events. All callbacks except the requester's are scheduled separately."""
        if self._inotify.closed:
            return
        changed: set[InotifyDirectoryWatch] = set()
        while data := self._read_event_bytes():
            position = 0
            while position < len(data):
                watch, mask, _, length = _EVENT_HEADER.unpack_from(data, position)
                start = position + _EVENT_HEADER_SIZE
                position = start + length
                name = data[start:position].rstrip(b"\0")
                if watch == -1 or mask & self._lost:
                    changed.update(self._mark_events_lost(watch, name, is_lost=bool(mask & self._lost)))
                    continue
                is_lock = name.endswith(_LOCK_SUFFIX)
                for notices in self._watches.get(watch, ()):
                    if mask & notices.mask and not (is_lock and notices.skips_locks):
                        notices.names.add(name)
                        changed.add(notices)
            if len(data) < _BUFFER_SIZE // 2:
                break
        for notices in changed:
            if (
                self._loop is not None
                and notices is not requester
                and notices.callback is not None
                and not notices.is_callback_scheduled
            ):
                notices.is_callback_scheduled = True
                self._loop.call_soon(notices.run_callback_if_pending)

    def _mark_events_lost(self, watch: int, name: bytes, *, is_lost: bool) -> Sequence[InotifyDirectoryWatch]:
        """Record an event about a watch, or about all, that is reported whatever they select."""
        watchers = (
            [notices for sharing in self._watches.values() for notices in sharing]
            if watch == -1
            else self._watches.get(watch, ())
        )
        for notices in watchers:
            notices.names.add(name)
            notices.is_lost = notices.is_lost or is_lost
        return watchers

    def _on_readable(self) -> None:
        self.read_and_distribute_events()

    def _read_event_bytes(self) -> bytes:
        try:
            return os.read(self._fd, _BUFFER_SIZE)
        except BlockingIOError:
            return b""


_readers: WeakKeyDictionary[asyncio.AbstractEventLoop, _InotifyReader] = WeakKeyDictionary()


def watch_directory_with_inotify(
    directory: Path | str, mask: Callable[[Any], Any], *, skips_locks: bool = False
) -> InotifyDirectoryWatch | None:
    """Watch a directory; `mask` selects flags of `inotify_simple`. Returns None without event support.

    With `skips_locks`, names that end with `.lock` are not reported: each change of a shared file takes
    and releases locks next to it.
    """
    if sys.platform != "linux":
        return None
    from inotify_simple import flags

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    source = None if loop is None else _readers.get(loop)
    if source is None or source.is_closed:
        try:
            source = _InotifyReader()
        except OSError:
            return None  # the user's limit is reached
        if loop is not None:
            _readers[loop] = source
    try:
        return source.add_watch(directory, int(mask(flags)), skips_locks=skips_locks)
    except OSError:
        source.close_if_unused()
        return None
