"""Watches for changes of a file or a directory: immediate on Linux, by polling elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.stores.files.inotify import Notices, notices_of

SAFETY = 1.0
"""Seconds between safety polls: an event can be lost, and network file systems send none."""
UNTOLD = 0.05
"""Seconds between polls if the system sends no events."""


class DirectoryWatch:
    """Calls `on_change` in the running loop until `close`, sometimes without a change.

    `on_names` is called instead if the system reports which files changed. `on_poll` is called periodically
    if the system sends events, because an event may be lost. With `removals`, removed files count too.
    """

    def __init__(
        self,
        directory: Path,
        changed: Callable[[], None],
        *,
        named: Callable[[set[str]], None] | None = None,
        anyway: Callable[[], None] | None = None,
        removals: bool = False,
    ) -> None:
        self._changed = changed
        self._named = named
        self._anyway = anyway or changed
        self._loop = asyncio.get_running_loop()
        self._place = directory
        self._notices: Notices | None = None
        self._listen(_and_gone if removals else _in_directory)
        self._timer = self._loop.call_later(self._pause, self._look)

    def close(self) -> None:
        self._timer.cancel()
        notices, self._notices = self._notices, None
        if notices is not None:
            notices.close()

    def tell_now(self) -> bool:
        """Deliver pending events now; return False if the system sends none."""
        self._told()
        return self._notices is not None

    def _told(self) -> None:
        names = set() if self._notices is None else self._notices.taken()
        # An event without a name is about the directory itself.
        if names and self._named is not None and "" not in names:
            self._named(names)
        elif names or names is None:
            self._changed()

    @property
    def _pause(self) -> float:
        return UNTOLD if self._notices is None else SAFETY

    def _listen(self, mask: Callable[[Any], Any]) -> None:
        self._notices = notices_of(self._place, mask)
        if self._notices is not None:
            self._notices.tell(self._told)

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._look)
        if self._notices is None:
            self._changed()
        else:
            self._anyway()


class FileWatch(DirectoryWatch):
    """Watches one file, whether it is written in place or replaced, and not its neighbours."""

    def __init__(self, file: Path, changed: Callable[[], None], *, anyway: Callable[[], None]) -> None:
        super().__init__(file, changed, anyway=anyway)

    def _listen(self, mask: Callable[[Any], Any]) -> None:
        super()._listen(_of_file)

    def _told(self) -> None:
        before = self._notices
        if before is not None and before.taken() != set():
            # The new file is watched before anybody reads it, so that no change is missed.
            self._listen(_of_file)
            before.close()
            self._changed()

    def _look(self) -> None:
        if self._notices is not None:
            super()._look()
            return
        self._listen(_of_file)
        self._timer = self._loop.call_later(self._pause, self._look)
        self._changed()


def _of_file(flags: Any) -> Any:
    gone = flags.MOVE_SELF | flags.DELETE_SELF | flags.ATTRIB
    return flags.MODIFY | flags.CLOSE_WRITE | gone | flags.DONT_FOLLOW


def _in_directory(flags: Any) -> Any:
    return flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.CLOSE_WRITE


def _and_gone(flags: Any) -> Any:
    return _in_directory(flags) | flags.DELETE | flags.MOVED_FROM
