"""Schedules in a session: made by its lead, kept over a resume, and no reason for a headless run to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import agent, all_turns, cast, recorded, use
from shoal.app.basis.left_schedules import LeftSchedules
from shoal.core.events import AgentStarted, Queued, ScheduleEnded, ScheduleMade, SessionStarted
from shoal.core.ids import LEAD
from shoal.core.messages import ToolResult, result_text
from shoal.core.schedules import Schedule
from shoal.stores.files.sessions import read_session
from shoal.testing import FakeClock

MINUTE = 60


def opened(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, **{"skip_permissions": True, **options})


def every_five(prompt: str = "look at the build", **more: Any) -> Any:
    return use("CronCreate", "s1", cron="*/5 * * * *", prompt=prompt, **more)


def results(session: shoal.Session) -> list[str]:
    blocks = (block for message in session.agent.conversation.messages for block in message.content)
    return [result_text(block) for block in blocks if isinstance(block, ToolResult)]


async def drained(turn: Any) -> None:
    async for _ in turn:
        pass


@pytest.mark.spec("QUE-03")
async def test_what_a_schedule_brings_is_a_turn_of_its_own_and_no_words_of_a_person(tmp_path: Path) -> None:
    clock = FakeClock()
    model = cast(lead=[every_five(), "kept", "looked", "again"])
    async with opened(tmp_path, model, clock=clock, attended=True) as session:
        await drained(session.run("lead"))
        assert "ends when its work is done" not in results(session)[0]
        await clock.advance(5 * MINUTE)
        turn = await session.next_turn()
        assert turn is not None
        await drained(turn)
        said = session.agent.conversation.messages[-2].text
        assert said.startswith("<scheduled-prompt ")
        assert "\nlook at the build\n" in said
        assert session.parts.past is not None
        transcript = session.parts.past.transcript
    # Nobody can go back to before it as to something that they said.
    assert [prompt.text for prompt in read_session(transcript).prompts] == ["lead"]


@pytest.mark.spec("QUE-04")
async def test_a_headless_run_ends_without_waiting_for_a_schedule_and_says_so(tmp_path: Path) -> None:
    model = cast(lead=[every_five(), "kept"])
    async with opened(tmp_path, model, clock=FakeClock()) as session:
        assert await all_turns(session) == "kept"
        assert "it ends when its work is done" in results(session)[0]


async def test_a_resumed_session_has_its_schedules_again_but_for_those_that_ended(tmp_path: Path) -> None:
    clock = FakeClock()
    model = cast(
        lead=[
            [
                every_five("stays"),
                use("CronCreate", "s2", cron="*/5 * * * *", prompt="goes"),
                use("CronCreate", "s3", cron="*/5 * * * *", prompt="was due", recurring=False),
            ],
            lambda _: use("CronDelete", "d1", id=session.parts.timetable.all()[1].schedule.id),
            "kept",
            "heard",
        ]
    )
    async with opened(tmp_path, model, clock=clock) as session:
        await drained(session.run("lead"))
        await clock.advance(5 * MINUTE)
        # Both came due, and the session ends before its lead has heard of them.
        assert session.parts.queue.size(session.agent.identity.agent) == 2
        identity = session.id
    later = FakeClock(start=clock.now() + 60 * MINUTE * 1000)
    async with opened(tmp_path, cast(lead=["heard"]), clock=later, resume=identity) as session:
        assert [each.schedule.prompt for each in session.parts.timetable.all()] == ["stays"]
        turn = await session.next_turn()
        assert turn is not None
        await drained(turn)
        said = session.agent.conversation.messages[-2].text
        assert (said.count("\nstays\n"), said.count("\nwas due\n"), said.count("\ngoes\n")) == (1, 1, 0)
        await later.advance(5 * MINUTE)
        assert session.parts.queue.size(session.agent.identity.agent) == 1
    events = recorded(session)
    assert sum(isinstance(event, ScheduleMade) for event in events) == 3
    assert sorted(event.how for event in events if isinstance(event, ScheduleEnded)) == ["deleted", "done"]


async def test_bad_calls_are_answered_and_the_list_shows_what_there_is(tmp_path: Path) -> None:
    model = cast(
        lead=[
            [
                use("CronCreate", "s0", cron="* 99 * * *", prompt="never"),
                use("CronDelete", "d0", id="nobody"),
                every_five("look\nat the build"),
            ],
            use("CronList"),
            "end",
        ]
    )
    async with opened(tmp_path, model, clock=FakeClock(), persist=False) as session:
        await all_turns(session)
        bad, stranger, made, shown = results(session)
        (due,) = session.parts.timetable.all()
    assert bad == "The field hour cannot be '99': it goes from 0 to 23."
    assert stranger == "There is no schedule 'nobody'. There are: none."
    assert due.schedule.id in made
    assert shown.startswith(f"{due.schedule.id}: */5 * * * *, next at ")
    assert shown.endswith(": look at the build")


async def test_agents_that_end_with_their_job_are_given_no_schedules(tmp_path: Path) -> None:
    model = cast(lead=[agent("child", "c1"), "end"], child=["done"])
    async with opened(tmp_path, model) as session:
        await all_turns(session)
    events = recorded(session)
    (lead,) = [event for event in events if isinstance(event, SessionStarted)]
    (child,) = [event for event in events if isinstance(event, AgentStarted)]
    assert set(lead.tools) - set(child.tools) == {
        "CronCreate",
        "CronList",
        "CronDelete",
        "TeamCreate",
        "TeamDelete",
    }


def test_a_crash_right_after_a_schedule_came_due_lets_it_come_no_second_time() -> None:
    left = LeftSchedules()
    for identity, recurring in (("a", True), ("b", False), ("c", False)):
        schedule = Schedule(
            id=identity, agent=LEAD, cron="* * * * *", prompt="p", made=0, recurring=recurring
        )
        left.take(ScheduleMade(agent=LEAD, schedule=schedule))
    for item in ("a@60000", "b@60000", "stranger"):
        left.take(Queued(agent=LEAD, item=item, by="runtime", text=""))
    # What was to come once has come; what comes again is known by what may still wait in the queue.
    assert [(each.schedule.id, each.last_item) for each in left.kept] == [("a", "a@60000"), ("c", "")]
