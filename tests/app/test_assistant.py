"""Assistant mode: a session that stays open, and whose lead is free for the person."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, agent, cast, recorded, use
from crew_rig import drain, texts
from shoal.core.errors import SettingsError
from shoal.core.events import AgentStarted, Finished, Queued
from shoal.core.requests import Request
from shoal.testing import FakeClock

MINUTE = 60


def opened(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, **{"skip_permissions": True, "assistant": True, **options})


async def next_answer(session: shoal.Session) -> str:
    async with asyncio.timeout(20):
        turn = await session.next_turn(wait_for_people=True)
        assert turn is not None
        last = (await drain(turn))[-1]
    assert isinstance(last, Finished)
    return last.text


@pytest.mark.spec("MOD-02", "QUE-03")
async def test_it_waits_for_schedules_and_people_when_there_is_nothing_to_do(tmp_path: Path) -> None:
    clock = FakeClock()
    every_five = use("CronCreate", cron="*/5 * * * *", prompt="look at the build")
    model = cast(lead=[every_five, "kept", "looked", "looked again", "hello"])
    async with opened(tmp_path, model, clock=clock) as session:
        await drain(session.run("lead"))
        assert "not kept open" not in texts(session)[0]
        for said in ("looked", "looked again"):
            coming = asyncio.ensure_future(next_answer(session))
            await asyncio.sleep(0)
            assert not coming.done()
            await clock.advance(5 * MINUTE)
            assert await coming == said
            assert session.agent.conversation.messages[-2].text.startswith("<scheduled-prompt ")
        coming = asyncio.ensure_future(next_answer(session))
        session.steer("are you there?")
        assert await coming == "hello"


@pytest.mark.spec("MOD-02", "RUN-05")
async def test_its_agents_all_run_in_the_background_and_a_person_is_heard_meanwhile(tmp_path: Path) -> None:
    gate = Gate()
    heard: list[str] = []

    def lead(request: Request) -> str:
        heard.append(request.messages[-1].text)
        return "I hear you"

    model = cast(
        lead=[agent("child", "c1", run_in_background=False), "started", lead], child=[use("Gate"), "done"]
    )
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        async with asyncio.timeout(10):
            await drain(session.run("lead"))
        await gate.wait()
        session.steer("how is it going?")
        assert await next_answer(session) == "I hear you"
        gate.opened.set()
        assert await next_answer(session) == "I hear you"
    (child,) = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert child.background
    assert heard[0] == "how is it going?"
    assert "<task-notification>" in heard[1]


@pytest.mark.spec("MOD-02")
async def test_what_a_person_says_is_taken_at_once_and_heard_at_the_next_step_of_a_hanging_tool(
    tmp_path: Path,
) -> None:
    gate = Gate()
    heard: list[str] = []

    def lead(request: Request) -> str:
        heard.append(request.messages[-1].text)
        return "stopped"

    async with opened(tmp_path, cast(lead=[use("Gate"), lead]), tools=[gate.tool]) as session:
        turn = session.run("lead")
        await gate.wait()
        session.steer("never mind")
        assert [event.text for event in recorded(session) if isinstance(event, Queued)] == ["never mind"]
        gate.opened.set()
        await drain(turn)
    assert heard == ["never mind"]


async def test_it_ends_at_its_deadline(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, cast(lead=["hi"]), clock=clock, deadline=10 * MINUTE) as session:
        await drain(session.run("lead"))
        coming = asyncio.ensure_future(session.next_turn(wait_for_people=True))
        await asyncio.sleep(0)
        await clock.advance(11 * MINUTE)
        assert await coming is None
        assert session.is_late


async def test_it_is_turned_on_by_a_setting_and_refused_where_agents_cannot_work_beside(
    tmp_path: Path,
) -> None:
    on = json.dumps({"shoal": {"assistant": True}})
    async with opened(tmp_path, cast(lead=["hi"]), assistant=None, settings=on, persist=False) as session:
        assert session.parts.assistant
        assert "Your session stays open" in session.agent.system
    async with opened(tmp_path, cast(lead=["hi"]), assistant=None, persist=False) as session:
        assert not session.parts.assistant
        assert "Your session stays open" not in session.agent.system
    off = json.dumps({"shoal": {"background_agents": False}})
    with pytest.raises(SettingsError, match=r"shoal\.background_agents"):
        async with opened(tmp_path, cast(lead=["hi"]), settings=off):
            pass
