"""Commands about runs, questions, sessions, teams and tasks use a store in PostgreSQL, from any machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.needs("postgres", "asyncpg")
SESSION = "b0000000-0000-4000-8000-000000000009"
SCRIPT = """
[[steps]]
match = "begin"
text = "I wait for a command."
tools = [{ name = "Bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.1; done" } }]

[[steps]]
match = ""
text = "The command has ended."
"""


def make_environment(home: Path, database: str) -> dict[str, str]:
    return {**os.environ, "SHOAL_HOME": str(home), "SHOAL_STORE": database, "IS_SANDBOX": "1"}


def run_shoal(cwd: Path, env: dict[str, str], *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "shoal", *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def start_run(
    cwd: Path, env: dict[str, str], *arguments: str, script_text: str = SCRIPT
) -> asyncio.subprocess.Process:
    script = cwd / "script.toml"
    script.write_text(script_text)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "-p", "begin", "--model", f"scripted:{script}"),
        *(arguments or ("--permission-mode", "bypassPermissions")),
        *("--session-id", SESSION),
        cwd=cwd,
        env=env,
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(60):
        while not (cwd / "started").exists():
            assert process.returncode is None
            await asyncio.sleep(0.05)
    return process


async def check_web_view(cwd: Path, env: dict[str, str]) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "web", "--json"),
        cwd=cwd,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        async with asyncio.timeout(60):
            address = json.loads(await server.stdout.readline())
        headers = {"Authorization": f"Bearer {address['token']}"}
        async with httpx.AsyncClient(base_url=address["url"].partition("/?")[0], headers=headers) as client:
            (run,) = (await client.get("/api/runs")).json()
            assert (run["session"], run["live"]) == (SESSION, True)
    finally:
        server.terminate()
        async with asyncio.timeout(20):
            _, problems = await server.communicate()
    assert b"shows the runs in the database" in problems


@pytest.mark.slow
async def test_a_run_is_shown_on_another_machine_while_it_lives_and_afterwards(
    tmp_path: Path, database: str
) -> None:
    here, elsewhere = (make_environment(tmp_path / name, database) for name in ("home-1", "home-2"))
    process = await start_run(tmp_path, here)
    try:
        for env in (here, elsewhere):
            rows = await asyncio.to_thread(run_shoal, tmp_path, env, "ps", "--json")
            assert [(row["session"], row["agent"], row["state"]) for row in rows] == [
                (SESSION, "lead", "working")
            ]
        await check_web_view(tmp_path, elsewhere)
        watch = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shoal", "watch", SESSION[:8], "--json"),
            cwd=tmp_path,
            env=elsewhere,
            stdout=asyncio.subprocess.PIPE,
        )
        assert watch.stdout is not None
        async with asyncio.timeout(60):
            assert b'"session_started"' in await watch.stdout.readline()
            (tmp_path / "go").touch()
            rest = await watch.stdout.read()
            assert await watch.wait() == 0
        assert b'"session_ended"' in rest
        assert b"The command has ended." in rest
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    cost = await asyncio.to_thread(run_shoal, tmp_path, elsewhere, "cost", "--json")
    assert (cost["session"], cost["total"]["requests"]) == (SESSION, 2)
    assert await asyncio.to_thread(run_shoal, tmp_path, elsewhere, "ps", "--json") == []


async def test_a_killed_run_is_not_shown_as_live(tmp_path: Path, database: str) -> None:
    env = make_environment(tmp_path / "home", database)
    process = await start_run(tmp_path, env)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    async with asyncio.timeout(60):
        while await asyncio.to_thread(run_shoal, tmp_path, env, "ps", "--json"):
            pass
    rows = await asyncio.to_thread(run_shoal, tmp_path, env, "ps", SESSION, "--json")
    assert [row["state"] for row in rows] == ["idle"]


@pytest.mark.slow
async def test_a_question_is_answered_on_another_machine(tmp_path: Path, database: str) -> None:
    (tmp_path / "home-1").mkdir()
    settings = {"shoal": {"question_patience": 60}}
    (tmp_path / "home-1" / "settings.json").write_text(json.dumps(settings))
    here, elsewhere = (make_environment(tmp_path / name, database) for name in ("home-1", "home-2"))
    script = SCRIPT.replace("touch started; while [ ! -e go ]; do sleep 0.1; done", "touch allowed")
    (tmp_path / "started").touch()
    process = await start_run(tmp_path, here, "--permission-mode", "default", script_text=script)
    try:
        async with asyncio.timeout(60):
            while not (rows := await asyncio.to_thread(run_shoal, tmp_path, elsewhere, "ask", "--json")):
                assert process.returncode is None
        (row,) = rows
        assert (row["session"], row["live"], row["question"]["tool"]) == (SESSION, True, "Bash")
        assert 0 <= row["seconds"] < 60
        command = [sys.executable, "-m", "shoal", "ask", "answer", row["id"], "yes"]
        answer = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=elsewhere)
        async with asyncio.timeout(60):
            assert await answer.wait() == 0
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (tmp_path / "allowed").exists()
    assert await asyncio.to_thread(run_shoal, tmp_path, elsewhere, "ask", "--json") == []


@pytest.mark.slow
async def test_sessions_teams_and_tasks_of_the_database_are_listed(tmp_path: Path, database: str) -> None:
    here, elsewhere = (make_environment(tmp_path / name, database) for name in ("home-1", "home-2"))
    create_team = '[{ name = "TeamCreate", input = { team_name = "crew" } }]'
    create_task = '[{ name = "TaskCreate", input = { subject = "saw", description = "the plank" } }]'
    script = f"""
