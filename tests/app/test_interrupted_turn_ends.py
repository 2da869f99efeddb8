"""Turns that are interrupted while nobody reads their events."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import ToolGate
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock, ToolUseBlock
from shoal.core.events import Event, MessageAdded, NotificationDelivered, RunFinished, TurnEnded
from shoal.core.ids import LEAD_ID
from shoal.models.scripted_model import ScriptedModel

FULL = 2_000
"""Events, more than a turn tells while its reader does not read."""


def fill_event_buffer(session: shoal.Session) -> None:
    for number in range(FULL):
        session.note(f"note {number}")


async def test_a_finished_turn_reports_its_end_although_it_is_interrupted(
    tmp_path: Path,
) -> None:
    saying = asyncio.Event()

    async def stop(_: Any) -> None:
        fill_event_buffer(session)

    def look(event: Event) -> None:
        if isinstance(event, TurnEnded):
            saying.set()

    options: dict[str, Any] = {"cwd": tmp_path, "model": ScriptedModel(["answer"]), "hooks": {"Stop": [stop]}}
    async with asyncio.timeout(30), shoal.open(**options) as session:
        session.subscribe(look)
        turn = session.run("go")
        await saying.wait()
        await session.interrupt()
        *_, last = [event async for event in turn]
    assert isinstance(last, RunFinished)
    assert (last.reason, last.text) == ("done", "answer")


async def test_input_in_the_conversation_counts_as_delivered_although_the_turn_is_interrupted(
    tmp_path: Path,
) -> None:
    telling = asyncio.Event()
    notified: list[str] = []

    def look(event: Event) -> None:
        if isinstance(event, NotificationDelivered):
            notified.append(event.completion)
        if isinstance(event, MessageAdded) and event.message.text == "news":
            telling.set()
            fill_event_buffer(session)

    async with asyncio.timeout(30), shoal.open(cwd=tmp_path, model=ScriptedModel(["answer"])) as session:
        session.subscribe(look)
        news = (TextBlock(text="news"),)
        session.runtime.inbox.queue.put(
            InboxItem(
                id="n1", to=LEAD_ID, content=news, by="runtime", mode="task-notification", priority="later"
            )
        )
        turn = session.run("go")
        await telling.wait()
        await session.interrupt()
        *_, last = [event async for event in turn]
        assert isinstance(last, RunFinished)
        assert last.reason == "interrupted"
        assert "news" in str(session.agent.conversation.messages)
        assert notified == ["n1"]
        assert not session.runtime.inbox.queue.count_waking_items(LEAD_ID)


async def test_a_conversation_with_a_running_turn_cannot_be_compacted_or_undone(
    tmp_path: Path,
) -> None:
    """Otherwise a pending call would lose its result."""
    gate = ToolGate()
    model = ScriptedModel([ToolUseBlock(id="g", name="Gate", input={}), "through"])
    async with shoal.open(cwd=tmp_path, model=model, tools=[gate.tool], skip_permissions=True) as session:
        turn = session.run("go")
        await gate.wait_until_reached()
        with pytest.raises(RuntimeError, match="A turn is already running"):
            await session.compact()
        with pytest.raises(RuntimeError, match="A turn is already running"):
            await session.undo(1, conversation=True)
        gate.is_open.set()
        *_, last = [event async for event in turn]
    assert isinstance(last, RunFinished)
    assert last.text == "through"
