"""Leaving a turn or a session early: nothing hangs, and exceptions propagate unchanged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import run_turn

import shoal
from agent_scripts import call_tool
from shoal.core.conversation.messages import Message, ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import RunFinished, ToolStarted
from shoal.models.scripted_model import ScriptedModel
from team_scripts import spawn_member

LONG = "word " * 50_000
"""Said in more pieces than a channel holds."""
SLEEP = ToolUseBlock(id="c1", name="Bash", input={"command": "sleep 60"})


async def test_a_session_closes_while_nobody_reads_its_long_turn(tmp_path: Path) -> None:
    async def leave_early() -> None:
        async with shoal.open(cwd=tmp_path, model=ScriptedModel([LONG])) as session:
            async for _ in session.run("go"):
                break
            assert session.is_busy

    leaving = asyncio.ensure_future(leave_early())
    done, _ = await asyncio.wait([leaving], timeout=10)
    assert done
    await leaving


async def test_an_unread_turn_can_be_interrupted_and_another_one_run(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([LONG, "second"])) as session:
        async for _ in session.run("go"):
            break
        interrupting = asyncio.ensure_future(session.interrupt())
        done, _ = await asyncio.wait([interrupting], timeout=10)
        assert done
        last = (await run_turn(session))[-1]
    assert isinstance(last, RunFinished)
    assert last.text == "second"


async def test_a_turn_interrupted_before_its_first_step_ends_as_interrupted(tmp_path: Path) -> None:
    replies = [SLEEP, "second"]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(replies), skip_permissions=True) as session:
        turn = session.run("go")
        await session.interrupt()
        async with asyncio.timeout(10):
            events = [event async for event in turn]
        assert isinstance(events[-1], RunFinished)
        assert events[-1].reason == "interrupted"
        assert (await run_turn(session))[-1].reason == "done"  # type: ignore[attr-defined]


async def test_a_turn_closed_early_leaves_no_call_without_a_result(tmp_path: Path) -> None:
    asked: list[Message] = []

    def choose_reply(request: ModelRequest) -> ToolUseBlock | str:
        asked[:] = request.messages
        return SLEEP if len(asked) == 1 else "second"

    async with shoal.open(cwd=tmp_path, model=ScriptedModel(choose_reply), skip_permissions=True) as session:
        turn = session.run("go")
        async for event in turn:
            if isinstance(event, ToolStarted):
                break
        await turn.aclose()
        assert not session.is_busy
        with pytest.raises(RuntimeError, match="The turn was closed, so it has no result"):
            await turn.wait()
        await run_turn(session)
    results = [block.tool_use_id for block in asked[2].content if hasattr(block, "tool_use_id")]
    assert results == ["c1"]


async def test_an_exception_raised_inside_a_session_propagates_unchanged(tmp_path: Path) -> None:
    async def look_for() -> None:
        async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"])) as session:
            async for _ in session.run("go"):
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await look_for()


async def test_a_bug_inside_a_turn_propagates_unchanged(tmp_path: Path) -> None:
    def choose_reply(_: ModelRequest) -> str:
        raise ZeroDivisionError("in the mind")

    with pytest.raises(ZeroDivisionError, match="in the mind"):
        async with shoal.open(cwd=tmp_path, model=ScriptedModel(choose_reply)) as session:
            await run_turn(session)


@pytest.mark.parametrize("working", ["member", "sub-agent", "shell"])
async def test_a_session_closes_after_a_bug_while_others_work(tmp_path: Path, working: str) -> None:
    wait = call_tool("Bash", command="sleep 100", timeout=120_000)
    starts = {
        "member": [call_tool("TeamCreate", team_name="crew"), spawn_member("ann")],
        "sub-agent": [
            call_tool(
                "Agent",
                description="wait",
                prompt="wait",
                subagent_type="general-purpose",
                run_in_background=True,
            )
        ],
        "shell": [call_tool("Bash", "shell", command="sleep 100", run_in_background=True)],
    }

    def fail(_: ModelRequest) -> str:
        raise LookupError("a bug")

    def answer(request: ModelRequest) -> Any:
        is_lead = request.messages[0].text == "lead"
        spoken = sum(message.role == "assistant" for message in request.messages)
        line = [*starts[working], fail][spoken] if is_lead else wait
        return line(request) if callable(line) else line

    with pytest.raises(LookupError, match="a bug"):
        async with (
            asyncio.timeout(20),
            shoal.open(cwd=tmp_path, model=ScriptedModel(answer), skip_permissions=True) as session,
        ):
            await run_turn(session, "lead")


async def test_an_interrupted_turn_reports_the_number_of_model_replies(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([SLEEP]), skip_permissions=True) as session:
        turn = session.run("go")
        async for event in turn:
            if isinstance(event, ToolStarted):
                break
        await session.interrupt()
        last = [event async for event in turn][-1]
    assert isinstance(last, RunFinished)
    assert (last.reason, last.requests) == ("interrupted", 1)
