"""Whole runs on a store in PostgreSQL: killed, and resumed from another home and directory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("postgres", "asyncpg")
SESSION = "b0000000-0000-4000-8000-000000000007"
FIRST_SCRIPT = """
[[steps]]
match = "begin"
text = "I wait for a command."
tools = [{ name = "Bash", input = { command = "touch started; sleep 60", description = "Wait" } }]
"""
SECOND_SCRIPT = """
[[steps]]
match = "go on"
text = "I go on where the other process stopped."
"""
TEAM_SCRIPT = (
    """
[[steps]]
match = "Report to the lead"
text = "The line is written."

[[steps]]
match = "begin"
tools = [{ name = "TeamCreate", input = { team_name = "crew" } }]

[[steps]]
match = "crew"
tools = [{ name = "TaskCreate", input = { subject = "Write a line", description = "ready" } }]

[[steps]]
match = "Write a line"
tools = [{ name = "TaskUpdate", input = { taskId = "1", status = "completed" } }]

[[steps]]
match = ""

[[steps.tools]]
name = "Agent"
input = { name = "ann", description = "writes", prompt = "Report to the lead.", team_name = "crew" }
"""
    + 6
    * """
[[steps]]
match = ""
text = "All is done."
"""
)

TEMPLATE = """---
description: One writes.
roles:
  - name: ann
    prompt: "Write {goal}."
tasks:
  - key: write
    subject: Write the letter
    owner: ann
---
You lead.
"""
TEMPLATE_SCRIPT = """
[[steps]]
system = "You are ann,"
match = "Task #1 is yours now"
tools = [{ name = "TaskUpdate", input = { taskId = "1", status = "completed" } }]

[[steps]]
repeat = true
text = "All is done."
"""


def build_command(script: Path, text: str, *arguments: str) -> list[str]:
    return [
        *(sys.executable, "-m", "shoal", "-p", text, "--model", f"scripted:{script}"),
        *("--permission-mode", "bypassPermissions", "--output-format", "json", *arguments),
    ]


def make_environment(home: Path, database: str) -> dict[str, str]:
    return {**os.environ, "SHOAL_HOME": str(home), "SHOAL_STORE": database, "IS_SANDBOX": "1"}


def read_rows(query: str) -> list[list[object]]:
    from postgres_server import get_shared_server

    return get_shared_server().execute(query, database="shoal")


@pytest.mark.slow
async def test_a_killed_run_is_resumed_from_another_home_and_directory(tmp_path, database):
    first, second, script = tmp_path / "first", tmp_path / "second", tmp_path / "first.toml"
    script.write_text(FIRST_SCRIPT)
    for directory in (first, second):
        directory.mkdir()
    process = subprocess.Popen(
        build_command(script, "begin", "--session-id", SESSION),
        cwd=first,
        env=make_environment(tmp_path / "home-1", database),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        while not (first / "started").exists():
            assert process.poll() is None, process.stderr.read().decode()
            await asyncio.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    script.write_text(SECOND_SCRIPT)
    done = subprocess.run(
        build_command(script, "go on", "--resume", SESSION),
        cwd=second,
        env=make_environment(tmp_path / "home-2", database),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["session_id"], result["result"]) == (SESSION, "I go on where the other process stopped.")
    for number in (1, 2):
        assert not (tmp_path / f"home-{number}" / "projects").exists()
    (content,) = read_rows("SELECT string_agg(line, '' ORDER BY number) FROM shoal.transcript_lines")
    assert b"I wait for a command." in content[0]
    assert b"I go on where the other process stopped." in content[0]


@pytest.mark.parametrize("mode", ["in-process", "process"])
def test_a_team_from_a_template_works_on_the_database(tmp_path, database, mode):
    """Its teammates open the session before the lead has written anything, and may end before that."""
    templates = tmp_path / ".claude" / "teams"
    templates.mkdir(parents=True)
    (templates / "crew.md").write_text(TEMPLATE)
    script = tmp_path / "team.toml"
    script.write_text(TEMPLATE_SCRIPT)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "shoal", "team", "start", "crew", "the letter", "-p"),
            *("--model", f"scripted:{script}", "--permission-mode", "bypassPermissions"),
            *("--settings", json.dumps({"shoal": {"teammate_mode": mode}})),
        ],
        cwd=tmp_path,
        env=make_environment(tmp_path / "home", database),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    owners = {row[0] for row in read_rows("SELECT DISTINCT agent FROM shoal.transcript_lines")}
    assert owners >= {"lead", "ann@crew"}


@pytest.mark.parametrize("mode", ["in-process", "process"])
def test_a_team_works_on_the_database_with_an_empty_home(tmp_path, database, mode):
    script = tmp_path / "team.toml"
    script.write_text(TEAM_SCRIPT)
    settings = json.dumps({"shoal": {"teammate_mode": mode}})
    done = subprocess.run(
        build_command(script, "begin", "--settings", settings),
        cwd=tmp_path,
        env=make_environment(tmp_path / "home", database),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # Each process has a lease of its own.
    ((leases,),) = read_rows("SELECT last_value FROM shoal.holders_epoch_seq")
    assert leases == (2 if mode == "process" else 1)
    owners = {row[0] for row in read_rows("SELECT DISTINCT agent FROM shoal.transcript_lines")}
    assert owners >= {"lead", "ann@crew"}
    assert read_rows("SELECT count(*) FROM shoal.mail WHERE owner = 'ann'")[0][0] >= 1
    assert read_rows(
        "SELECT subject FROM (SELECT convert_from(document, 'UTF8')::jsonb->>'subject' "
        "AS subject FROM shoal.tasks) AS t",
    ) == [["Write a line"]]
    assert not any((tmp_path / "home" / place).exists() for place in ("projects", "tasks", "teams"))


OUTAGE_SCRIPT = """
[[steps]]
match = "begin"
text = "I start an agent."

