"""Watcher that notices when any run of a home starts, ends, asks or is answered."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SELDOM = 60.0
"""Seconds after which it polls anyway: a notice can be lost."""
UNTOLD = 1.0
"""Seconds between polls if the system sends no notices."""
_QUESTIONS = "questions"
_TELLING = frozenset({"lock", "control.sock", _QUESTIONS})
"""Names in a run's directory whose change means that it starts, ends, or asks for the first time."""


class RunWatch:
    """Calls `on_changed` in the running loop, from its creation until `close`; spurious calls are possible.

    The argument is the set of changed runs, or None if any may have changed.

    One inotify handle with a watch on each directory: a handle for each run would be too many.
    """

    def __init__(self, home: Path, changed: Callable[[set[str] | None], None]) -> None:
        self._runs = home / "shoal" / "runs"
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._inotify: Any = _inotify()
        self._places: dict[int, str] = {}
        """Target of each watch: all runs (empty), one run, or the questions of one (ends with a slash)."""
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
        """Add all watches; return False if some cannot be added."""
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
            # A run's lock is closed when its process ends. The journal is not watched: nobody closes it.
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
        """Return the run that changed; empty for an irrelevant change."""
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
