"""Watcher that notices when any run of a home starts, ends, asks or is answered."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SAFETY_SECONDS = 60.0
"""Seconds after which it polls anyway: a notice can be lost."""
POLL_SECONDS = 1.0
"""Seconds between polls if the system sends no notices."""
_QUESTIONS = "questions"
_WATCHED_NAMES = frozenset({"lock", "control.sock", _QUESTIONS})
"""Names in a run's directory whose change means that it starts, ends, or asks for the first time."""


class RunDirectoryWatcher:
    """Calls `on_changed` in the running loop, from its creation until `close`; spurious calls are possible.

    The argument is the set of changed runs, or None if any may have changed.

    One inotify handle with a watch on each directory: a handle for each run would be too many.
    """

    def __init__(self, home: Path, on_changed: Callable[[set[str] | None], None]) -> None:
        self._runs = home / "shoal" / "runs"
        self._on_changed = on_changed
        self._loop = asyncio.get_running_loop()
        self._inotify: Any = _open_inotify()
        self._watches: dict[int, str] = {}
        """Target of each watch: all runs (empty), one run, or the questions of one (ends with a slash)."""
        self._is_complete = self._inotify is not None and self._watch_all_directories()
        if self._inotify is not None:
            self._loop.add_reader(self._inotify.fileno(), self._read_inotify_events)
        self._timer = self._loop.call_later(self._poll_interval, self._poll_runs)

    @property
    def _poll_interval(self) -> float:
        return SAFETY_SECONDS if self._is_complete else POLL_SECONDS

    def close(self) -> None:
        self._timer.cancel()
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            self._loop.remove_reader(inotify.fileno())
            inotify.close()

    def _poll_runs(self) -> None:
        if self._inotify is not None and not self._is_complete:
            self._is_complete = self._watch_all_directories()
        self._timer = self._loop.call_later(self._poll_interval, self._poll_runs)
        self._on_changed(None)

    def _watch_all_directories(self) -> bool:
        """Add all watches; return False if some cannot be added."""
        if not self._add_watch(self._runs, ""):
            return False
        try:
            names = [entry.name for entry in os.scandir(self._runs) if entry.is_dir()]
        except OSError:
            return False
        return all(map(self._watch_run, names))

    def _watch_run(self, name: str) -> bool:
        is_watched = self._add_watch(self._runs / name, name)
        questions_directory = self._runs / name / _QUESTIONS
        return is_watched and (
            not questions_directory.is_dir() or self._add_watch(questions_directory, f"{name}/")
        )

    def _add_watch(self, directory: Path, label: str) -> bool:
        from inotify_simple import flags  # type: ignore[import-untyped]

        mask = flags.CREATE | flags.MOVED_TO | flags.DELETE | flags.ONLYDIR
        if label and not label.endswith("/"):
            # A run's lock is closed when its process ends. The journal is not watched: nobody closes it.
            mask |= flags.CLOSE_WRITE
        try:
            self._watches[self._inotify.add_watch(directory, mask)] = label
        except OSError:
            return False
        return True

    def _read_inotify_events(self) -> None:
        inotify_events: list[Any] = []
        with suppress(OSError):
            inotify_events = self._inotify.read(timeout=0)
        if any(notice.wd == -1 for notice in inotify_events):
            self._is_complete = self._watch_all_directories()
            self._on_changed(None)  # notices were lost
            return
        changed_runs = {
            self._find_changed_run(self._watches.get(notice.wd, ""), notice.name) for notice in inotify_events
        } - {""}
        if changed_runs:
            self._on_changed(changed_runs)

    def _find_changed_run(self, label: str, name: str) -> str:
        """Return the run that changed; empty for an irrelevant change."""
        if label.endswith("/"):
            return label[:-1] if name.endswith(".json") else ""
        if not label:
            self._is_complete = self._watch_run(name) and self._is_complete
            return name
        if name == _QUESTIONS:
            self._is_complete = (
                self._add_watch(self._runs / label / _QUESTIONS, f"{label}/") and self._is_complete
            )
        return label if name in _WATCHED_NAMES else ""


def _open_inotify() -> Any:
    if sys.platform != "linux":
        return None
    from inotify_simple import INotify

    try:
        return INotify(nonblocking=True)
    except OSError:
        return None  # the user's limit is reached
