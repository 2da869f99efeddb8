"""Process that leads a team, as programs of late 2026 record it in the roster."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.stores.files.home.home_paths import read_state_file
from shoal.wire.foreign_json import InvalidFileContent, parse_foreign_json

_CLOCK_TOLERANCE = 60.0
"""Seconds by which the clock may have been set since the process claimed the team."""


def find_live_lead_process(home: Path, team: str) -> int | None:
    """Return the pid in `leadProcess` of the roster if that process is alive."""
    try:
        content = parse_foreign_json(read_state_file(home / "teams" / team / "config.json"))
    except OSError:
        return None
    process: Any = {}
    if not isinstance(content, InvalidFileContent) and isinstance(content, dict):
        process = content.get("leadProcess")
    pid = process.get("pid") if isinstance(process, dict) else None
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0 or not _is_process_alive(pid):
        return None
    return None if _has_started_after(pid, process.get("claimedAt")) else pid


def _is_process_alive(pid: int) -> bool:
    try:
        # A process of another user is alive, too.
        with suppress(PermissionError):
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _has_started_after(pid: int, claimed_at: Any) -> bool:
    """Return True if the process started after the team was claimed: the pid belongs to another one now.

    `claimed_at` is in milliseconds. False if the start is unknown.
    """
    if not isinstance(claimed_at, int | float):
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return False
    return time.time() - age > claimed_at / 1000 + _CLOCK_TOLERANCE
