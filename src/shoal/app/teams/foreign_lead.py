"""Detects that a live program other than Shoal leads a team: by its process, its locks and its writes."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from shoal.core.names import map_to_inbox_name
from shoal.core.teams.roster import TeamRoster
from shoal.core.text.text_format import format_duration
from shoal.stores.files.home.home_paths import get_run_directory, to_possible_session_id
from shoal.stores.files.locks.pid_locks import is_external_lead_alive
from shoal.stores.files.teams.foreign_lead_process import find_live_lead_process
from shoal.stores.files.teams.team_ownership import RECENT_SECONDS, is_created_by_shoal, read_own_writes

_MTIME_PRECISION = 0.02
"""Seconds by which a file's timestamp may lag behind the clock."""
_LOCK_SECONDS = 10.0
"""Other programs refresh a lock directory more often than this."""


def find_live_foreign_lead(home: Path, team: TeamRoster) -> str:
    """Return evidence that another program leads the team; empty if Shoal or nobody leads it."""
    if get_run_directory(home, to_possible_session_id(team.lead_session_id)).is_dir():
        return ""
    if is_created_by_shoal(home, team.name, team.lead_session_id):
        # Its lead is a client of `shoal mcp serve`, or a program that uses the library.
        return "a client of `shoal mcp serve` leads it" if is_external_lead_alive(home, team.name) else ""
    directory, tasks = home / "teams" / team.name, home / "tasks" / team.name
    if (pid := find_live_lead_process(home, team.name)) is not None:
        return f"process {pid} leads it"
    newest, own_periods = 0.0, read_own_writes(home, team.name)
    inboxes = home / "teams" / (map_to_inbox_name(team.given_name) or team.name) / "inboxes"
    for path, status in _iter_entries(directory, directory / "inboxes", inboxes, tasks):
        age = time.time() - status.st_mtime
        is_lock = stat.S_ISDIR(status.st_mode) and path.name.endswith(".lock")
        # Our own lock directories have the sticky bit.
        if is_lock and not status.st_mode & stat.S_ISVTX and age < _LOCK_SECONDS:
            return f"it holds the lock {path}"
        if path.name == ".lock" and stat.S_ISREG(status.st_mode) and _is_locked_by_another_process(path):
            return f"it holds the lock {path}"
        is_own_write = any(start - _MTIME_PRECISION <= status.st_mtime <= end for start, end in own_periods)
        if path.suffix == ".json" and stat.S_ISREG(status.st_mode) and not is_own_write:
            newest = max(newest, status.st_mtime)
    age = max(0.0, time.time() - newest)
    return f"its files changed {format_duration(age)} ago" if age < RECENT_SECONDS else ""


def _is_locked_by_another_process(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, and released at once: other views do not disturb each other, and writers hardly wait.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # the file system has no such locks
    finally:
        os.close(fd)
    return False


def _iter_entries(*directories: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for directory in directories:
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue
        for entry in entries:
            try:
                yield Path(entry.path), entry.stat(follow_symlinks=False)
            except OSError:
                continue
