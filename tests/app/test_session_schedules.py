"""Schedules in a session: created by its lead, restored on resume, and ignored by headless runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import finish_turn

from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from session_helpers import list_lead_results, open_session
from shoal.app.config.journal_recovery import ScheduleRecovery
from shoal.core.agents.schedules import Schedule
from shoal.core.events import AgentStarted, QueueItemAdded, ScheduleCreated, ScheduleEnded, SessionStarted
from shoal.core.ids import LEAD_ID
from shoal.stores.restored_conversation import restore_transcript
from shoal.testing import FakeClock

MINUTE = 60


def create_schedule(prompt: str = "look at the build", **more: Any) -> Any:
    return call_tool("CronCreate", "s1", cron="*/5 * * * *", prompt=prompt, **more)


@pytest.mark.spec("QUE-03")
async def test_a_due_schedule_starts_its_own_turn_and_is_not_user_input(tmp_path: Path) -> None:
    clock = FakeClock()
    model = script_agents(lead=[create_schedule(), "kept", "looked", "again"])
    async with open_session(tmp_path, model, clock=clock, attended=True) as session:
        await finish_turn(session.run("lead"))
        assert "ends when its work is done" not in list_lead_results(session)[0]
        await clock.advance(5 * MINUTE)
        turn = await session.next_turn()
        assert turn is not None
        await finish_turn(turn)
        scheduled_prompt = session.agent.conversation.messages[-2].text
        assert scheduled_prompt.startswith("<scheduled-prompt ")
        assert "\nlook at the build\n" in scheduled_prompt
        assert session.parts.undo_history is not None
        transcript = session.parts.undo_history.store.read_transcript(LEAD_ID)
    # Nobody can go back to before it as to something that they said.
    assert [prompt.text for prompt in restore_transcript(transcript).prompts] == ["lead"]


@pytest.mark.spec("QUE-04")
async def test_a_headless_run_ends_without_waiting_for_a_schedule_with_a_note(tmp_path: Path) -> None:
    model = script_agents(lead=[create_schedule(), "kept"])
    async with open_session(tmp_path, model, clock=FakeClock()) as session:
        assert await run_all_turns(session) == "kept"
        assert "ends when its work is done" in list_lead_results(session)[0]


async def test_a_resumed_session_restores_its_unexpired_schedules(tmp_path: Path) -> None:
    clock = FakeClock()
    model = script_agents(
        lead=[
            [
                create_schedule("stays"),
                call_tool("CronCreate", "s2", cron="*/5 * * * *", prompt="goes"),
                call_tool("CronCreate", "s3", cron="*/5 * * * *", prompt="was due", recurring=False),
            ],
            lambda _: call_tool(
                "CronDelete", "d1", id=session.runtime.inbox.scheduler.list_schedules()[1].schedule.id
            ),
            "kept",
            "heard",
        ]
    )
    async with open_session(tmp_path, model, clock=clock) as session:
        await finish_turn(session.run("lead"))
        await clock.advance(5 * MINUTE)
        # Both came due, and the session ends before its lead is notified.
        assert session.runtime.inbox.queue.count_waking_items(session.agent.identity.agent) == 2
        identity = session.id
    later = FakeClock(start=clock.now() + 60 * MINUTE * 1000)
    async with open_session(tmp_path, script_agents(lead=["heard"]), clock=later, resume=identity) as session:
        assert [each.schedule.prompt for each in session.runtime.inbox.scheduler.list_schedules()] == [
            "stays"
        ]
        turn = await session.next_turn()
        assert turn is not None
        await finish_turn(turn)
        prompt = session.agent.conversation.messages[-2].text
        assert (prompt.count("\nstays\n"), prompt.count("\nwas due\n"), prompt.count("\ngoes\n")) == (1, 1, 0)
        await later.advance(5 * MINUTE)
        assert session.runtime.inbox.queue.count_waking_items(session.agent.identity.agent) == 1
    events = read_events(session)
    assert sum(isinstance(event, ScheduleCreated) for event in events) == 3
    assert sorted(event.how for event in events if isinstance(event, ScheduleEnded)) == ["deleted", "done"]


async def test_bad_schedule_calls_get_errors_and_the_list_shows_all_schedules(tmp_path: Path) -> None:
    model = script_agents(
        lead=[
            [
                call_tool("CronCreate", "s0", cron="* 99 * * *", prompt="never"),
                call_tool("CronDelete", "d0", id="nobody"),
                create_schedule("look\nat the build"),
            ],
            call_tool("CronList"),
            "end",
        ]
    )
    async with open_session(tmp_path, model, clock=FakeClock(), persist=False) as session:
        await run_all_turns(session)
        bad, stranger, made, shown = list_lead_results(session)
        (due,) = session.runtime.inbox.scheduler.list_schedules()
    assert bad == "The field hour cannot be '99': it must be between 0 and 23."
    assert stranger == "There is no schedule 'nobody'. Schedules: none."
    assert due.schedule.id in made
    assert shown.startswith(f"{due.schedule.id}: */5 * * * *, next at ")
    assert shown.endswith(": look at the build")


async def test_sub_agents_get_no_schedule_tools(tmp_path: Path) -> None:
    model = script_agents(lead=[spawn_agent("child", "c1"), "end"], child=["done"])
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
    events = read_events(session)
    (lead,) = [event for event in events if isinstance(event, SessionStarted)]
    (child,) = [event for event in events if isinstance(event, AgentStarted)]
    assert set(lead.tools) - set(child.tools) == {
        "CronCreate",
        "CronList",
        "CronDelete",
        "TeamCreate",
        "TeamDelete",
    }


def test_a_due_schedule_does_not_fire_again_after_a_crash() -> None:
    left = ScheduleRecovery()
    for identity, recurring in (("a", True), ("b", False), ("c", False)):
        schedule = Schedule(
            id=identity, agent=LEAD_ID, cron="* * * * *", prompt="p", made=0, recurring=recurring
        )
        left.apply_event(ScheduleCreated(agent=LEAD_ID, schedule=schedule))
    for item in ("a@60000", "b@60000", "stranger"):
        left.apply_event(QueueItemAdded(agent=LEAD_ID, item=item, by="runtime", text=""))
    # What was to come once has come; what comes again is known by what may still wait in the queue.
    assert [(each.schedule.id, each.last_item) for each in left.schedules] == [("a", "a@60000"), ("c", "")]
