"""Watches for changes to a file or a directory: immediate on Linux, by polling elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.stores.files.access.inotify import InotifyDirectoryWatch, watch_directory_with_inotify

SAFETY_INTERVAL = 1.0
"""Seconds between safety polls: an event can be lost, and network file systems send none."""
POLL_INTERVAL = 0.05
"""Seconds between polls if the system sends no events."""


class DirectoryWatch:
    """Calls `on_change` in the running loop until `close`, sometimes without a change.

    `on_names` is called instead if the system reports which files changed. `on_poll` is called periodically
    if the system sends events, because an event may be lost. With `removals`, removed files count too. With
    `skips_locks`, names that end with `.lock` do not count.
    """

    def __init__(
        self,
        directory: Path,
        on_change: Callable[[], None],
        *,
        on_names: Callable[[set[str]], None] | None = None,
        on_poll: Callable[[], None] | None = None,
        removals: bool = False,
        skips_locks: bool = False,
    ) -> None:
        self._skips_locks = skips_locks
        self._on_change = on_change
        self._on_names = on_names
        self._on_poll = on_poll or on_change
        self._loop = asyncio.get_running_loop()
        self._path = directory
        self._events: InotifyDirectoryWatch | None = None
        self._start_inotify_watch(
            _select_inotify_flags_with_removal if removals else _select_directory_inotify_flags
        )
        self._timer = self._loop.call_later(self._poll_interval, self._run_periodic_poll)

    def close(self) -> None:
        self._timer.cancel()
        notices, self._events = self._events, None
        if notices is not None:
            notices.close()

    async def ignore_events_for(self, seconds: float) -> None:
        """Wait; events do not wake this process meanwhile, and are dropped at the end."""
        events = self._events
        if events is not None:
            events.set_callback(None)
        try:
            await asyncio.sleep(seconds)
        finally:
            if events is not None and events is self._events:
                events.take_changed_names()
                events.set_callback(self._deliver_events)

    def deliver_pending_events(self) -> bool:
        """Deliver pending events now; return False if the system sends none."""
        self._deliver_events()
        return self._events is not None

    def _deliver_events(self) -> None:
        names = set() if self._events is None else self._events.take_changed_names()
        # An event without a name is about the directory itself.
        if names and self._on_names is not None and "" not in names:
            self._on_names(names)
        elif names or names is None:
            self._on_change()

    @property
    def _poll_interval(self) -> float:
        return POLL_INTERVAL if self._events is None else SAFETY_INTERVAL

    def _start_inotify_watch(self, mask: Callable[[Any], Any]) -> None:
        self._events = watch_directory_with_inotify(self._path, mask, skips_locks=self._skips_locks)
        if self._events is not None:
            self._events.set_callback(self._deliver_events)

    def _run_periodic_poll(self) -> None:
        self._timer = self._loop.call_later(self._poll_interval, self._run_periodic_poll)
        if self._events is None:
            self._on_change()
        else:
            self._on_poll()


class FileWatch(DirectoryWatch):
    """Watches one file, whether it is written in place or replaced, and not its neighbors."""

    def __init__(self, file: Path, on_change: Callable[[], None], *, on_poll: Callable[[], None]) -> None:
        super().__init__(file, on_change, on_poll=on_poll)

    def _start_inotify_watch(self, mask: Callable[[Any], Any]) -> None:
        super()._start_inotify_watch(_select_file_inotify_flags)

    def _deliver_events(self) -> None:
        old_events = self._events
        if old_events is not None and old_events.take_changed_names() != set():
            # The new file is watched before anybody reads it, so that no change is missed.
            self._start_inotify_watch(_select_file_inotify_flags)
            old_events.close()
            self._on_change()

    def _run_periodic_poll(self) -> None:
        if self._events is not None:
            super()._run_periodic_poll()
            return
        self._start_inotify_watch(_select_file_inotify_flags)
        self._timer = self._loop.call_later(self._poll_interval, self._run_periodic_poll)
        self._on_change()


def _select_file_inotify_flags(flags: Any) -> Any:
    gone_flags = flags.MOVE_SELF | flags.DELETE_SELF | flags.ATTRIB
    return flags.MODIFY | flags.CLOSE_WRITE | gone_flags | flags.DONT_FOLLOW


def _select_directory_inotify_flags(flags: Any) -> Any:
    return flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.CLOSE_WRITE


def _select_inotify_flags_with_removal(flags: Any) -> Any:
    return _select_directory_inotify_flags(flags) | flags.DELETE | flags.MOVED_FROM
