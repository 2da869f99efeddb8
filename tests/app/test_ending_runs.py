"""A run is ended from another process, whatever its own does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.app.outside.ending import end_run
from shoal.app.outside.watching import Run, demand, watch
from shoal.core.clock import SystemClock
from shoal.core.errors import RunHangs, StoreError
from shoal.core.events import SessionStarted
from shoal.core.ids import LEAD, SessionId
from shoal.runs.sockets import connect
from shoal.stores.files.locks import SessionLock, holder
from shoal.wire.control import Status
from shoal.wire.journal import journal_line

SESSION = SessionId("11111111-2222-4333-8444-555555555555")
HOLDS = """
import signal, socket, sys
from pathlib import Path
from shoal.runs.sockets import listen
from shoal.stores.files.locks import SessionLock
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = SessionLock(Path(sys.argv[1]), sys.argv[2])
door = listen(lock.path.parent / "control.sock") if sys.argv[3] == "deaf" else None
print("holds", flush=True)
signal.pause()
"""


@asynccontextmanager
async def run_of(home: Path, door: str) -> AsyncIterator[tuple[Run, asyncio.subprocess.Process]]:
    """A process that has the lock of a session, answers nobody and does not end when it is asked to."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDS, str(home), SESSION, door), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            assert await process.stdout.readline() == b"holds\n"
            yield Run(session=SESSION, home=home), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.app.outside.watching.ANSWERING", 0.2)
    monkeypatch.setattr("shoal.app.outside.ending.GRACE", 0.3)


@pytest.mark.parametrize("door", ["deaf", "none"])
@pytest.mark.spec("USR-07", "USR-08")
async def test_one_that_does_not_answer_and_does_not_obey_is_killed(tmp_path: Path, door: str) -> None:
    async with run_of(tmp_path, door) as (run, process):
        assert holder(tmp_path, SESSION) == process.pid
        await end_run(run)
        assert not run.is_live
        assert await process.wait() == -9


@pytest.mark.parametrize("before", [16, 17], ids=["the last one who is let in", "one who is not let in"])
@pytest.mark.spec("USR-07", "USR-08")
async def test_one_that_many_have_asked_in_vain_is_ended_too(tmp_path: Path, before: int) -> None:
    async with run_of(tmp_path, "deaf") as (run, process):
        waiting = [connect(run.directory / "control.sock") for _ in range(before)]
        with pytest.raises(RunHangs, match="does not answer"):
            await demand(run, Status(), patience=0.2)
        await end_run(run)
        assert await process.wait() == -9
        for each in waiting:
            each.close()


async def test_the_process_of_a_lock_is_only_believed_where_it_has_it_open(tmp_path: Path) -> None:
    """A home may be shared with other machines and containers, whose numbers mean others here."""
    lock = SessionLock(tmp_path, SESSION)
    async with run_of(tmp_path / "other", "none") as (_, stranger):
        lock.path.write_text(f"{stranger.pid}\n")
        assert holder(tmp_path, SESSION) is None
        with pytest.raises(StoreError):
            await end_run(Run(session=SESSION, home=tmp_path))
        assert stranger.returncode is None
    lock.release()


@pytest.mark.spec("USR-18")
async def test_who_looks_on_at_one_that_does_not_answer_sees_what_its_journal_tells(tmp_path: Path) -> None:
    async with run_of(tmp_path, "deaf") as (run, _):
        begun = SessionStarted(agent=LEAD, session=SESSION, cwd="/", model="m", mode="default", tools=())
        run.journal.write_bytes(journal_line(begun, 1) + b"\n")
        async for seen in watch(run, SystemClock()):
            assert isinstance(seen.event, SessionStarted)
            break
