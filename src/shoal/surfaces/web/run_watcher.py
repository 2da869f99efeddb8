"""Watcher that notices when any run of a home starts, ends, asks or is answered."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.stores.files.access.inotify import InotifyDirectoryWatch, watch_directory_with_inotify

if TYPE_CHECKING:
    from shoal.stores.postgres.run_copies import RunCopies

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
    """

    def __init__(self, home: Path, on_changed: Callable[[set[str] | None], None]) -> None:
        self._runs = home / "shoal" / "runs"
        self._on_changed = on_changed
        self._loop = asyncio.get_running_loop()
        self._watches: dict[str, InotifyDirectoryWatch] = {}
        """Watches by path under the runs directory: for all runs (empty), for one run, or for its
        questions."""
        self._is_complete = self._watch_all_directories()
        self._timer = self._loop.call_later(self._poll_interval, self._poll_runs)

    @property
    def _poll_interval(self) -> float:
        return SAFETY_SECONDS if self._is_complete else POLL_SECONDS

    def close(self) -> None:
        self._timer.cancel()
        while self._watches:
            self._watches.popitem()[1].close()

    def _poll_runs(self) -> None:
        self._is_complete = self._is_complete or self._watch_all_directories()
        self._timer = self._loop.call_later(self._poll_interval, self._poll_runs)
        self._on_changed(None)

    def _watch_all_directories(self) -> bool:
        """Add all missing watches; return False if some cannot be added."""
        if not self._add_watch("", _select_inotify_flags):
            return False
        try:
            names = [entry.name for entry in os.scandir(self._runs) if entry.is_dir()]
        except OSError:
            return False
        return all(map(self._watch_run, names))

    def _watch_run(self, name: str) -> bool:
        is_watched = self._add_watch(name, _select_run_inotify_flags)
        questions = f"{name}/{_QUESTIONS}"
        return is_watched and (
            not (self._runs / questions).is_dir() or self._add_watch(questions, _select_inotify_flags)
        )

    def _add_watch(self, path: str, mask: Callable[[Any], Any]) -> bool:
        if path not in self._watches:
            watch = watch_directory_with_inotify(self._runs / path, mask)
            if watch is None:
                return False
            self._watches[path] = watch
            watch.set_callback(partial(self._handle_directory_change, path))
        return True

    def _handle_directory_change(self, path: str) -> None:
        names = self._watches[path].take_changed_names()
        if names is None:
            self._watches.pop(path).close()
            self._is_complete = False
            if (self._runs / path).is_dir():
                # Notices were lost, perhaps by all watches at once: one poll for all of them.
                self._timer.cancel()
                self._timer = self._loop.call_later(0, self._poll_runs)
            return
        changed_runs = {self._find_changed_run(path, name) for name in names} - {""}
        if changed_runs:
            self._on_changed(changed_runs)

    def _find_changed_run(self, path: str, name: str) -> str:
        """Return the run that changed; empty for an irrelevant change."""
        run, _, directory = path.partition("/")
        if directory:
            return run if name.endswith(".json") else ""
        if not run:
            self._is_complete = self._watch_run(name) and self._is_complete
            return name
        if name == _QUESTIONS:
            self._is_complete = self._watch_run(run) and self._is_complete
        return run if name in _WATCHED_NAMES else ""


class RunCopiesWatcher:
    """Calls `on_changed` in the running loop with the runs of a database that changed, until `close`."""

    def __init__(self, copies: RunCopies, on_changed: Callable[[set[str] | None], None]) -> None:
        self._listeners = copies.change_listeners
        loop = asyncio.get_running_loop()

        def call_in_loop(changed_runs: set[str]) -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(on_changed, changed_runs)

        self._listener = call_in_loop
        self._listeners.append(call_in_loop)

    def close(self) -> None:
        self._listeners.remove(self._listener)


def _select_inotify_flags(flags: Any) -> Any:
    return flags.CREATE | flags.MOVED_TO | flags.DELETE | flags.ONLYDIR


def _select_run_inotify_flags(flags: Any) -> Any:
    # A run's lock is closed when its process ends. The journal is not watched: nobody closes it.
    return _select_inotify_flags(flags) | flags.CLOSE_WRITE
