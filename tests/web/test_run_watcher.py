"""The watcher of all runs reports each change, through the inotify descriptor of the process."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.stores.files.access.file_watch import DirectoryWatch
from shoal.surfaces.web import run_watcher
from shoal.surfaces.web.run_watcher import RunDirectoryWatcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs inotify")


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "shoal" / "runs"
    (directory / "one").mkdir(parents=True)
    return directory


@asynccontextmanager
async def watch_runs(runs: Path) -> AsyncIterator[asyncio.Queue[set[str] | None]]:
    changes: asyncio.Queue[set[str] | None] = asyncio.Queue()
    watcher = RunDirectoryWatcher(runs.parents[1], changes.put_nowait)
    try:
        async with asyncio.timeout(10):
            yield changes
    finally:
        watcher.close()


def count_inotify_descriptors() -> int:
    links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum("inotify" in str(link.readlink()) for link in links)


async def test_the_watcher_shares_the_inotify_descriptor_of_the_process(runs: Path) -> None:
    before = count_inotify_descriptors()
    watch = DirectoryWatch(runs / "one", lambda: None)
    async with watch_runs(runs):
        assert count_inotify_descriptors() == before + 1
    watch.close()
    assert count_inotify_descriptors() == before


async def test_a_run_that_starts_asks_is_answered_and_ends_is_reported(runs: Path) -> None:
    async with watch_runs(runs) as changes:
        (runs / "two").mkdir()
        assert await changes.get() == {"two"}
        lock = (runs / "two" / "lock").open("w")
        assert await changes.get() == {"two"}
        (runs / "two" / "journal.jsonl").write_text("{}")
        (runs / "one" / "questions").mkdir()
        assert await changes.get() == {"one"}
        question = runs / "one" / "questions" / "q.json"
        question.write_text("{}")
        assert await changes.get() == {"one"}
        question.unlink()
        assert await changes.get() == {"one"}
        lock.close()
        assert await changes.get() == {"two"}
        assert changes.empty()


async def test_a_run_directory_that_is_replaced_is_watched_again(runs: Path) -> None:
    async with watch_runs(runs) as changes:
        shutil.rmtree(runs / "one")
        (runs / "one").mkdir()
        while await changes.get() is not None:
            pass
        while not changes.empty():
            changes.get_nowait()
        (runs / "one" / "lock").touch()
        assert await changes.get() == {"one"}


async def test_runs_are_polled_until_their_directory_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_watcher, "POLL_SECONDS", 0.01)
    runs = tmp_path / "shoal" / "runs"
    async with watch_runs(runs) as changes:
        assert await changes.get() is None
        runs.mkdir(parents=True)
        (runs / "one").mkdir()
        monkeypatch.setattr(run_watcher, "SAFETY_SECONDS", 3600.0)
        while not count_inotify_descriptors():
            await changes.get()
        while not changes.empty():
            changes.get_nowait()
        (runs / "one" / "lock").touch()
        while (change := await changes.get()) is None:
            pass
        assert change == {"one"}
