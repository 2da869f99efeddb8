"""When a growing journal starts the process that renews its snapshots."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from shoal.app.session.snapshot_update import UPDATE_AFTER, SnapshotUpdater
from shoal.core.errors import ProcessError
from shoal.core.ports import ChildProcessHandle, ProcessLaunchSpec


class RecordingLauncher:
    """Records what is to be started, and starts nothing."""

    def __init__(self) -> None:
        self.launches: list[ProcessLaunchSpec] = []
        self.can_end = asyncio.Event()

    async def start_process(self, launch: ProcessLaunchSpec) -> ChildProcessHandle:
        self.launches.append(launch)
        await self.can_end.wait()
        raise ProcessError("no process can be started")

    async def aclose(self) -> None:
        return


@pytest.fixture
def launcher() -> RecordingLauncher:
    return RecordingLauncher()


async def let_tasks_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_snapshots_are_renewed_whenever_the_journal_has_grown_enough(
    tmp_path: Path, launcher: RecordingLauncher
) -> None:
    launcher.can_end.set()
    counts = []
    async with asyncio.TaskGroup() as tasks:
        updater = SnapshotUpdater(launcher, tmp_path, tmp_path / "t.jsonl", tasks)
        start = 100 * UPDATE_AFTER
        for growth in (
            0,
            UPDATE_AFTER - 1,
            UPDATE_AFTER,
            UPDATE_AFTER + 5,
            2 * UPDATE_AFTER,
            9 * UPDATE_AFTER,
        ):
            updater.on_journal_growth(start + growth)
            await let_tasks_run()
            counts.append(len(launcher.launches))
    assert counts == [0, 0, 1, 1, 2, 3]
    launch = launcher.launches[0]
    assert launch.argv[0] == sys.executable
    assert launch.argv[-2:] == (str(tmp_path), str(tmp_path / "t.jsonl"))
    assert launch.cwd == tmp_path


async def test_one_process_at_a_time_renews_the_snapshots_until_the_session_ends(
    tmp_path: Path, launcher: RecordingLauncher
) -> None:
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        updater = SnapshotUpdater(launcher, tmp_path, tmp_path / "t.jsonl", tasks)
        updater.close()
        for number in range(4):
            updater.on_journal_growth(number * UPDATE_AFTER)
            await let_tasks_run()
        assert len(launcher.launches) == 1
        launcher.can_end.set()
        await let_tasks_run()
        launcher.can_end.clear()
        updater.on_journal_growth(4 * UPDATE_AFTER)
        await let_tasks_run()
        assert len(launcher.launches) == 2
        updater.close()
    assert len(launcher.launches) == 2