[[steps.tools]]
name = "Agent"
input = { description = "digs", prompt = "Dig a hole.", subagent_type = "general-purpose" }

[[steps.tools]]
name = "Agent"
input = { description = "saws", prompt = "Saw a plank.", subagent_type = "general-purpose" }

[[steps]]
match = "Dig a hole."
tools = [{ name = "Bash", input = { command = "touch dug; until [ -e go ]; do sleep 0.1; done; echo dug" } }]

[[steps]]
match = "Saw a plank."
tools = [{ name = "Bash", input = { command = "touch sawn; until [ -e go ]; do sleep .1; done; echo sawn" } }]

[[steps]]
match = "dug"
text = "The hole is there."

[[steps]]
match = "sawn"
text = "The plank is there."

[[steps]]
match = ""
text = "Both are there."
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.exhaustive)])
async def test_every_agent_goes_on_after_an_outage_and_nothing_is_lost(tmp_path, own_server, seconds):
    database, script = own_server.create_empty_database(), tmp_path / "outage.toml"
    script.write_text(OUTAGE_SCRIPT)
    process = await asyncio.create_subprocess_exec(
        *build_command(script, "begin", "--session-id", SESSION),
        cwd=tmp_path,
        env=make_environment(tmp_path / "home", database),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(90):
            while not ((tmp_path / "dug").exists() and (tmp_path / "sawn").exists()):
                assert process.returncode is None
                await asyncio.sleep(0.05)
        await asyncio.to_thread(own_server.stop)
        # Both agents go on, and each needs the server for its next entry.
        (tmp_path / "go").touch()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
        await asyncio.to_thread(own_server.start)
        async with asyncio.timeout(120):
            out, problems = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, problems.decode()
    assert json.loads(out)["result"] == "Both are there."
    rows = own_server.execute(
        "SELECT string_agg(line, '' ORDER BY number) FROM shoal.transcript_lines GROUP BY agent",
        database="shoal",
    )
    texts = [bytes(row[0]).decode() for row in rows]
    for text in ("The hole is there.", "The plank is there.", "Both are there."):
        holders = [each for each in texts if f'"text":"{text}"' in each]
        assert [each.count(f'"text":"{text}"') for each in holders] == [1], text
    from shoal.stores.postgres.store_admin import find_store_problems

    assert await asyncio.to_thread(find_store_problems, database) == []
