"""Expired sessions are removed when a session starts, with an entry in the debug log."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.app.session.session import Session
from shoal.core.conversation.messages import ToolUseBlock
from shoal.models.scripted_model import ScriptedModel
from shoal.stores.files.access.file_watch import DirectoryWatch
from shoal.stores.files.sessions.session_files import list_sessions
from team_scripts import get_home

DAY = 86_400


async def run_old_session(project: Path, *, days_ago: float, **how: Any) -> str:
    """Run a session with a command and a task, and date its files back by this many days."""
    replies = [
        [ToolUseBlock(id="1", name="Bash", input={"command": "echo hello"})],
        [ToolUseBlock(id="2", name="TaskCreate", input={"subject": "s", "description": "d"})],
        "done",
    ]
    options = {"mode": "bypassPermissions", "settings": "{}", "debug": True, **how}
    async with shoal.open(cwd=project, model=ScriptedModel(replies), **options) as session:
        async for _ in session.run("go"):
            pass
    (get_home() / "shoal" / "swept").unlink(missing_ok=True)
    then = time.time() - days_ago * DAY
    for path in get_home().rglob("*"):
        if session.id in str(path):
            os.utime(path, (then, then), follow_symlinks=False)
    return session.id


async def wait_for_cleanup_log(session: Session) -> str:
    """Wait for the cleanup entry in the debug log and return it."""
    log = get_home() / "debug" / f"{session.id}.txt"
    changed = asyncio.Event()
    watch = DirectoryWatch(log.parent, changed.set)
    try:
        async with asyncio.timeout(20):
            while "cleanupPeriodDays" not in log.read_text():
                await changed.wait()
                changed.clear()
    finally:
        watch.close()
    (line,) = (line for line in log.read_text().splitlines() if "cleanupPeriodDays" in line)
    return json.loads(line.partition(" ")[2])["text"]


def find_files_of(session: str) -> list[Path]:
    return [path for path in get_home().rglob("*") if session in str(path)]


@pytest.mark.spec("HOM-02")
async def test_a_session_start_removes_sessions_older_than_the_retention_period(tmp_path: Path) -> None:
    young = await run_old_session(tmp_path, days_ago=29)
    old = await run_old_session(tmp_path, days_ago=31)
    assert find_files_of(old)
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"]), debug=True) as session:
        logged = await wait_for_cleanup_log(session)
        assert logged.startswith(
            "Removed data older than 30 days (cleanupPeriodDays): 1 session, 1 debug log and"
        )
        assert old in logged
        async for _ in session.run("go on"):
            pass
    assert find_files_of(old) == []
    assert {glance.session for glance in list_sessions(get_home())} == {young, session.id}
    journal = (get_home() / "shoal" / "runs" / session.id / "journal.jsonl").read_text()
    assert "cleanupPeriodDays" not in journal


@pytest.mark.slow
async def test_the_setting_limits_retention_and_a_live_session_survives_0_days(tmp_path: Path) -> None:
    old = await run_old_session(tmp_path, days_ago=2)
    settings = json.dumps({"cleanupPeriodDays": 3})
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["1"]), debug=True, settings=settings) as first:
        assert "0 sessions" in await wait_for_cleanup_log(first)
        async for _ in first.run("go"):
            pass
        long_ago = time.time() - 900 * DAY
        for path in find_files_of(first.id):
            os.utime(path, (long_ago, long_ago), follow_symlinks=False)
        settings = json.dumps({"cleanupPeriodDays": 0})
        model = ScriptedModel(["2"])
        async with shoal.open(cwd=tmp_path, model=model, debug=True, settings=settings) as second:
            logged = await wait_for_cleanup_log(second)
        assert "1 session," in logged
        assert old in logged
        assert {path.name for path in find_files_of(first.id)} >= {f"{first.id}.jsonl", f"{first.id}.txt"}
    assert find_files_of(old) == []


async def test_a_session_without_persistence_removes_nothing(tmp_path: Path) -> None:
    old = await run_old_session(tmp_path, days_ago=400)
    before = find_files_of(old)
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"]), persist=False) as session:
        async for _ in session.run("go"):
            pass
    assert find_files_of(old) == before


async def test_a_failing_cleanup_ends_no_session(tmp_path: Path) -> None:
    (get_home() / "teams").write_text("a file where a directory should be")
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"]), debug=True) as session:
        assert "teams" in await wait_for_cleanup_log(session)
        async for _ in session.run("go"):
            pass


@pytest.mark.slow
async def test_cleanup_runs_once_a_day_and_always_at_0_days(tmp_path: Path) -> None:
    def open_session_with_retention(days: int) -> Session:
        settings = json.dumps({"cleanupPeriodDays": days})
        return shoal.open(cwd=tmp_path, model=ScriptedModel([]), debug=True, settings=settings)

    first = await run_old_session(tmp_path, days_ago=31)
    async with open_session_with_retention(30) as session:
        assert first in await wait_for_cleanup_log(session)
    mark = get_home() / "shoal" / "swept"
    second = await run_old_session(tmp_path, days_ago=31)
    mark.touch()
    async with open_session_with_retention(30):
        pass
    assert find_files_of(second)
    os.utime(mark, (time.time() - DAY - 60,) * 2)
    async with open_session_with_retention(30) as session:
        assert second in await wait_for_cleanup_log(session)
    third = await run_old_session(tmp_path, days_ago=1)
    mark.touch()
    async with open_session_with_retention(0) as session:
        assert third in await wait_for_cleanup_log(session)
