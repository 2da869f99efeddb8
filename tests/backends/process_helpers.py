"""Helpers for tests of processes: wait for their end and check whether they run."""

from __future__ import annotations

import asyncio
import os
import select
import time
from pathlib import Path
from typing import Any

from process_search import find_processes_in
from shoal.core.teams.member_backends import MemberProcess, PaneExit


def is_running(pid: int) -> bool:
    """Check that the process has not ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_exit(pid: int, *, within: float) -> bool:
    """Wait until the process has ended; return false after `within` seconds."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], max(0, within))[0])
    finally:
        os.close(fd)


def wait_for_exits_in(directory: Path, *, within: float) -> bool:
    """Wait until no process works in the directory; return false after `within` seconds."""
    deadline = time.monotonic() + within
    while pids := find_processes_in(directory):
        if time.monotonic() > deadline:
            return False
        for pid in pids:
            wait_for_exit(pid, within=deadline - time.monotonic())
    return True


async def wait_for_pane_exit(panes: Any, pane: str) -> PaneExit:
    async with asyncio.timeout(30):
        return await panes.wait_for_pane_exit(pane)


async def wait_for_member_exit(member: MemberProcess) -> str:
    async with asyncio.timeout(20):
        return await member.wait_until_exit()
