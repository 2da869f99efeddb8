"""Another program in a team of a live session: who reaches it, and what a resumed lead does with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cast import use
from shoal.app.teams.guest import Guest
from shoal.app.teams.guest_tasks import GuestTasks, Wish
from shoal.app.teams.record import AgentsRecord
from shoal.core.clock import SystemClock
from shoal.core.errors import AgentRefused, TaskRefused
from shoal.core.ids import Ids
from shoal.core.tasks import Draft
from troupe import config, home, inbox, opened, tell, troupe

CLOCK = SystemClock()


def the_guest(cwd: Path) -> tuple[AgentsRecord, Guest]:
    record = AgentsRecord(home(), clock=CLOCK, ids=Ids())
    return record, Guest(record, clock=CLOCK, ids=Ids(), cwd=cwd)


async def test_a_lead_that_is_resumed_leaves_it_and_its_tasks_alone(tmp_path: Path) -> None:
    lead = [
        use("TeamCreate", team_name="roof"),
        "made",
        tell("*", "Good morning.", "greeting"),
        "told",
    ]
    record, guest = the_guest(tmp_path)
    async with opened(tmp_path, troupe(lead=lead)) as session:
        async for _ in session.run("begin"):
            pass
        seat = await guest.sit("roof", "codex")
        tasks = GuestTasks(record, guest)
        await tasks.create(seat, Draft(subject="Look", description=""))
        _, attempt = await tasks.update(seat, "1", Wish(status="in_progress"))
        assert attempt is not None
    async with opened(tmp_path, troupe(lead=lead), resume=session.id) as session:
        async for _ in session.run("go on"):
            pass
        assert [each["name"] for each in config("roof")["members"]] == ["team-lead", "codex"]
        assert session.parts.teams.members() == ()
        letters = await guest.take(seat, wait=0, limit=10)
        assert [letter.mail.text for letter in letters] == ["Good morning."]
        held = await tasks.get(seat, "1")
        assert (held.owner, held.attempt) == ("codex", attempt)
    assert len(inbox("roof", "codex")) == 1
    await record.aclose()


@pytest.mark.spec("TSK-06", "TSK-08", "TSK-11")
async def test_who_is_given_a_task_by_it_or_waited_for_it_is_told_and_it_writes_nothing_to_itself(
    tmp_path: Path,
) -> None:
    record, guest = the_guest(tmp_path)
    async with opened(tmp_path, troupe(lead=[use("TeamCreate", team_name="roof"), "made"])) as session:
        async for _ in session.run("begin"):
            pass
        seat = await guest.sit("roof", "codex")
        tasks = GuestTasks(record, guest)
        for subject in ("Dig", "Sow", "Water"):
            await tasks.create(seat, Draft(subject=subject, description=""))
        await tasks.update(seat, "2", Wish(owner="team-lead", blocked_by=["1"]))
        assert told("team-lead") == ["2"]
        await tasks.update(seat, "1", Wish(status="completed"))
        assert told("team-lead") == ["2", "2"]
        await tasks.update(seat, "3", Wish(owner="codex"))
        assert ((await tasks.get(seat, "3")).status, told("codex")) == ("in_progress", [])
    await record.aclose()


def told(name: str) -> list[str]:
    """The tasks of which somebody was told that they are theirs."""
    texts = [each["text"] for each in inbox("roof", name)]
    return [json.loads(text)["taskId"] for text in texts if '"type":"task_assignment"' in text]


async def test_it_is_held_to_its_own_place(tmp_path: Path) -> None:
    lead = [
        use("TeamCreate", team_name="roof"),
        use("TaskCreate", "t1", subject="Test", description="", metadata={"acceptance": "make test"}),
        "made",
    ]
    record, guest = the_guest(tmp_path)
    async with opened(tmp_path, troupe(lead=lead)) as session:
        async for _ in session.run("begin"):
            pass
        with pytest.raises(AgentRefused, match="led by a live session"):
            await guest.sit("roof", "team-lead")
        with pytest.raises(AgentRefused, match="Which team"):
            guest.seat(None)
        seat = await guest.sit("roof", "codex")
        tasks = GuestTasks(record, guest)
        await tasks.update(seat, "1", Wish(status="in_progress"))
        with pytest.raises(TaskRefused, match="acceptance command"):
            await tasks.update(seat, "1", Wish(status="completed"))
        with pytest.raises(AgentRefused, match="Only its lead"):
            await guest.delete(seat)
        with pytest.raises(AgentRefused, match="Only the lead"):
            await guest.ask_to_end(seat, "team-lead", "go")
    await record.aclose()
