"""A team whose process was killed is taken up again as it was."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from dying_parts import PARTS, TASKS

import shoal
from cast import all_turns, recorded, use
from shoal.core.clock import SystemClock
from shoal.core.events import AgentStarted, Finished
from shoal.core.ids import Ids
from shoal.core.names import AgentName
from shoal.core.tasks import Draft
from troupe import config, home, inbox, opened, troupe

SESSION = "5e551011-0000-4000-8000-000000000001"
PROGRAM = Path(__file__).with_name("dying_lead.py")


async def killed(cwd: Path, part: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, PROGRAM, cwd, SESSION, part, "0")
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


@pytest.mark.spec("TRN-02", "TSK-07")
async def test_a_task_that_a_member_had_just_taken_when_its_process_died_is_told(
    tmp_path: Path,
) -> None:
    await killed(tmp_path, "idle")
    record = shoal.AgentsRecord(home(), clock=SystemClock(), ids=Ids())
    board = record.board("crew")
    task = await board.create(Draft(subject="caulk it", description=""))
    assert (await board.claim(task.id, by=AgentName("ann"))).success
    await record.aclose()
    async with opened(tmp_path, troupe(**PARTS["idle"]), resume=SESSION) as session:
        await went_on(session)
    assert transcript("ann").count(f"Task #{task.id} is yours now: caulk it") == 1


async def killed_at_work(cwd: Path, after: float) -> None:
    """Ended from outside, some time after all members have joined."""
    process = await asyncio.create_subprocess_exec(sys.executable, PROGRAM, cwd, SESSION, "workers", "0.02")
    async with asyncio.timeout(60):
        while not (home() / "teams/crew/config.json").exists() or len(config("crew")["members"]) < 6:
            await asyncio.sleep(0.005)
        await asyncio.sleep(after)
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def delivered(path: Path) -> list[str]:
    lines = map(json.loads, path.read_text().splitlines())
    return [line["delivered"] for line in lines if line.get("delivered")]


@pytest.mark.spec("USR-12", "USR-04", "TRN-02")
@pytest.mark.parametrize("after", [0.0, 0.1, 0.2, 0.3, 0.5])
async def test_killed_at_any_moment_all_tasks_are_done_and_every_message_is_heard_once(
    tmp_path: Path, after: float
) -> None:
    await killed_at_work(tmp_path, after)
    async with opened(tmp_path, troupe(**PARTS["workers"]), resume=SESSION) as session:
        await went_on(session)
        tasks = [json.loads((home() / f"tasks/crew/{n + 1}.json").read_text()) for n in range(TASKS)]
    record = shoal.AgentsRecord(home(), clock=SystemClock(), ids=Ids())
    # One that had just been entered in the roster and got no inbox is out of it again.
    names = [each["name"] for each in config("crew")["members"]]
    boxes = {name: await record.mailboxes("crew").history(AgentName(name)) for name in names}
    await record.aclose()
    assert [task["status"] for task in tasks] == ["completed"] * TASKS
    (main,) = home().glob(f"projects/*/{SESSION}.jsonl")
    for name, box in boxes.items():
        path = main if name == "team-lead" else main.with_suffix("") / f"subagents/agent-{name}@crew.jsonl"
        heard = delivered(path)
        assert len(heard) == len(set(heard)), f"{name} heard something twice"
        assert all(mail.read for mail in box), f"{name} has unread mail"
        assert {mail.id for mail in box} <= set(heard), f"{name} missed something"
    reports = "\n".join(mail.text for mail in boxes["team-lead"])
    assert all(f"task {n + 1} by" in reports for n in range(TASKS))


@pytest.mark.spec("USR-04", "TRN-02")
async def test_mail_that_a_transcript_has_but_no_mark_is_marked_and_not_heard_again(tmp_path: Path) -> None:
    await killed(tmp_path, "idle")
    for name in ("ann", "team-lead"):
        # As they are when the process dies between the transcript and the mark.
        path = home() / "teams/crew/inboxes" / f"{name}.json"
        path.write_text(path.read_text().replace('"read":true', '"read":false'))
        assert '"read":true' not in path.read_text()
    async with opened(tmp_path, troupe(**PARTS["idle"]), resume=SESSION) as session:
        await all_turns(session, "Go on.")
    (main,) = home().glob(f"projects/*/{SESSION}.jsonl")
    for path in (main, main.with_suffix("") / "subagents/agent-ann@crew.jsonl"):
        assert len(delivered(path)) == len(set(delivered(path)))
    assert all(mail["read"] for name in ("ann", "team-lead") for mail in inbox("crew", name))


@pytest.mark.spec("USR-08", "USR-12")
@pytest.mark.parametrize("part", ["asked to end", "asked after the clock was set back"])
async def test_a_request_to_shut_down_is_kept_up_by_the_next_process(tmp_path: Path, part: str) -> None:
    await killed(tmp_path, part)
    model, settings = troupe(**PARTS[part]), '{"shoal": {"shutdown_grace": 0.2}}'
    async with opened(tmp_path, model, resume=SESSION, settings=settings) as session:
        await went_on(session)
        told = "\n".join(m.text for m in session.agent.conversation.messages if m.role == "user")
    assert "teammate_terminated: task ann@crew" in told
    assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("USR-12", "TRN-02")
async def test_what_is_left_of_a_dead_team_does_not_stop_a_new_one(tmp_path: Path) -> None:
    await killed(tmp_path, "idle")
    model = troupe(lead=[use("TeamCreate", team_name="crew"), "made"])
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        assert session.agent.identity.team == "crew-2"
