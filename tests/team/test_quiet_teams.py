"""What wakes a lead, and what it is told when its team has gone quiet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, all_turns, recorded, use
from shoal.core.errors import BadRequest
from shoal.core.events import MemberRested, TurnStarted
from shoal.core.messages import ToolUse
from shoal.core.requests import Request
from troupe import config, home, inbox, last_words, member, opened, results, speaker, tell, troupe

NAMES = [f"m{n}" for n in range(8)]


def turns(session: Any) -> int:
    return sum(isinstance(event, TurnStarted) for event in recorded(session))


@pytest.mark.spec("USR-17", "USR-22", "LIF-02", "MSG-02", "TSK-07", "AGT-09")
async def test_eight_members_with_three_working_periods_each_cost_the_lead_one_turn(tmp_path: Path) -> None:
    tasks = [use("TaskCreate", f"t{n}", subject=f"task {n}", description="d") for n in range(16)]

    def work(request: Request) -> ToolUse | str:
        if results(request.messages[-1:]):
            return f"done by {speaker(request)}"
        number = last_words(request).partition("Task #")[2].partition(" ")[0]
        return use("TaskUpdate", taskId=number, status="completed") if number else "ready"

    spawns = [member(name) for name in NAMES]
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), tasks, spawns, "wait", last_words],
        **{name: [work] for name in NAMES},
    )
    async with opened(tmp_path, model) as session:
        told = await all_turns(session)
    rested = [event.agent for event in recorded(session) if isinstance(event, MemberRested)]
    assert len(rested) == 8 * 3
    assert turns(session) - 1 <= 3
    # Every working period is told once, and none of the last words is lost.
    assert told.count("is idle (available).") == len(rested)
    assert told.count("sent no report") == len(rested)
    assert told.count("is completed.") == 16


@pytest.mark.spec("USR-17")
async def test_a_report_wakes_the_lead_and_status_waits_for_it(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        lead=[
            use("TeamCreate", team_name="crew"),
            [member("ann"), member("bob"), member("cyd")],
            "wait",
            lambda r: [f"first: {last_words(r)}", use("Open")],
            "opened",
            lambda r: f"second: {last_words(r)}",
        ],
        ann=["ann has nothing to say"],
        bob=[use("Until"), tell("team-lead", "found it", "a find"), "bob ends"],
        cyd=[use("Gate"), "cyd ends"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open]) as session:
        second = await all_turns(session)
        first = next(m.text for m in session.agent.conversation.messages if m.text.startswith("first: "))
    # What ann had to say came with bob's report; that cyd rests is told when the team has gone quiet.
    assert "found it" in first
    assert "cyd" not in first
    assert "cyd is idle" in second
    everything = first + second
    assert [everything.count(f"{name} is idle") for name in ("ann", "bob", "cyd")] == [1, 1, 1]
    assert "ann has nothing to say" in everything
    assert "bob ends" not in everything, "who reported is not quoted as well"
    assert turns(session) == 3


@pytest.mark.spec("LIF-06", "MSG-02")
async def test_a_member_that_fails_tells_why_gives_its_task_back_and_can_be_woken(tmp_path: Path) -> None:
    broken, free = True, list[str]()

    def work(request: Request) -> str:
        if broken:
            raise BadRequest("the provider says no")
        return "now it works"

    def told(request: Request) -> Any:
        nonlocal broken
        broken = False
        free.append(json.loads((home() / "tasks" / "crew" / "1.json").read_text())["status"])
        return [last_words(request), tell("ann", "again, please", "again")]

    model = troupe(
        lead=[
            use("TeamCreate", team_name="crew"),
            use("TaskCreate", subject="s", description="d"),
            member("ann"),
            "wait",
            told,
            "sent",
            last_words,
        ],
        ann=[use("TaskUpdate", taskId="1", status="in_progress"), work],
    )
    async with opened(tmp_path, model) as session:
        text = await all_turns(session)
        said = "\n".join(message.text for message in session.agent.conversation.messages)
        mail = [each["text"] for each in inbox("crew", "team-lead")]
    assert "ann is idle (failed).\nIt failed: the provider says no" in said
    assert '"idleReason":"failed"' in mail[0]
    assert '"failureReason":"the provider says no"' in mail[0]
    assert free == ["pending"]
    assert "now it works" in text


@pytest.mark.spec("LIF-04", "LIF-06", "TSK-09")
async def test_a_member_that_crashes_ends_alone_and_its_tasks_are_free_again(tmp_path: Path) -> None:
    def crash(request: Request) -> str:
        raise RuntimeError("a bug")

    model = troupe(
        lead=[
            use("TeamCreate", team_name="crew"),
            use("TaskCreate", subject="s", description="d"),
            member("ann"),
            "wait",
            last_words,
        ],
        ann=[use("TaskUpdate", taskId="1", status="in_progress"), crash],
    )
    async with opened(tmp_path, model) as session:
        text = await all_turns(session)
        task = json.loads((home() / "tasks" / "crew" / "1.json").read_text())
        names = [each["name"] for each in config("crew")["members"]]
    assert "teammate_terminated: task ann@crew, type general-purpose, status failed" in text
    assert "a bug" in text
    assert names == ["team-lead"]
    assert (task["status"], task.get("owner")) == ("pending", None)


@pytest.mark.spec("USR-10")
async def test_the_last_words_of_one_that_sent_no_report_enter_in_part(tmp_path: Path) -> None:
    whole = "".join(f"line {n} of what was found\n" for n in range(4_000))
    model = troupe(lead=[use("TeamCreate", team_name="crew"), member("ann"), "wait", last_words], ann=[whole])
    async with opened(tmp_path, model) as session:
        told = await all_turns(session)
    assert whole[:500] in told
    assert len(told) <= 4_000
    path = told.partition("[The whole is in ")[2].partition("]")[0]
    assert Path(path).read_text() == whole
