"""Recovery of unfinished work of a killed process, case by case."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from crashing_scripts import SCRIPTS, SETTINGS
from team_helpers import CRASHING_LEAD, run_crashing_lead

from agent_scripts import call_tool, read_events, run_all_turns
from elapsed_times import scale_to_load
from process_search import find_processes_in
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentEnded, AgentStarted
from team_scripts import (
    get_home,
    get_last_text,
    open_session,
    read_inbox,
    read_team_config,
    script_team,
    spawn_member,
)

SESSION = "5e551011-0000-4000-8000-000000000002"


async def resume_script(cwd: Path, part: str) -> tuple[Any, str]:
    """Resume the session; return it and all messages to the lead."""
    async with open_session(cwd, script_team(**SCRIPTS[part]), resume=SESSION, settings=SETTINGS) as session:
        await run_all_turns(session, "Go on.")
        heard = [each.text for each in session.agent.conversation.messages if each.role == "user"]
    return session, "\n".join(heard)


def rewrite_json(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


@pytest.mark.spec("USR-03", "LIF-04", "USR-12")
async def test_the_lead_is_notified_once_of_a_member_that_left_during_a_crash(tmp_path: Path) -> None:
    await run_crashing_lead(tmp_path, SESSION, "idle")
    # As it is when the process dies between the roster and the word about it.
    members = read_team_config("crew")["members"]
    left = [each for each in members if each["name"] != "bob"]
    rewrite_json(get_home() / "teams/crew/config.json", lambda team: {**team, "members": left})
    session, heard = await resume_script(tmp_path, "idle")
    assert heard.count("teammate_terminated: task bob@crew") == 1
    assert "it had already ended when its lead's process was killed" in heard
    (told,) = [each for each in read_events(session) if isinstance(each, AgentEnded) and each.notice]
    assert told.agent == "bob@crew"
    _, heard = await resume_script(tmp_path, "idle")
    assert heard.count("teammate_terminated: task bob@crew") == 1


@pytest.mark.spec("USR-03", "LIF-02")
async def test_a_lost_idle_notification_is_sent_after_a_resume(tmp_path: Path) -> None:
    await run_crashing_lead(tmp_path, SESSION, "idle")
    path = get_home() / "teams/crew/inboxes/team-lead.json"
    notice = next(mail["msg_id"] for mail in read_inbox("crew", "team-lead") if mail["from"] == "bob")

    def without(mails: Any) -> Any:
        return [mail for mail in mails if mail["msg_id"] != notice]

    rewrite_json(path, without)
    await resume_script(tmp_path, "idle")
    assert [mail["msg_id"] for mail in read_inbox("crew", "team-lead")].count(notice) == 1


@pytest.mark.spec("USR-12", "USR-26")
async def test_an_approved_plan_stays_approved_after_a_crash(tmp_path: Path) -> None:
    await run_crashing_lead(tmp_path, SESSION, "planned")
    _, heard = await resume_script(tmp_path, "planned")
    assert (tmp_path / "planned.txt").read_text() == "as planned"
    assert "plan mode allows no changes" not in heard


@pytest.mark.needs("git")
@pytest.mark.spec("USR-12", "USR-06", "TRN-02")
async def test_a_resumed_member_continues_in_its_worktree(tmp_path: Path) -> None:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    (tmp_path / "code.txt").write_text("one\n")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    await run_crashing_lead(tmp_path, SESSION, "apart")
    await kill_after_resume(tmp_path)
    session, heard = await resume_script(tmp_path, "apart")
    assert "went on" in heard
    places = {each.cwd for each in read_events(session) if isinstance(each, AgentStarted)}
    assert len(places) == 1, "the same one each time"


async def kill_after_resume(cwd: Path) -> None:
    """Kill the session right after its resume."""
    dying = f"""
import asyncio, os, signal, sys
sys.path[:0] = [{str(CRASHING_LEAD.parent)!r}, {str(CRASHING_LEAD.parents[1] / "plugins")!r}]
from crashing_scripts import SCRIPTS, SETTINGS
from team_scripts import open_session, script_team
async def main():
    model = script_team(**SCRIPTS["apart"])
    async with open_session({str(cwd)!r}, model, resume={SESSION!r}, settings=SETTINGS):
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", dying)
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGKILL


@pytest.mark.spec("USR-12")
async def test_a_new_member_with_a_reused_name_does_not_inherit_the_old_history(tmp_path: Path) -> None:
    await run_crashing_lead(tmp_path, SESSION, "of an old name")
    _, heard = await resume_script(tmp_path, "of an old name")
    last = heard.rpartition("last text:)")[2]
    assert "heard 1: " in last
    assert "Anew." in last


class Crashing(Exception):
    """An unexpected error."""


@pytest.mark.spec("LIF-04", "LIF-06", "USR-25")
async def test_the_crash_of_a_member_is_reported_within_two_seconds_and_its_task_is_released(
    tmp_path: Path,
) -> None:
    def crash(_: ModelRequest) -> str:
        raise Crashing("no more")

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            call_tool("TaskCreate", subject="one", description="d"),
            spawn_member("ann"),
            "wait",
            get_last_text,
        ],
        ann=[call_tool("TaskUpdate", taskId="1", status="in_progress"), crash],
    )
    async with open_session(tmp_path, model) as session:
        async with asyncio.timeout(10):
            text = await run_all_turns(session)
        names = [each["name"] for each in read_team_config("crew")["members"]]
    assert (
        "teammate_terminated: task ann@crew, type general-purpose, status failed: Crashing: no more" in text
    )
    assert names == ["team-lead"]
    task = json.loads((get_home() / "tasks/crew/1.json").read_text())
    assert (task["status"], task.get("owner")) == ("pending", None)
    journal = (get_home() / "shoal/runs" / session.id / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in journal]
    sent = max(each["at"] for each in events if each["type"] == "tool_finished" and "ann" in each["agent"])
    ended = next(each["at"] for each in events if each["type"] == "agent_ended")
    assert _seconds(ended) - _seconds(sent) <= 2


def _seconds(at: str) -> float:
    minutes, seconds = at[14:-1].split(":")
    return int(minutes) * 60 + float(seconds)


@pytest.mark.spec("USR-23", "LIF-05")
async def test_five_seconds_after_the_lead_is_killed_no_member_process_runs(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, CRASHING_LEAD, tmp_path, SESSION, "in a shell", "0"
    )
    try:
        async with asyncio.timeout(30):
            while not (tmp_path / "begun").exists():
                await asyncio.sleep(0.01)
        assert find_processes_in(tmp_path)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    async with asyncio.timeout(scale_to_load(5)):
        while find_processes_in(tmp_path):
            await asyncio.sleep(0.01)
