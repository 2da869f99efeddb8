"""Checking whether a run is live, as every viewer of it does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.core.ids import SessionId
from shoal.stores.files.access.file_watch import DirectoryWatch
from shoal.stores.files.locks.pid_locks import SessionLock, is_session_running


async def test_checking_whether_a_session_runs_wakes_no_watcher(tmp_path: Path) -> None:
    """Otherwise two viewers would wake each other forever."""
    lock = SessionLock(tmp_path, SessionId("s"))
    seen: list[set[str]] = []
    woken = asyncio.Event()

    def record_names(names: set[str]) -> None:
        seen.append(names)
        woken.set()

    watch = DirectoryWatch(lock.path.parent, lambda: None, on_names=record_names)
    try:
        for _ in range(3):
            assert is_session_running(tmp_path, SessionId("s"))
        (lock.path.parent / "journal.jsonl").write_text("x")
        async with asyncio.timeout(10):
            await woken.wait()
        assert {name for names in seen for name in names} == {"journal.jsonl"}
    finally:
        watch.close()
        lock.release()
    assert not is_session_running(tmp_path, SessionId("s"))
