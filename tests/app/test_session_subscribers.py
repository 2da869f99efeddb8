"""Subscribers inside a session's process get every event in order and cannot break it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.app.options import Options
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.errors import AgentRequestRefused
from shoal.core.events import (
    AgentEnded,
    Event,
    MessageAdded,
    NoteAdded,
    RunFinished,
    SessionEnded,
    ToolFinished,
)
from shoal.core.ids import LEAD_ID
from shoal.models.scripted_model import ScriptedModel


def write_script(directory: Path, *steps: dict[str, Any]) -> ScriptedModel:
    script = directory / "script.json"
    script.write_text(json.dumps(steps))
    return ScriptedModel.from_file(script)


def call_agent(job: str) -> dict[str, Any]:
    tool_input = {"description": f"do {job}", "prompt": f"job {job}", "run_in_background": True}
    return {"name": "Agent", "input": tool_input}


def build_background_options(directory: Path) -> Options:
    model = write_script(
        directory,
        {"match": "go", "tools": [call_agent("one")]},
        {"match": "job one", "tools": [{"name": "Bash", "input": {"command": "sleep 600"}}]},
        {"match": "works in the background", "text": "started"},
        {"match": "task-notification", "text": "woken"},
    )
    return Options(cwd=directory, model=model, mode="bypassPermissions")


async def test_a_subscriber_gets_every_event_in_and_between_turns(tmp_path: Path) -> None:
    received: list[Event] = []
    async with shoal.Session(build_background_options(tmp_path)) as session:
        remove = session.subscribe(received.append)
        in_turn = [event async for event in session.run("go")]
        assert received[: len(in_turn)] == in_turn
        await session.stop_agents()
        assert any(isinstance(event, AgentEnded) and event.agent != LEAD_ID for event in received)
        turn = await session.next_turn()
        assert turn is not None
        assert [event async for event in turn][-1] == received[-1]
        assert isinstance(received[-1], RunFinished)
        remove()
        before = len(received)
    assert len(received) == before
    assert not any(isinstance(event, SessionEnded) for event in received)


async def test_a_subscriber_that_raises_is_removed_and_the_turn_continues(tmp_path: Path) -> None:
    calls = 0
    others: list[Event] = []

    def broken(event: Event) -> None:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError("the watcher's own bug")

    model = ScriptedModel([ToolUseBlock(id="c", name="Bash", input={"command": "echo hi"}), "done"])
    async with shoal.Session(Options(cwd=tmp_path, model=model, mode="bypassPermissions")) as session:
        session.subscribe(broken)
        session.subscribe(others.append)
        events = [event async for event in session.run("go")]
    assert calls == 1
    assert isinstance(events[-1], RunFinished)
    assert events[-1].text == "done"
    assert any(isinstance(event, ToolFinished) for event in others)
    assert any(isinstance(event, NoteAdded) and "own bug" in event.text for event in others)


async def test_a_user_stops_a_task_by_id_and_gets_an_error_for_an_unknown_id(tmp_path: Path) -> None:
    async with shoal.Session(build_background_options(tmp_path)) as session:
        async for _ in session.run("go"):
            pass
        (one,) = session.supervisor.list_agents()
        assert await session.stop_task(one.agent) == "do one"
        with pytest.raises(AgentRequestRefused, match="is not running: it was stopped"):
            await session.stop_task(one.agent)
        with pytest.raises(AgentRequestRefused, match="There is no agent or task 'bash_9'"):
            await session.stop_task("bash_9")


async def test_user_input_reaches_an_agent_marked_as_the_users(tmp_path: Path) -> None:
    received: list[Event] = []
    model = write_script(
        tmp_path,
        {"match": "go", "tools": [call_agent("one")]},
        {"match": "job one", "text": "one reports"},
        {"match": "works in the background", "text": "started"},
        {"match": "task-notification", "text": "woken", "repeat": True},
        {"match": "look again", "text": "I looked again"},
    )
    async with shoal.Session(Options(cwd=tmp_path, model=model)) as session:
        session.subscribe(received.append)
        async for _ in session.run("go"):
            pass
        await session.supervisor.wait_until_idle()
        (one,) = session.supervisor.list_agents()
        assert (await session.send(one.agent, "look again")).how == "resumed"
        await session.supervisor.wait_until_idle()
    agent_messages = [each for each in received if isinstance(each, MessageAdded) and each.agent == one.agent]
    assert [each.message.text for each in agent_messages if each.by == "person"] == ["look again"]
    assert agent_messages[-1].message.text == "I looked again"
