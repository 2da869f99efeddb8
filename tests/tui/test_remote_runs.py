"""The full screen attached to a run of another process: it reads the journal and uses the control socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import shoal
from agent_scripts import ToolGate, call_tool, script_agents, spawn_agent
from session_helpers import collect_events
from shoal.app.run_access.run_handle import RunHandle
from shoal.core.clock import SystemClock
from shoal.core.events import AgentStarted, QuestionAsked, SessionStarted, TurnStarted
from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.core.permissions.questions import PermissionQuestion
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.surfaces.tui.answer_screen import AnswerScreen
from shoal.surfaces.tui.app import ShoalApp
from shoal.surfaces.tui.remote_run_client import TuiRemoteRunClient
from team_scripts import get_home
from tui.tui_helpers import wait_for_question
from tui_driver import TuiDriver


@asynccontextmanager
async def attach_to_session(root: Path, session: shoal.Session) -> AsyncIterator[TuiDriver]:
    async with attach_to_run(root, RunHandle(session=session.id, home=session.runtime.settings.home)) as at:
        yield at


@asynccontextmanager
async def attach_to_run(root: Path, run: RunHandle) -> AsyncIterator[TuiDriver]:
    app = ShoalApp(root / "history")
    async with app.run_test(size=(80, 30)) as pilot:
        client = TuiRemoteRunClient(run, SystemClock(), app)
        await app.attach_run(client)
        client_task = asyncio.create_task(client.run_until_left())
        try:
            yield TuiDriver(pilot, app)
        finally:
            client.leave_run()
            await client_task


@pytest.mark.slow
@pytest.mark.spec("SRF-01", "USR-26")
async def test_an_attached_screen_shows_steers_and_answers_a_run_of_another_process(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[
            "said before",
            [spawn_agent("Digger digs", "spawn", name="digger", run_in_background=True)],
            "one is out",
            [call_tool("Bash", "b", command="touch made")],
            "made it",
            lambda request: f"heard: {request.messages[-1].text}",
        ],
        Digger=[[call_tool("Gate", "g")], "I dug"],
    )
    options = {"attended": True, "tools": [gate.tool], "allowed_tools": ["Gate", "Agent"]}
    async with shoal.open(cwd=tmp_path, model=model, **options) as session:
        async for _ in session.run("lead, begin"):
            pass
        async with attach_to_session(tmp_path, session) as at:
            await at.wait_for_text("› lead, begin", "said before", "attached")

            async for _ in session.run("send one out"):
                pass
            await at.wait_for_text("› send one out", "one is out", "1 agent at work")
            await gate.wait_until_reached()
            await at.press_keys("f2")
            await at.wait_for_text("digger")
            await at.press_keys("down", "enter")
            await at.wait_for_text("› Digger digs", "● Gate")
            gate.is_open.set()
            await at.wait_for_text("I dug")
            await at.press_keys("f5")
            await at.wait_for_text("one is out")

            turn = asyncio.create_task(run_next_turn(session))
            await wait_for_question(at)
            await at.press_keys("y")
            await turn
            await at.wait_for_text("made it")
            assert (tmp_path / "made").exists()

            await at.press_keys("shift+tab")
            await at.wait_for_text("accepts edits")
            assert session.runtime.lead.permissions.mode == "acceptEdits"

            await at.submit_text("from afar")
            next_turn = await session.next_turn(wait_for_input=True)
            assert next_turn is not None
            async for _ in next_turn:
                pass
            await at.wait_for_text("› from afar", "heard: from afar")
            await at.submit_text("/tasks")
            await at.wait_for_text("works only in the session's own terminal")


async def test_attaching_during_a_call_shows_it_running_and_escape_interrupts_it(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(lead=[[call_tool("Gate", "g")], "through"])
    options = {"attended": True, "tools": [gate.tool], "allowed_tools": ["Gate"]}
    async with shoal.open(cwd=tmp_path, model=model, **options) as session:
        turn = session.run("lead, begin")
        reader = asyncio.create_task(collect_events(turn))
        await gate.wait_until_reached()
        async with attach_to_session(tmp_path, session) as at:
            await at.wait_for_text("› lead, begin", "▸ ● Gate", "lead · Gate")
            await at.press_keys("escape")
            await reader
            await at.wait_until(lambda: "lead · Gate" not in at.screen_text, "the end of the turn")


async def test_when_the_process_dies_its_agents_and_questions_are_closed(tmp_path: Path) -> None:
    session_id = SessionId("11111111-1111-4111-8111-111111111111")
    run = RunHandle(session=session_id, home=get_home())
    journal = FileJournal(run.journal_path, SystemClock())
    start_fields = {"call": "c", "depth": 1, "model": "m", "mode": "default", "background": True, "cwd": "/"}
    agent_fields = {"agent": AgentId("digger-1"), "kind": "Digger", "name": "digger", "description": "dig"}
    lock = SessionLock(get_home(), session_id)
    question = PermissionQuestion(
        id="q-1", agent=LEAD_ID, tool_use_id="u", tool="Bash", input={"command": "ls"}, reason=""
    )
    for event in (
        SessionStarted(
            agent=LEAD_ID, session=session_id, cwd=str(tmp_path), model="m", mode="default", tools=()
        ),
        TurnStarted(agent=LEAD_ID, turn=1, prompt="go"),
        msgspec.convert({**agent_fields, **start_fields, "parent": LEAD_ID}, AgentStarted),
        QuestionAsked(agent=LEAD_ID, question=question),
    ):
        journal.append(event)
    journal.close()
    async with attach_to_run(tmp_path, run) as at:
        await at.wait_for_text("1 agent at work")
        await at.wait_until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
        lock.release()
        await at.wait_until(lambda: not isinstance(at.app.screen, AnswerScreen), "the end of the question")
        await at.wait_for_text("The run has ended")
        assert "at work" not in at.screen_text
        await at.press_keys("f2")
        await at.wait_for_text("1 ended, 1 of them failed")


async def run_next_turn(session: shoal.Session) -> None:
    turn = await session.next_turn()
    assert turn is not None
    await collect_events(turn)
