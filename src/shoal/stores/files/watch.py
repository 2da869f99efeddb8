"""Learning that something in a directory changed: at once on Linux, by looking now and then elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.stores.files.inotify import inotify_on

SAFETY = 1.0
"""Seconds after which a watcher looks anyway: a notice can be lost, and network file systems send none."""
UNTOLD = 0.05
"""Seconds between looks where the system tells nothing."""


class DirectoryWatch:
    """Calls `changed` in the running loop, from its making until `close`. It may be called for nothing.

    With `named`, this is called instead where the system tells which files changed; with `anyway`, this is
    called now and then where it tells of changes but a notice may have been lost.
    """

    def __init__(
        self,
        directory: Path,
        changed: Callable[[], None],
        *,
        named: Callable[[set[str]], None] | None = None,
        anyway: Callable[[], None] | None = None,
    ) -> None:
        self._changed = changed
        self._named = named
        self._anyway = anyway or changed
        self._loop = asyncio.get_running_loop()
        self._inotify = inotify_on(directory, _changes)
        self._pause = UNTOLD if self._inotify is None else SAFETY
        if self._inotify is not None:
            self._loop.add_reader(self._inotify.fileno(), self._told)
        self._timer = self._loop.call_later(self._pause, self._look)

    def close(self) -> None:
        self._timer.cancel()
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            self._loop.remove_reader(inotify.fileno())
            inotify.close()

    def tell_now(self) -> bool:
        """Tell of what changed until this moment; False where the system does not say."""
        self._told()
        return self._inotify is not None

    def _told(self) -> None:
        names: set[str] = set()
        if self._inotify is not None:
            with suppress(OSError):
                names = {event.name for event in self._inotify.read(timeout=0)}
        if not names:
            return
        # A notice without a name is about the directory itself, or says that notices were lost.
        if self._named is not None and "" not in names:
            self._named(names)
        else:
            self._changed()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._look)
        if self._inotify is None:
            self._changed()
        else:
            self._anyway()


def _changes(flags: Any) -> Any:
    return flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.CLOSE_WRITE
