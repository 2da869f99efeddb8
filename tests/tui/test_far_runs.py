"""The same terminal at a run of another process: it reads the journal, and speaks through the run's door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import shoal
from cast import Gate, agent, cast, use
from shoal.app.outside.watching import Run
from shoal.app.session.turn import Turn
from shoal.core.clock import SystemClock
from shoal.core.events import AgentStarted, Asked, SessionStarted, TurnStarted
from shoal.core.ids import LEAD, AgentId, SessionId
from shoal.core.questions import MayRun
from shoal.stores.files.journal import FileJournal
from shoal.stores.files.locks import SessionLock
from shoal.surfaces.tui.answering import AnswerScreen
from shoal.surfaces.tui.app import ShoalApp
from shoal.surfaces.tui.far import FarSeat
from troupe import home
from tui_rig import Sitting


@asynccontextmanager
async def attached(root: Path, session: shoal.Session) -> AsyncIterator[Sitting]:
    async with seated_at(root, Run(session=session.id, home=session.parts.settings.home)) as at:
        yield at


@asynccontextmanager
async def seated_at(root: Path, run: Run) -> AsyncIterator[Sitting]:
    app = ShoalApp(root / "history")
    async with app.run_test(size=(80, 30)) as pilot:
        seat = FarSeat(run, SystemClock(), app)
        await app.sit(seat)
        going = asyncio.create_task(seat.go())
        try:
            yield Sitting(pilot, app)
        finally:
            seat.leave()
            await going


@pytest.mark.spec("SRF-01", "USR-26")
async def test_a_run_is_seen_talked_to_answered_and_interrupted_from_afar(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(
        lead=[
            "said before",
            [agent("Digger digs", "spawn", name="digger", run_in_background=True)],
            "one is out",
            [use("Bash", "b", command="touch made")],
            "made it",
            lambda request: f"heard: {request.messages[-1].text}",
        ],
        Digger=[[use("Gate", "g")], "I dug"],
    )
    options = {"attended": True, "tools": [gate.tool], "allowed_tools": ["Gate", "Agent"]}
    async with shoal.open(cwd=tmp_path, model=model, **options) as session:
        async for _ in session.run("lead, begin"):
            pass
        async with attached(tmp_path, session) as at:
            await at.shows("› lead, begin", "said before", "attached")

            async for _ in session.run("send one out"):
                pass
            await at.shows("› send one out", "one is out", "1 agent at work")
            await gate.wait()
            await at.press("f2")
            await at.shows("digger")
            await at.press("down", "enter")
            await at.shows("› Digger digs", "● Gate")
            gate.opened.set()
            await at.shows("I dug")
            await at.press("f5")
            await at.shows("one is out")

            turn = asyncio.create_task(_through(session))
            await at.until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
            screen = at.app.screen
            assert isinstance(screen, AnswerScreen)
            await screen.ready.wait()
            await at.press("y")
            await turn
            await at.shows("made it")
            assert (tmp_path / "made").exists()

            await at.press("shift+tab")
            await at.shows("accepts edits")
            assert session.parts.permissions.mode == "acceptEdits"

            await at.say("from afar")
            turn_of = await session.next_turn(wait_for_people=True)
            assert turn_of is not None
            async for _ in turn_of:
                pass
            await at.shows("› from afar", "heard: from afar")
            await at.say("/tasks")
            await at.shows("is for the terminal of the session itself")


async def test_who_comes_in_the_middle_of_a_call_sees_it_run_and_can_interrupt_it(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(lead=[[use("Gate", "g")], "through"])
    options = {"attended": True, "tools": [gate.tool], "allowed_tools": ["Gate"]}
    async with shoal.open(cwd=tmp_path, model=model, **options) as session:
        turn = session.run("lead, begin")
        reading = asyncio.create_task(_read(turn))
        await gate.wait()
        async with attached(tmp_path, session) as at:
            await at.shows("› lead, begin", "▸ ● Gate", "lead · Gate")
            await at.press("escape")
            await reading
            await at.until(lambda: "lead · Gate" not in at.text, "the end of the turn")


async def test_when_the_process_dies_nobody_is_at_work_and_nothing_is_asked_any_more(tmp_path: Path) -> None:
    ident = SessionId("11111111-1111-4111-8111-111111111111")
    run = Run(session=ident, home=home())
    journal = FileJournal(run.journal, SystemClock())
    facts = {"call": "c", "depth": 1, "model": "m", "mode": "default", "background": True, "cwd": "/"}
    digger = {"agent": AgentId("digger-1"), "kind": "Digger", "name": "digger", "description": "dig"}
    lock = SessionLock(home(), ident)
    asked = MayRun(id="q-1", agent=LEAD, tool_use_id="u", tool="Bash", input={"command": "ls"}, reason="")
    for event in (
        SessionStarted(agent=LEAD, session=ident, cwd=str(tmp_path), model="m", mode="default", tools=()),
        TurnStarted(agent=LEAD, turn=1, prompt="go"),
        msgspec.convert({**digger, **facts, "parent": LEAD}, AgentStarted),
        Asked(agent=LEAD, question=asked),
    ):
        journal.append(event)
    journal.close()
    async with seated_at(tmp_path, run) as at:
        await at.shows("1 agent at work")
        await at.until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
        lock.release()
        await at.until(lambda: not isinstance(at.app.screen, AnswerScreen), "the end of the question")
        await at.shows("The run has ended")
        assert "at work" not in at.text
        await at.press("f2")
        await at.shows("1 ended, 1 of them not well")


async def _read(turn: Turn) -> None:
    async for _ in turn:
        pass


async def _through(session: shoal.Session) -> None:
    turn = await session.next_turn()
    assert turn is not None
    await _read(turn)
