"""What is older than it is kept is removed while a session comes up, and the debug log tells of it."""

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
from shoal.core.messages import ToolUse
from shoal.models.scripted import ScriptedModel
from shoal.stores.files.sessions import list_sessions
from shoal.stores.files.watch import DirectoryWatch
from troupe import home

DAY = 86_400


async def ended_session(project: Path, *, days_ago: float, **how: Any) -> str:
    """A whole one, with a command and a task, after whose end so many days went by."""
    mind = [
        [ToolUse(id="1", name="Bash", input={"command": "echo hello"})],
        [ToolUse(id="2", name="TaskCreate", input={"subject": "s", "description": "d"})],
        "done",
    ]
    options = {"mode": "bypassPermissions", "settings": "{}", "debug": True, **how}
    async with shoal.open(cwd=project, model=ScriptedModel(mind), **options) as session:
        async for _ in session.run("go"):
            pass
    (home() / "shoal" / "swept").unlink(missing_ok=True)
    then = time.time() - days_ago * DAY
    for path in home().rglob("*"):
        if session.id in str(path):
            os.utime(path, (then, then), follow_symlinks=False)
    return session.id


async def tidied(session: Session) -> str:
    """What the debug log tells of the sweep, once it does."""
    log = home() / "debug" / f"{session.id}.txt"
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


def left_of(session: str) -> list[Path]:
    return [path for path in home().rglob("*") if session in str(path)]


@pytest.mark.spec("HOM-02")
async def test_a_start_removes_sessions_that_ended_longer_ago_than_they_are_kept(tmp_path: Path) -> None:
    young = await ended_session(tmp_path, days_ago=29)
    old = await ended_session(tmp_path, days_ago=31)
    assert left_of(old)
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"]), debug=True) as session:
        told = await tidied(session)
        assert told.startswith("Kept for 30 days (cleanupPeriodDays). Removed: sessions 1, debug logs 1,")
        assert old in told
        async for _ in session.run("go on"):
            pass
    assert left_of(old) == []
    assert {glance.session for glance in list_sessions(home())} == {young, session.id}
    journal = (home() / "shoal" / "runs" / session.id / "journal.jsonl").read_text()
    assert "cleanupPeriodDays" not in journal


async def test_the_setting_says_how_long_and_a_live_session_stays_at_0_days(tmp_path: Path) -> None:
    old = await ended_session(tmp_path, days_ago=2)
    settings = json.dumps({"cleanupPeriodDays": 3})
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["1"]), debug=True, settings=settings) as first:
        assert "sessions 0" in await tidied(first)
        async for _ in first.run("go"):
            pass
        long_ago = time.time() - 900 * DAY
        for path in left_of(first.id):
            os.utime(path, (long_ago, long_ago), follow_symlinks=False)
        settings = json.dumps({"cleanupPeriodDays": 0})
        model = ScriptedModel(["2"])
        async with shoal.open(cwd=tmp_path, model=model, debug=True, settings=settings) as second:
            told = await tidied(second)
        assert "sessions 1" in told
        assert old in told
        assert {path.name for path in left_of(first.id)} >= {f"{first.id}.jsonl", f"{first.id}.txt"}
    assert left_of(old) == []


async def test_a_session_that_keeps_nothing_removes_nothing(tmp_path: Path) -> None:
    old = await ended_session(tmp_path, days_ago=400)
    before = left_of(old)
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"]), persist=False) as session:
        async for _ in session.run("go"):
            pass
    assert left_of(old) == before


async def test_a_home_that_cannot_be_swept_ends_no_session(tmp_path: Path) -> None:
    (home() / "teams").write_text("a file where a directory should be")
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"]), debug=True) as session:
        assert "teams" in await tidied(session)
        async for _ in session.run("go"):
            pass


async def test_it_is_looked_once_a_day_and_at_0_days_always(tmp_path: Path) -> None:
    def opened(days: int) -> Session:
        settings = json.dumps({"cleanupPeriodDays": days})
        return shoal.open(cwd=tmp_path, model=ScriptedModel([]), debug=True, settings=settings)

    first = await ended_session(tmp_path, days_ago=31)
    async with opened(30) as session:
        assert first in await tidied(session)
    mark = home() / "shoal" / "swept"
    second = await ended_session(tmp_path, days_ago=31)
    mark.touch()
    async with opened(30):
        pass
    assert left_of(second)
    os.utime(mark, (time.time() - DAY - 60,) * 2)
    async with opened(30) as session:
        assert second in await tidied(session)
    third = await ended_session(tmp_path, days_ago=1)
    mark.touch()
    async with opened(0) as session:
        assert third in await tidied(session)
