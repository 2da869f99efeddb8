"""Functions of a program that exit, stop an iteration or are canceled: none of them ends the session."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.testing import make_tool_call


def exit_program() -> None:
    sys.exit(3)


def stop_iteration() -> None:
    next(iter(()))


async def wait_for_canceled_task() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


async def exit_async() -> None:
    sys.exit(3)


FUNCTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "exit in a thread": (exit_program, "it called sys.exit(3)"),
    "stop iteration in a thread": (stop_iteration, "it raised StopIteration"),
    "exit in the loop": (exit_async, "it called sys.exit(3)"),
    "canceled task": (wait_for_canceled_task, "it waited for a task that was canceled"),
}


async def run_with(tmp_path: Path, **options: Any) -> tuple[list[str], shoal.Result[None]]:
    """Return the results of tool calls, and the result of the second turn."""
    outputs: list[str] = []

    def reply(request: shoal.ModelRequest) -> Any:
        is_first = sum(message.role == "assistant" for message in request.messages) == 0
        return (
            make_tool_call(
                "work" if "tools" in options else "Bash",
                **({} if "tools" in options else {"command": "touch made"}),
            )
            if is_first
            else "done"
        )

    def on_event(event: shoal.Event) -> None:
        if isinstance(event, shoal.events.ToolOutputReturned):
            outputs.append(str(event.result.content))

    async with (
        asyncio.timeout(60),
        shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(reply), **options) as session,
    ):
        session.subscribe(on_event)
        await session.run("go")
        return outputs, await session.run("again")


@pytest.mark.parametrize("name", FUNCTIONS)
async def test_a_tool_that_exits_is_a_failed_call(tmp_path: Path, name: str) -> None:
    function, problem = FUNCTIONS[name]
    tool = shoal.tool(name="work", description="Work.")(function)
    outputs, result = await run_with(tmp_path, tools=[tool], allowed_tools=[tool])
    assert result.text == "done"
    assert len(outputs) == 1
    assert outputs[0].startswith("work failed: ")
    assert problem in outputs[0]


@pytest.mark.parametrize("name", FUNCTIONS)
async def test_a_hook_that_exits_blocks_the_call(tmp_path: Path, name: str) -> None:
    function, problem = FUNCTIONS[name]
    if asyncio.iscoroutinefunction(function):

        async def hook(_: Any) -> None:
            await function()
    else:

        def hook(_: Any) -> None:  # type: ignore[misc]
            function()

    outputs, result = await run_with(tmp_path, hooks={"PreToolUse": [hook]}, allowed_tools=["Bash"])
    assert result.text == "done"
    assert problem in outputs[0]
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("API-11")
@pytest.mark.parametrize("name", ["exit in a thread", "exit in the loop", "canceled task"])
async def test_a_question_whose_function_exits_is_denied(tmp_path: Path, name: str) -> None:
    function, problem = FUNCTIONS[name]
    outputs, result = await run_with(tmp_path, on_question=lambda _: function())
    assert result.text == "done"
    assert problem in outputs[0]
    assert not (tmp_path / "made").exists()


async def test_a_canceled_turn_still_cancels_its_tool(tmp_path: Path) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @shoal.tool
    async def work() -> None:
        """Work."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    model = shoal.ScriptedModel([make_tool_call("work"), "never"])
    options: Any = {"tools": [work], "allowed_tools": [work]}
    async with asyncio.timeout(60), shoal.open(cwd=tmp_path, model=model, **options) as session:
        turn = session.run("go")
        await started.wait()
        assert await session.interrupt()
        assert (await turn.wait()).reason == "interrupted"
    assert ended.is_set()
