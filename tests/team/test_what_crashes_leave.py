"""What a process leaves half done when it is killed, the next one puts right; each case by itself."""

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
from dying_parts import PARTS, SETTINGS

from cast import all_turns, recorded, use
from processes_in import processes_in
from shoal.core.events import AgentEnded, AgentStarted
from shoal.core.requests import Request
from troupe import config, home, inbox, last_words, member, opened, troupe

SESSION = "5e551011-0000-4000-8000-000000000002"
PROGRAM = Path(__file__).with_name("dying_lead.py")


async def killed(cwd: Path, part: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, PROGRAM, cwd, SESSION, part, "0")
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGKILL


async def resumed(cwd: Path, part: str) -> tuple[Any, str]:
    """The session after its end, and all that the lead has heard."""
    async with opened(cwd, troupe(**PARTS[part]), resume=SESSION, settings=SETTINGS) as session:
        await all_turns(session, "Go on.")
        heard = [each.text for each in session.agent.conversation.messages if each.role == "user"]
    return session, "\n".join(heard)


def rewritten(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


@pytest.mark.spec("USR-03", "LIF-04", "USR-12")
async def test_the_lead_is_told_once_of_one_that_had_left_when_its_process_died(tmp_path: Path) -> None:
    await killed(tmp_path, "idle")
    # As it is when the process dies between the roster and the word about it.
    members = config("crew")["members"]
    left = [each for each in members if each["name"] != "bob"]
    rewritten(home() / "teams/crew/config.json", lambda team: {**team, "members": left})
    session, heard = await resumed(tmp_path, "idle")
    assert heard.count("teammate_terminated: task bob@crew") == 1
    assert "it had ended when the process of its lead was killed" in heard
    (told,) = [each for each in recorded(session) if isinstance(each, AgentEnded) and each.notice]
    assert told.agent == "bob@crew"
    _, heard = await resumed(tmp_path, "idle")
    assert heard.count("teammate_terminated: task bob@crew") == 1


@pytest.mark.spec("USR-03", "LIF-02")
async def test_who_died_after_its_last_words_still_tells_the_lead_that_it_is_idle(tmp_path: Path) -> None:
    await killed(tmp_path, "idle")
    path = home() / "teams/crew/inboxes/team-lead.json"
    notice = next(mail["msg_id"] for mail in inbox("crew", "team-lead") if mail["from"] == "bob")

    def without(mails: Any) -> Any:
        return [mail for mail in mails if mail["msg_id"] != notice]

    rewritten(path, without)
    await resumed(tmp_path, "idle")
    assert [mail["msg_id"] for mail in inbox("crew", "team-lead")].count(notice) == 1


@pytest.mark.spec("USR-12", "USR-26")
async def test_an_approved_plan_stays_approved(tmp_path: Path) -> None:
    await killed(tmp_path, "planned")
    _, heard = await resumed(tmp_path, "planned")
    assert (tmp_path / "planned.txt").read_text() == "as planned"
    assert "in plan mode nothing is changed" not in heard


@pytest.mark.needs("git")
@pytest.mark.spec("USR-12", "USR-06", "TRN-02")
async def test_a_member_goes_on_in_the_worktree_that_it_had(tmp_path: Path) -> None:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    (tmp_path / "code.txt").write_text("one\n")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    await killed(tmp_path, "apart")
    await killed_again(tmp_path)
    session, heard = await resumed(tmp_path, "apart")
    assert "went on" in heard
    places = {each.cwd for each in recorded(session) if isinstance(each, AgentStarted)}
    assert len(places) == 1, "the same one each time"


async def killed_again(cwd: Path) -> None:
    """Right after it was taken up again."""
    dying = f"""
import asyncio, os, signal, sys
sys.path[:0] = [{str(PROGRAM.parent)!r}, {str(PROGRAM.parents[1] / "plugins")!r}]
from dying_parts import PARTS, SETTINGS
from troupe import opened, troupe
async def main():
    async with opened({str(cwd)!r}, troupe(**PARTS["apart"]), resume={SESSION!r}, settings=SETTINGS):
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", dying)
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGKILL


@pytest.mark.spec("USR-12")
async def test_one_of_an_old_name_does_not_take_the_other_one_s_past_for_its_own(tmp_path: Path) -> None:
    await killed(tmp_path, "of an old name")
    _, heard = await resumed(tmp_path, "of an old name")
    last = heard.rpartition("last words)")[2]
    assert "heard 1: " in last
    assert "Anew." in last


class Crashing(Exception):
    """No error of ours."""


@pytest.mark.spec("LIF-04", "LIF-06", "USR-25")
async def test_a_member_that_crashes_is_told_of_within_two_seconds_and_its_task_is_free(
    tmp_path: Path,
) -> None:
    def crash(_: Request) -> str:
        raise Crashing("no more")

    model = troupe(
        lead=[
            use("TeamCreate", team_name="crew"),
            use("TaskCreate", subject="one", description="d"),
            member("ann"),
            "wait",
            last_words,
        ],
        ann=[use("TaskUpdate", taskId="1", status="in_progress"), crash],
    )
    async with opened(tmp_path, model) as session:
        async with asyncio.timeout(10):
            text = await all_turns(session)
        names = [each["name"] for each in config("crew")["members"]]
    assert (
        "teammate_terminated: task ann@crew, type general-purpose, status failed: Crashing: no more" in text
    )
    assert names == ["team-lead"]
    task = json.loads((home() / "tasks/crew/1.json").read_text())
    assert (task["status"], task.get("owner")) == ("pending", None)
    journal = (home() / "shoal/runs" / session.id / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in journal]
    sent = max(each["at"] for each in events if each["type"] == "tool_finished" and "ann" in each["agent"])
    ended = next(each["at"] for each in events if each["type"] == "agent_ended")
    assert _seconds(ended) - _seconds(sent) <= 2


def _seconds(at: str) -> float:
    minutes, seconds = at[14:-1].split(":")
    return int(minutes) * 60 + float(seconds)


@pytest.mark.spec("USR-23", "LIF-05")
async def test_five_seconds_after_the_lead_is_killed_nothing_of_its_members_runs(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, tmp_path, SESSION, "in a shell", "0"
    )
    try:
        async with asyncio.timeout(30):
            while not (tmp_path / "begun").exists():
                await asyncio.sleep(0.01)
        assert processes_in(tmp_path)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    async with asyncio.timeout(5):
        while processes_in(tmp_path):
            await asyncio.sleep(0.01)
