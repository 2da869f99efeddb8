"""Runs followed for pages: shared while somebody looks, a little longer, and held up by nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_access.stored_runs import StoredRuns
from shoal.core.clock import SystemClock
from shoal.core.errors import StateFileError
from shoal.core.events import NoteAdded, SessionEnded, SessionStarted
from shoal.core.ids import LEAD_ID, SessionId
from shoal.core.permissions.questions import PermissionQuestion
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.files.sessions.question_files import QuestionFiles
from shoal.surfaces.web.open_questions import WebOpenQuestionWatcher
from shoal.surfaces.web.run_follower_pool import LINGER, RunFollowerPool
from shoal.surfaces.web.run_index import WebRunIndex
from shoal.testing import FakeClock
from team_scripts import get_home
from web_client import BEARER, serve_home

SESSION = SessionId("11111111-1111-4111-8111-111111111111")


def create_run() -> tuple[RunHandle, FileJournal]:
    run = RunHandle(session=SESSION, home=get_home())
    journal = FileJournal(run.journal_path, SystemClock())
    journal.append(
        SessionStarted(agent=LEAD_ID, session=SESSION, cwd="/", model="m", mode="default", tools=())
    )
    return run, journal


def count_inotify_watches() -> int:
    places = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum("inotify" in str(each.readlink()) for each in places)


async def test_a_run_follower_lingers_after_its_last_viewer_leaves() -> None:
    run, journal = create_run()
    journal.close()
    clock, before = FakeClock(), count_inotify_watches()
    async with asyncio.TaskGroup() as tasks:
        follows = RunFollowerPool(tasks, clock)
        async with follows.acquire_follower(run) as first, follows.acquire_follower(run) as second:
            assert first is second
        await clock.advance(LINGER / 2)
        async with follows.acquire_follower(run) as again:
            assert again is first
            # Somebody looks, so the time that has passed does not count.
            await clock.advance(LINGER)
            assert follows.followed_sessions == (SESSION,)
        await clock.advance(LINGER * 2)
        assert follows.followed_sessions == ()
        async with follows.acquire_follower(run) as later:
            assert later is not first
        follows.cancel_all_followers()
    assert count_inotify_watches() == before


async def test_a_run_that_cannot_be_followed_reports_the_reason() -> None:
    run, journal = create_run()
    journal.close()
    run.journal_path.unlink()
    run.journal_path.mkdir()
    async with serve_home() as web:
        reply = await web.client.get(f"/api/runs/{SESSION}/replay")
        assert reply.status_code == 409
        async with asyncio.TaskGroup() as tasks:
            follows = RunFollowerPool(tasks, FakeClock())
            with pytest.raises(StateFileError, match="Cannot read"):
                async with follows.acquire_follower(run):
                    pass
        assert (await web.get_json("/questions")) == []


@pytest.mark.slow
async def test_a_page_that_does_not_read_delays_no_other_page() -> None:
    _, journal = create_run()
    lock = SessionLock(get_home(), SESSION)
    async with serve_home() as web:
        host, port = web.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 12)
        ask = f"GET /api/runs/{SESSION}/frames HTTP/1.1\r\nHost: {host}\r\n"
        writer.write(f"{ask}Authorization: {BEARER['Authorization']}\r\n\r\n".encode())
        assert b"200" in await reader.readline()
        async with web.open_stream(f"/runs/{SESSION}/frames") as frames:
            await frames.read_event()
            # More than the buffers between us and a page hold, in frames of their own.
            for number in range(30):
                for part in range(20):
                    journal.append(NoteAdded(agent=LEAD_ID, text=f"{number}-{part} " + "x" * 20_000))
                await frames.read_until(lambda frame: any(row["number"] for row in frame["notes"]))
            journal.append(SessionEnded(agent=LEAD_ID))
            await frames.read_until(lambda frame: frame["run"] is not None and frame["run"]["ended"])
        writer.transport.abort()
        journal.close()
        lock.release()


class BrokenClock(FakeClock):
    async def sleep(self, seconds: float) -> None:
        raise ValueError(f"{seconds} cannot be slept.")


async def test_an_unexpected_error_in_one_run_follower_affects_no_other() -> None:
    run, journal = create_run()
    journal.close()
    async with asyncio.TaskGroup() as tasks:
        follows = RunFollowerPool(tasks, BrokenClock())
        async with follows.acquire_follower(run) as shared:
            pass
        async with asyncio.timeout(10):
            await shared.broken.wait()
        assert isinstance(shared.fault, ValueError)
        assert follows.followed_sessions == ()


async def test_a_question_reaches_the_other_page_when_one_page_disconnects() -> None:
    run, journal = create_run()
    journal.close()
    lock = SessionLock(get_home(), SESSION)
    runs = WebRunIndex(StoredRuns(home=get_home()))
    questions = WebOpenQuestionWatcher(runs)
    async with questions.watch_question_lists() as leaving, questions.watch_question_lists() as staying:
        assert (await anext(leaving), await anext(staying)) == ([], [])
        async with runs._reading:  # as if a long journal were being read
            question = PermissionQuestion(
                id="q-1", agent=LEAD_ID, tool_use_id="u", tool="Bash", input={}, reason=""
            )
            (run.directory / "questions").mkdir()
            QuestionFiles(run.directory / "questions").store_question(question)
            gone = asyncio.ensure_future(anext(leaving))
            async with asyncio.timeout(10):
                while not runs._reading._waiters:
                    await asyncio.sleep(0)
            next_list = asyncio.ensure_future(anext(staying))
            gone.cancel()
            await asyncio.wait([gone])
        async with asyncio.timeout(10):
            assert [line.id for line in await next_list] == ["q-1"]
    lock.release()