[[steps]]
match = "begin"
text = "I create a team."
tools = {create_team}

[[steps]]
match = "crew"
text = "I create a task."
tools = {create_task}

[[steps]]
match = ""
text = "Done."
"""
    (tmp_path / "started").touch()
    process = await start_run(tmp_path, here, script_text=script)
    async with asyncio.timeout(60):
        assert await process.wait() == 0
    (session,) = await asyncio.to_thread(run_shoal, tmp_path, elsewhere, "sessions", "--json")
    assert (session["session"], session["prompt"], session["transcript"]) == (SESSION, "begin", None)
    (team,) = await asyncio.to_thread(run_shoal, tmp_path, elsewhere, "team", "ls", "--json")
    assert (team["name"], team["lead"]) == ("crew", "ended")
    tasks = await asyncio.to_thread(run_shoal, tmp_path, elsewhere, "task", "ls", "--team", "crew", "--json")
    assert [task["subject"] for task in tasks] == ["saw"]
    command = [sys.executable, "-m", "shoal", "task", "add", "sand it", "--team", "crew"]
    added = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=elsewhere)
    assert await added.wait() == 0
    tasks = await asyncio.to_thread(run_shoal, tmp_path, here, "task", "ls", "--team", "crew", "--json")
    assert [task["subject"] for task in tasks] == ["saw", "sand it"]
    removed = await asyncio.to_thread(run_shoal, tmp_path, elsewhere, "team", "rm", "crew", "--yes", "--json")
    assert removed == {"removed": "crew"}
    assert await asyncio.to_thread(run_shoal, tmp_path, here, "team", "ls", "--json") == []


@pytest.mark.slow
async def test_a_team_of_a_live_run_in_the_database_is_not_removed(tmp_path: Path, database: str) -> None:
    here, elsewhere = (make_environment(tmp_path / name, database) for name in ("home-1", "home-2"))
    create_team = (
        '[[steps]]\nmatch = "begin"\ntools = [{ name = "TeamCreate", input = { team_name = "crew" } }]\n'
    )
    process = await start_run(
        tmp_path, here, script_text=create_team + SCRIPT.replace('match = "begin"', 'match = "crew"')
    )
    try:
        (team,) = await asyncio.to_thread(run_shoal, tmp_path, elsewhere, "team", "ls", "--json")
        assert (team["name"], team["lead"]) == ("crew", "alive")
        command = [sys.executable, "-m", "shoal", "team", "rm", "crew", "--yes"]
        refused = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, env=elsewhere, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(60):
            _, problem = await refused.communicate()
        assert refused.returncode == 1
        assert b"its lead is running" in problem
        (tmp_path / "go").touch()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
