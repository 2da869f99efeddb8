"""A team whose process was killed is taken up again as it was."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from dying_parts import PARTS

from cast import all_turns, recorded, use
from shoal.core.events import AgentStarted, Finished
from troupe import config, home, inbox, opened, troupe

SESSION = "5e551011-0000-4000-8000-000000000001"
PROGRAM = Path(__file__).with_name("dying_lead.py")


async def killed(cwd: Path, part: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, PROGRAM, cwd, SESSION, part)
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGKILL


async def went_on(session: Any) -> str:
    """What the lead says last in the turns that come by themselves."""
    text = ""
    async with asyncio.timeout(30):
        while (turn := await session.next_turn()) is not None:
            async for event in turn:
                text = event.text if isinstance(event, Finished) else text
    return text


def transcript(name: str) -> str:
    (path,) = home().glob(f"projects/*/{SESSION}/subagents/agent-{name}@crew.jsonl")
    return path.read_text()


@pytest.mark.spec("TRN-02", "USR-12")
async def test_a_member_that_was_killed_in_a_tool_goes_on_and_its_task_is_done_once(tmp_path: Path) -> None:
    await killed(tmp_path, "in a tool")
    async with opened(tmp_path, troupe(**PARTS["in a tool"]), resume=SESSION) as session:
        assert session.agent.identity.team == "crew"
        await went_on(session)
        told = "\n".join(m.text for m in session.agent.conversation.messages if m.role == "user")
        task = (home() / "tasks/crew/1.json").read_text()
        members = [(each["name"], each.get("isActive")) for each in config("crew")["members"]]
    assert '"completed"' in task
    assert '"ann"' in task, "the task stayed with who had claimed it"
    assert told.count("ann is idle") == 1
    assert "all done" in told
    assert members == [("team-lead", None), ("bob", False), ("ann", False)]
    resumed = [event for event in recorded(session) if isinstance(event, AgentStarted) and event.resumed]
    assert sorted(event.name for event in resumed) == ["ann", "bob"]


@pytest.mark.spec("TRN-02", "USR-04", "BOX-04")
async def test_mail_that_was_on_its_way_is_heard_once(tmp_path: Path) -> None:
    await killed(tmp_path, "mail on its way")
    async with opened(tmp_path, troupe(**PARTS["mail on its way"]), resume=SESSION) as session:
        text = await went_on(session)
    assert "the second word" in text
    lines = transcript("ann").splitlines()
    assert sum('"type":"user"' in line and "second word" in line for line in lines) == 1
    assert all(each["read"] for each in inbox("crew", "ann"))
    assert all(each["read"] for each in inbox("crew", "team-lead"))


@pytest.mark.spec("TRN-02", "LIF-06", "USR-12")
async def test_an_idle_member_is_woken_with_all_it_knew(tmp_path: Path) -> None:
    await killed(tmp_path, "idle")
    async with opened(tmp_path, troupe(**PARTS["idle"]), resume=SESSION) as session:
        text = await all_turns(session, "Go on.")
    assert "I said: I know 42" in text


@pytest.mark.spec("USR-12", "TRN-02")
async def test_what_is_left_of_a_dead_team_does_not_stop_a_new_one(tmp_path: Path) -> None:
    await killed(tmp_path, "idle")
    model = troupe(lead=[use("TeamCreate", team_name="crew"), "made"])
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        assert session.agent.identity.team == "crew-2"
