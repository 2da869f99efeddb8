"""A run is ended from another process, even if its own process does not respond."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.app.run_access.run_handle import RunHandle, send_control_command, watch_run_events
from shoal.app.run_access.run_termination import stop_or_kill_run
from shoal.core.clock import SystemClock
from shoal.core.errors import RunUnresponsive, StateFileError
from shoal.core.events import SessionStarted
from shoal.core.ids import LEAD_ID, SessionId
from shoal.runs.unix_sockets import connect_unix_socket
from shoal.stores.files.locks.pid_locks import SessionLock, find_session_pid
from shoal.wire.control_codec import GetRunStatusControlCommand
from shoal.wire.journal_codec import encode_journal_line

SESSION = SessionId("11111111-2222-4333-8444-555555555555")
HOLDER_PROGRAM = """
import signal, socket, sys
from pathlib import Path
from shoal.runs.unix_sockets import open_unix_listener
from shoal.stores.files.locks.pid_locks import SessionLock
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = SessionLock(Path(sys.argv[1]), sys.argv[2])
listener = open_unix_listener(lock.path.parent / "control.sock") if sys.argv[3] == "deaf" else None
print("holds", flush=True)
signal.pause()
"""


@asynccontextmanager
async def start_unresponsive_run(
    home: Path, control_socket: str
) -> AsyncIterator[tuple[RunHandle, asyncio.subprocess.Process]]:
    """Start a process that holds the session lock, answers no request and ignores SIGTERM."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDER_PROGRAM, str(home), SESSION, control_socket),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            assert await process.stdout.readline() == b"holds\n"
            yield RunHandle(session=SESSION, home=home), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture(autouse=True)
def _short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.app.run_access.run_handle.ANSWER_TIMEOUT", 0.2)
    monkeypatch.setattr("shoal.app.run_access.run_termination.GRACE_SECONDS", 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("control_socket", ["deaf", "none"])
@pytest.mark.spec("USR-07", "USR-08")
async def test_a_run_that_ignores_requests_and_signals_is_killed(tmp_path: Path, control_socket: str) -> None:
    async with start_unresponsive_run(tmp_path, control_socket) as (run, process):
        assert find_session_pid(tmp_path, SESSION) == process.pid
        await stop_or_kill_run(run)
        assert not run.is_live
        assert await process.wait() == -9


@pytest.mark.slow
@pytest.mark.parametrize("before", [16, 17], ids=["the last one who is let in", "one who is not let in"])
@pytest.mark.spec("USR-07", "USR-08")
async def test_a_run_with_a_full_connection_backlog_is_ended(tmp_path: Path, before: int) -> None:
    async with start_unresponsive_run(tmp_path, "deaf") as (run, process):
        waiting = [connect_unix_socket(run.directory / "control.sock") for _ in range(before)]
        with pytest.raises(RunUnresponsive, match="does not respond"):
            await send_control_command(run, GetRunStatusControlCommand(), patience=0.2)
        await stop_or_kill_run(run)
        assert await process.wait() == -9
        for each in waiting:
            each.close()


async def test_the_process_named_in_a_lock_is_trusted_only_if_it_holds_the_lock_open(tmp_path: Path) -> None:
    """A home may be shared with other machines and containers, where process ids differ."""
    lock = SessionLock(tmp_path, SESSION)
    async with start_unresponsive_run(tmp_path / "other", "none") as (_, stranger):
        lock.path.write_text(f"{stranger.pid}\n")
        assert find_session_pid(tmp_path, SESSION) is None
        with pytest.raises(StateFileError):
            await stop_or_kill_run(RunHandle(session=SESSION, home=tmp_path))
        assert stranger.returncode is None
    lock.release()


@pytest.mark.spec("USR-18")
async def test_an_observer_of_an_unresponsive_run_gets_its_journal(tmp_path: Path) -> None:
    async with start_unresponsive_run(tmp_path, "deaf") as (run, _):
        begun = SessionStarted(agent=LEAD_ID, session=SESSION, cwd="/", model="m", mode="default", tools=())
        run.journal_path.write_bytes(encode_journal_line(begun, 1) + b"\n")
        async for journal_entry in watch_run_events(run, SystemClock()):
            assert isinstance(journal_entry.event, SessionStarted)
            break
