"""Detects that a live program other than Shoal leads a team: by its process, its locks and its writes."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.core.ids import SessionId
from shoal.core.teams.roster import TeamRoster
from shoal.core.text.text_format import format_duration
from shoal.stores.files.home.home_paths import get_run_directory
from shoal.wire.foreign_json import InvalidFileContent, parse_foreign_json

RECENT_SECONDS = 600.0
"""A team whose files changed within this time counts as led."""
_LOCK_SECONDS = 10.0
"""Other programs refresh a lock directory more often than this."""


def find_live_foreign_lead(home: Path, team: TeamRoster) -> str:
    """Return what shows that another program leads the team; empty if Shoal leads it, or nobody does."""
    session = team.lead_session_id
    if session and get_run_directory(home, SessionId(session)).is_dir():
        return ""
    directory, tasks = home / "teams" / team.name, home / "tasks" / team.name
    pid = _read_lead_pid(directory / "config.json")
    if pid is not None and _is_process_alive(pid):
        return f"process {pid} leads it"
    newest = 0.0
    for path, status in _iter_entries(directory, directory / "inboxes", tasks):
        age = time.time() - status.st_mtime
        is_lock = stat.S_ISDIR(status.st_mode) and path.name.endswith(".lock")
        # Our own lock directories have the sticky bit.
        if is_lock and not status.st_mode & stat.S_ISVTX and age < _LOCK_SECONDS:
            return f"it holds the lock {path}"
        if path.suffix == ".json" and stat.S_ISREG(status.st_mode):
            newest = max(newest, status.st_mtime)
    age = max(0.0, time.time() - newest)
    return f"its files changed {format_duration(age)} ago" if age < RECENT_SECONDS else ""


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


def _read_lead_pid(path: Path) -> int | None:
    """Return the pid in `leadProcess`, which programs of late 2026 write."""
    try:
        content = parse_foreign_json(path.read_bytes())
    except OSError:
        return None
    process: Any = {}
    if not isinstance(content, InvalidFileContent) and isinstance(content, dict):
        process = content.get("leadProcess")
    pid = process.get("pid") if isinstance(process, dict) else None
    return pid if isinstance(pid, int) and not isinstance(pid, bool) and pid > 0 else None


def _is_process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
