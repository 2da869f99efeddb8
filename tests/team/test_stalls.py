"""A member from which nothing is heard any more is begun again, and then given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, all_turns, recorded, use
from shoal.app.session.session import Session
from shoal.core.events import MemberRested
from shoal.core.requests import Reply, Request, Sent, TextDelta
from shoal.models.scripted import ScriptedModel
from shoal.testing import FakeClock
from troupe import config, home, last_words, member, opened, speaker, troupe

AFTER = 300.0
PAST = AFTER * 1.1
"""A stall is noticed a little late, so that not every word moves a timer."""


class Hanging(ScriptedModel):
    """No answer comes when ann is asked, so often and once it has `said` so much; `word` brings a word."""

    def __init__(self, model: ScriptedModel, times: int, said: int = 0) -> None:
        super().__init__(lambda _: "")
        self._model = model
        self._times = times
        self._said = said
        self.hangs = asyncio.Event()
        self.word = asyncio.Event()

    async def reply(self, request: Request, hear: Any = None) -> Reply:
        said = sum(message.role == "assistant" for message in request.messages)
        if speaker(request) == "ann" and self._times and said >= self._said:
            self._times -= 1
            await hear(Sent())
            self.hangs.set()
            while True:
                await self.word.wait()
                self.word.clear()
                await hear(TextDelta("a"))
        return await self._model.reply(request, hear)

    async def until_it_hangs(self) -> None:
        async with asyncio.timeout(10):
            await self.hangs.wait()
        self.hangs.clear()


TASK = use("TaskCreate", subject="one", description="d")


def model_of(*ann: Any, times: int, said: int = 0) -> Hanging:
    create = use("TeamCreate", team_name="crew")
    begin = [create, TASK, member("ann")] if said else [create, member("ann")]
    return Hanging(troupe(lead=[*begin, "wait", last_words], ann=ann), times, said)


async def begun(session: Session) -> asyncio.Task[str]:
    return asyncio.create_task(all_turns(session, "Begin."))


def rests(session: Session) -> list[tuple[str, str]]:
    return [(each.reason, each.detail) for each in recorded(session) if isinstance(each, MemberRested)]


@pytest.mark.spec("USR-07", "LIF-06")
async def test_a_turn_whose_model_says_nothing_more_is_begun_again_from_its_history(tmp_path: Path) -> None:
    clock = FakeClock()
    seen: list[str] = []

    def again(request: Request) -> str:
        seen.append("\n".join(message.text for message in request.messages))
        return "went on"

    model = model_of(again, times=1)
    async with opened(tmp_path, model, clock=clock) as session:
        running = await begun(session)
        await model.until_it_hangs()
        await clock.advance(AFTER * 0.99)
        assert not seen, "silence up to then is no stall"
        await clock.advance(AFTER * 0.11)
        assert "went on" in await running
        assert rests(session) == [("available", "")]
    assert "Begin." in seen[0]
    assert "it was cut and is begun again" in seen[0]


@pytest.mark.spec("USR-07", "LIF-06", "LIF-04")
async def test_the_second_stall_of_a_working_period_fails_it_and_frees_its_tasks(tmp_path: Path) -> None:
    clock = FakeClock()
    model = model_of(use("TaskUpdate", taskId="1", status="in_progress"), "never said", times=2, said=1)
    async with opened(tmp_path, model, clock=clock) as session:
        running = await begun(session)
        for _ in range(2):
            await model.until_it_hangs()
            await clock.advance(PAST)
        text = await running
        assert rests(session) == [("failed", "nothing was heard of it for 300 s")]
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead", "ann"]
    assert "ann is idle (failed)." in text
    assert "It failed: nothing was heard of it for 300 s" in text
    assert '"pending"' in (home() / "tasks/crew/1.json").read_text()


@pytest.mark.spec("USR-07")
async def test_a_model_that_drips_is_heard_as_long_as_it_does(tmp_path: Path) -> None:
    clock = FakeClock()
    model = model_of("went on", times=1)
    async with opened(tmp_path, model, clock=clock) as session:
        running = await begun(session)
        await model.until_it_hangs()
        for _ in range(10):
            await clock.advance(AFTER * 0.9)
            model.word.set()
        assert rests(session) == []
        await clock.advance(PAST)
        assert "went on" in await running


@pytest.mark.spec("USR-07")
async def test_a_tool_without_a_deadline_may_take_its_time(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    model = model_of(use("Gate"), "through", times=0)
    async with opened(tmp_path, model, clock=clock, tools=[gate.tool]) as session:
        running = await begun(session)
        await gate.wait()
        await clock.advance(100 * AFTER)
        gate.opened.set()
        assert "through" in await running
        assert rests(session) == [("available", "")]
