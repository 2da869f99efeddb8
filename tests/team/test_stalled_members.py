"""Stalled members are restarted once and then fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from shoal.app.session.session import Session
from shoal.core.conversation.model_requests import (
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    TextDelta,
)
from shoal.core.events import MemberWentIdle
from shoal.models.scripted_model import ScriptedModel
from shoal.testing import FakeClock
from team_scripts import (
    find_speaker,
    get_home,
    get_last_text,
    open_session,
    read_team_config,
    script_team,
    spawn_member,
)

AFTER = 300.0
PAST = AFTER * 1.1
"""A stall is noticed a little late, so that not every delta resets a timer."""


class StallingModel(ScriptedModel):
    """Hangs `times` times for ann, after `said` replies; `word` makes it stream one delta."""

    def __init__(self, model: ScriptedModel, times: int, said: int = 0) -> None:
        super().__init__(lambda _: "")
        self._model = model
        self._times = times
        self._said = said
        self.hangs = asyncio.Event()
        self.word = asyncio.Event()

    async def generate_reply(self, request: ModelRequest, on_delta: Any = None) -> ModelReply:
        said = sum(message.role == "assistant" for message in request.messages)
        if find_speaker(request) == "ann" and self._times and said >= self._said:
            self._times -= 1
            await on_delta(ModelAttemptStartedDelta())
            self.hangs.set()
            while True:
                await self.word.wait()
                self.word.clear()
                await on_delta(TextDelta("a"))
        return await self._model.generate_reply(request, on_delta)

    async def wait_until_hanging(self) -> None:
        async with asyncio.timeout(10):
            await self.hangs.wait()
        self.hangs.clear()


TASK = call_tool("TaskCreate", subject="one", description="d")


def create_hanging_model(*ann: Any, times: int, said: int = 0) -> StallingModel:
    create = call_tool("TeamCreate", team_name="crew")
    begin = [create, TASK, spawn_member("ann")] if said else [create, spawn_member("ann")]
    return StallingModel(script_team(lead=[*begin, "wait", get_last_text], ann=ann), times, said)


async def start_turns(session: Session) -> asyncio.Task[str]:
    return asyncio.create_task(run_all_turns(session, "Begin."))


def list_idle_reasons(session: Session) -> list[tuple[str, str]]:
    return [(each.reason, each.detail) for each in read_events(session) if isinstance(each, MemberWentIdle)]


@pytest.mark.spec("USR-07", "LIF-06")
async def test_a_stalled_turn_is_restarted_from_its_history(tmp_path: Path) -> None:
    clock = FakeClock()
    seen: list[str] = []

    def again(request: ModelRequest) -> str:
        seen.append("\n".join(message.text for message in request.messages))
        return "went on"

    model = create_hanging_model(again, times=1)
    async with open_session(tmp_path, model, clock=clock) as session:
        running = await start_turns(session)
        await model.wait_until_hanging()
        await clock.advance(AFTER * 0.99)
        assert not seen, "silence up to then is no stall"
        await clock.advance(AFTER * 0.11)
        assert "went on" in await running
        assert list_idle_reasons(session) == [("available", "")]
    assert "Begin." in seen[0]
    assert "Your turn stalled and was restarted" in seen[0]


@pytest.mark.spec("USR-07", "LIF-06", "LIF-04")
async def test_the_second_stall_fails_the_working_period_and_releases_its_tasks(tmp_path: Path) -> None:
    clock = FakeClock()
    model = create_hanging_model(
        call_tool("TaskUpdate", taskId="1", status="in_progress"), "never said", times=2, said=1
    )
    async with open_session(tmp_path, model, clock=clock) as session:
        running = await start_turns(session)
        for _ in range(2):
            await model.wait_until_hanging()
            await clock.advance(PAST)
        text = await running
        assert list_idle_reasons(session) == [("failed", "no activity for 300 s")]
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead", "ann"]
    assert "ann is idle (failed)." in text
    assert "It failed: no activity for 300 s" in text
    assert '"pending"' in (get_home() / "tasks/crew/1.json").read_text()


@pytest.mark.spec("USR-07")
async def test_a_slowly_streaming_model_is_not_stalled(tmp_path: Path) -> None:
    clock = FakeClock()
    model = create_hanging_model("went on", times=1)
    async with open_session(tmp_path, model, clock=clock) as session:
        running = await start_turns(session)
        await model.wait_until_hanging()
        for _ in range(10):
            await clock.advance(AFTER * 0.9)
            model.word.set()
        assert list_idle_reasons(session) == []
        await clock.advance(PAST)
        assert "went on" in await running


@pytest.mark.spec("USR-07")
async def test_a_tool_without_a_deadline_is_not_stalled(tmp_path: Path) -> None:
    clock, gate = FakeClock(), ToolGate()
    model = create_hanging_model(call_tool("Gate"), "through", times=0)
    async with open_session(tmp_path, model, clock=clock, tools=[gate.tool]) as session:
        running = await start_turns(session)
        await gate.wait_until_reached()
        await clock.advance(100 * AFTER)
        gate.is_open.set()
        assert "through" in await running
        assert list_idle_reasons(session) == [("available", "")]
