"""Asking whether a run is live, as all do who look on at it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.core.ids import SessionId
from shoal.stores.files.locks import SessionLock, is_held
from shoal.stores.files.watch import DirectoryWatch


async def test_asking_wakes_nobody_who_looks_on(tmp_path: Path) -> None:
    """Else two who look on would keep each other awake for ever."""
    lock = SessionLock(tmp_path, SessionId("s"))
    told: list[set[str]] = []
    heard = asyncio.Event()

    def named(names: set[str]) -> None:
        told.append(names)
        heard.set()

    watch = DirectoryWatch(lock.path.parent, lambda: None, named=named)
    try:
        for _ in range(3):
            assert is_held(tmp_path, SessionId("s"))
        (lock.path.parent / "journal.jsonl").write_text("x")
        async with asyncio.timeout(10):
            await heard.wait()
        assert {name for names in told for name in names} == {"journal.jsonl"}
    finally:
        watch.close()
        lock.release()
    assert not is_held(tmp_path, SessionId("s"))
