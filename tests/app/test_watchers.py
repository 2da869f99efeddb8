"""Those who look on at a session from inside its process: every event, in order, and no harm done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.errors import AgentRefused
from shoal.core.events import AgentEnded, Event, Finished, MessageAdded, Noted, SessionEnded, ToolFinished
from shoal.core.ids import LEAD
from shoal.core.messages import ToolUse
from shoal.models.scripted import ScriptedModel


def mind(directory: Path, *steps: dict[str, Any]) -> ScriptedModel:
    script = directory / "script.json"
    script.write_text(json.dumps(steps))
    return ScriptedModel.from_file(script)


def agent(job: str) -> dict[str, Any]:
    given = {"description": f"do {job}", "prompt": f"job {job}", "run_in_background": True}
    return {"name": "Agent", "input": given}


def background(directory: Path) -> shoal.Options:
    model = mind(
        directory,
        {"match": "go", "tools": [agent("one")]},
        {"match": "job one", "tools": [{"name": "Bash", "input": {"command": "sleep 600"}}]},
        {"match": "works in the background", "text": "started"},
        {"match": "task-notification", "text": "woken"},
    )
    return shoal.Options(cwd=directory, model=model, mode="bypassPermissions")


async def test_a_watcher_hears_every_event_in_turns_and_between_them(tmp_path: Path) -> None:
    heard: list[Event] = []
    async with shoal.Session(background(tmp_path)) as session:
        remove = session.watch(heard.append)
        in_turn = [event async for event in session.run("go")]
        assert heard[: len(in_turn)] == in_turn
        await session.stop_agents()
        assert any(isinstance(event, AgentEnded) and event.agent != LEAD for event in heard)
        turn = await session.next_turn()
        assert turn is not None
        assert [event async for event in turn][-1] == heard[-1]
        assert isinstance(heard[-1], Finished)
        remove()
        before = len(heard)
    assert len(heard) == before
    assert not any(isinstance(event, SessionEnded) for event in heard)


async def test_a_watcher_that_raises_is_not_called_again_and_the_turn_goes_on(tmp_path: Path) -> None:
    calls = 0
    others: list[Event] = []

    def broken(event: Event) -> None:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError("the watcher's own bug")

    model = ScriptedModel([ToolUse(id="c", name="Bash", input={"command": "echo hi"}), "done"])
    async with shoal.Session(shoal.Options(cwd=tmp_path, model=model, mode="bypassPermissions")) as session:
        session.watch(broken)
        session.watch(others.append)
        events = [event async for event in session.run("go")]
    assert calls == 1
    assert isinstance(events[-1], Finished)
    assert events[-1].text == "done"
    assert any(isinstance(event, ToolFinished) for event in others)
    assert any(isinstance(event, Noted) and "own bug" in event.text for event in others)


async def test_a_person_ends_a_task_by_its_id_and_hears_where_there_is_none(tmp_path: Path) -> None:
    async with shoal.Session(background(tmp_path)) as session:
        async for _ in session.run("go"):
            pass
        (one,) = session.parts.crew.agents()
        assert await session.stop_task(one.agent) == "do one"
        with pytest.raises(AgentRefused, match="is not running: it was stopped"):
            await session.stop_task(one.agent)
        with pytest.raises(AgentRefused, match="There is no agent or task 'bash_9'"):
            await session.stop_task("bash_9")


async def test_a_persons_words_reach_an_agent_as_the_persons(tmp_path: Path) -> None:
    heard: list[Event] = []
    model = mind(
        tmp_path,
        {"match": "go", "tools": [agent("one")]},
        {"match": "job one", "text": "one reports"},
        {"match": "works in the background", "text": "started"},
        {"match": "task-notification", "text": "woken", "repeat": True},
        {"match": "look again", "text": "I looked again"},
    )
    async with shoal.Session(shoal.Options(cwd=tmp_path, model=model)) as session:
        session.watch(heard.append)
        async for _ in session.run("go"):
            pass
        await session.parts.crew.quiet()
        (one,) = session.parts.crew.agents()
        assert (await session.send(one.agent, "look again")).how == "resumed"
        await session.parts.crew.quiet()
    said = [each for each in heard if isinstance(each, MessageAdded) and each.agent == one.agent]
    assert [each.message.text for each in said if each.by == "person"] == ["look again"]
    assert said[-1].message.text == "I looked again"
