"""Leaving a turn or a session before its end: nothing hangs, and what was raised comes out as it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import shoal
from shoal.core.events import Event, Finished, ToolStarted
from shoal.core.messages import Message, ToolUse
from shoal.core.requests import Request
from shoal.models.scripted import ScriptedModel

LONG = "word " * 50_000
"""Said in more pieces than a channel holds."""
SLEEP = ToolUse(id="c1", name="Bash", input={"command": "sleep 60"})


async def turn_of(session: shoal.Session, prompt: str = "go") -> list[Event]:
    return [event async for event in session.run(prompt)]


async def test_a_session_is_left_while_nobody_reads_its_long_turn(tmp_path: Path) -> None:
    async def leave_early() -> None:
        async with shoal.open(cwd=tmp_path, model=ScriptedModel([LONG])) as session:
            async for _ in session.run("go"):
                break
            assert session.busy

    leaving = asyncio.ensure_future(leave_early())
    done, _ = await asyncio.wait([leaving], timeout=10)
    assert done
    await leaving


async def test_a_turn_nobody_reads_can_be_interrupted_and_another_taken(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([LONG, "second"])) as session:
        async for _ in session.run("go"):
            break
        interrupting = asyncio.ensure_future(session.interrupt())
        done, _ = await asyncio.wait([interrupting], timeout=10)
        assert done
        last = (await turn_of(session))[-1]
    assert isinstance(last, Finished)
    assert last.text == "second"


async def test_a_turn_interrupted_before_its_first_step_ends_as_interrupted(tmp_path: Path) -> None:
    mind = [SLEEP, "second"]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind), skip_permissions=True) as session:
        turn = session.run("go")
        await session.interrupt()
        async with asyncio.timeout(10):
            events = [event async for event in turn]
        assert isinstance(events[-1], Finished)
        assert events[-1].reason == "interrupted"
        assert (await turn_of(session))[-1].reason == "done"  # type: ignore[attr-defined]


async def test_a_turn_closed_early_leaves_no_call_without_a_result(tmp_path: Path) -> None:
    asked: list[Message] = []

    def mind(request: Request) -> ToolUse | str:
        asked[:] = request.messages
        return SLEEP if len(asked) == 1 else "second"

    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind), skip_permissions=True) as session:
        turn = session.run("go")
        async for event in turn:
            if isinstance(event, ToolStarted):
                break
        await turn.aclose()
        assert not session.busy
        await turn_of(session)
    results = [block.tool_use_id for block in asked[2].content if hasattr(block, "tool_use_id")]
    assert results == ["c1"]


async def test_what_is_raised_inside_a_session_comes_out_as_it_is(tmp_path: Path) -> None:
    async def look_for() -> None:
        async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"])) as session:
            async for _ in session.run("go"):
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await look_for()


async def test_a_bug_inside_a_turn_comes_out_as_it_is(tmp_path: Path) -> None:
    def mind(_: Request) -> str:
        raise ZeroDivisionError("in the mind")

    with pytest.raises(ZeroDivisionError, match="in the mind"):
        async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind)) as session:
            await turn_of(session)


async def test_an_interrupted_turn_tells_how_often_the_model_answered(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([SLEEP]), skip_permissions=True) as session:
        turn = session.run("go")
        async for event in turn:
            if isinstance(event, ToolStarted):
                break
        await session.interrupt()
        last = [event async for event in turn][-1]
    assert isinstance(last, Finished)
    assert (last.reason, last.requests) == ("interrupted", 1)
