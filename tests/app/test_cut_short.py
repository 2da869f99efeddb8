"""Turns that are cut short at the moments when nobody reads what they tell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate
from shoal.core.arrivals import Item
from shoal.core.events import Event, Finished, MessageAdded, Notified, TurnEnded
from shoal.core.ids import LEAD
from shoal.core.messages import Text, ToolUse
from shoal.models.scripted import ScriptedModel

FULL = 2_000
"""Events, more than a turn tells while its reader does not read."""


def fill(session: shoal.Session) -> None:
    for number in range(FULL):
        session.note(f"note {number}")


async def test_a_turn_that_is_over_and_only_has_to_say_so_says_it_though_it_is_interrupted(
    tmp_path: Path,
) -> None:
    saying = asyncio.Event()

    async def stop(_: Any) -> None:
        fill(session)

    def look(event: Event) -> None:
        if isinstance(event, TurnEnded):
            saying.set()

    options: dict[str, Any] = {"cwd": tmp_path, "model": ScriptedModel(["answer"]), "hooks": {"Stop": [stop]}}
    async with asyncio.timeout(30), shoal.open(**options) as session:
        session.watch(look)
        turn = session.run("go")
        await saying.wait()
        await session.interrupt()
        *_, last = [event async for event in turn]
    assert isinstance(last, Finished)
    assert (last.reason, last.text) == ("done", "answer")


async def test_what_is_in_the_conversation_was_heard_though_its_turn_is_interrupted_right_then(
    tmp_path: Path,
) -> None:
    telling = asyncio.Event()
    notified: list[str] = []

    def look(event: Event) -> None:
        if isinstance(event, Notified):
            notified.append(event.completion)
        if isinstance(event, MessageAdded) and event.message.text == "news":
            telling.set()
            fill(session)

    async with asyncio.timeout(30), shoal.open(cwd=tmp_path, model=ScriptedModel(["answer"])) as session:
        session.watch(look)
        news = (Text(text="news"),)
        session.parts.queue.put(
            Item(id="n1", to=LEAD, content=news, by="runtime", mode="task-notification", priority="later")
        )
        turn = session.run("go")
        await telling.wait()
        await session.interrupt()
        *_, last = [event async for event in turn]
        assert isinstance(last, Finished)
        assert last.reason == "interrupted"
        assert "news" in str(session.agent.conversation.messages)
        assert notified == ["n1"]
        assert not session.parts.queue.size(LEAD)


async def test_a_conversation_in_which_a_turn_runs_is_neither_summarised_nor_taken_back(
    tmp_path: Path,
) -> None:
    """A call that waits for its result would have been left without it."""
    gate = Gate()
    model = ScriptedModel([ToolUse(id="g", name="Gate", input={}), "through"])
    async with shoal.open(cwd=tmp_path, model=model, tools=[gate.tool], skip_permissions=True) as session:
        turn = session.run("go")
        await gate.wait()
        with pytest.raises(RuntimeError, match="a turn is running"):
            await session.compact()
        with pytest.raises(RuntimeError, match="a turn is running"):
            await session.undo(1, conversation=True)
        gate.opened.set()
        *_, last = [event async for event in turn]
    assert isinstance(last, Finished)
    assert last.text == "through"
