"""Learning that a run began, ended, asks something or was answered, for all runs of a home at once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SELDOM = 60.0
"""Seconds after which it looks anyway: a notice can be lost."""
UNTOLD = 1.0
"""Seconds between looks where the system tells nothing."""
_QUESTIONS = "questions"
_TELLING = frozenset({"lock", "control.sock", _QUESTIONS})
"""What in the directory of a run tells that it begins or ends, or that it asks for the first time."""


class RunWatch:
    """Calls `changed` in the running loop, from its making until `close`. It may be called for nothing.

    It is told the runs that changed, or None where it may be any.

    One handle of the system with a watch on each directory: a handle for each run would be too many.
    """

    def __init__(self, home: Path, changed: Callable[[set[str] | None], None]) -> None:
        self._runs = home / "shoal" / "runs"
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._inotify: Any = _inotify()
        self._places: dict[int, str] = {}
        """What each watch is on: the runs (empty), one run, or the questions of one (ends with a slash)."""
        self._all = self._inotify is not None and self._watch_all()
        if self._inotify is not None:
            self._loop.add_reader(self._inotify.fileno(), self._told)
        self._timer = self._loop.call_later(self._pause, self._look)

    @property
    def _pause(self) -> float:
        return SELDOM if self._all else UNTOLD

    def close(self) -> None:
        self._timer.cancel()
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            self._loop.remove_reader(inotify.fileno())
            inotify.close()

    def _look(self) -> None:
        if self._inotify is not None and not self._all:
            self._all = self._watch_all()
        self._timer = self._loop.call_later(self._pause, self._look)
        self._changed(None)

    def _watch_all(self) -> bool:
        """False where not all of it can be watched."""
        if not self._add(self._runs, ""):
            return False
        try:
            names = [entry.name for entry in os.scandir(self._runs) if entry.is_dir()]
        except OSError:
            return False
        return all(map(self._watch_run, names))

    def _watch_run(self, name: str) -> bool:
        watched = self._add(self._runs / name, name)
        questions = self._runs / name / _QUESTIONS
        return watched and (not questions.is_dir() or self._add(questions, f"{name}/"))

    def _add(self, directory: Path, place: str) -> bool:
        from inotify_simple import flags  # type: ignore[import-untyped]

        mask = flags.CREATE | flags.MOVED_TO | flags.DELETE | flags.ONLYDIR
        if place and not place.endswith("/"):
            # The lock of a run is closed when its process ends. The journal is left out: nobody closes it.
            mask |= flags.CLOSE_WRITE
        try:
            self._places[self._inotify.add_watch(directory, mask)] = place
        except OSError:
            return False
        return True

    def _told(self) -> None:
        notices: list[Any] = []
        with suppress(OSError):
            notices = self._inotify.read(timeout=0)
        if any(notice.wd == -1 for notice in notices):
            self._all = self._watch_all()
            self._changed(None)  # notices were lost
            return
        touched = {self._about(self._places.get(notice.wd, ""), notice.name) for notice in notices} - {""}
        if touched:
            self._changed(touched)

    def _about(self, place: str, name: str) -> str:
        """The run of which something is different now; none for what does not count."""
        if place.endswith("/"):
            return place[:-1] if name.endswith(".json") else ""
        if not place:
            self._all = self._watch_run(name) and self._all
            return name
        if name == _QUESTIONS:
            self._all = self._add(self._runs / place / _QUESTIONS, f"{place}/") and self._all
        return place if name in _TELLING else ""


def _inotify() -> Any:
    if sys.platform != "linux":
        return None
    from inotify_simple import INotify

    try:
        return INotify(nonblocking=True)
    except OSError:
        return None  # the user's limit is reached
