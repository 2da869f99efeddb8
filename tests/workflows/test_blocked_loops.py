"""Workflow programs in an endless loop: the watchdog interrupts them, and nothing else."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest

import shoal
from shoal.app.workflows import loop_watchdog
from shoal.core.errors import WorkflowError
from shoal.core.events import WorkflowEnded

agent = shoal.Agent("agent", prompt="You answer.")
INTERRUPTED = (
    r"^The workflow .* was interrupted: it ran for .* s without awaiting anything \(.*test_blocked_loops.py:"
)


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watchdog, "BLOCKED_SECONDS", 0.4)
    monkeypatch.setattr(loop_watchdog, "CHECK_SECONDS", 0.1)


def open_session(cwd: Path, **options: Any) -> shoal.Session[None]:
    return shoal.open(cwd=cwd, model=shoal.ScriptedModel(lambda request: "done"), **options)


def spin() -> None:
    while True:
        pass


def spin_and_catch() -> None:
    while True:
        try:
            sum(range(100))
        except Exception:  # noqa: BLE001 - what a user's program does
            continue


def poll() -> None:
    while not Path("/nowhere/at/all").exists():
        time.sleep(0.01)


def iterate_forever() -> Iterator[str]:
    while True:
        pass
    yield ""


async def spin_in_task() -> None:
    spin()


async def call(function: Callable[[], None]) -> None:
    function()


PROGRAMS: dict[str, Callable[[shoal.Workflow], Any]] = {
    "loop": lambda flow: call(spin),
    "loop that catches exceptions": lambda flow: call(spin_and_catch),
    "loop that sleeps": lambda flow: call(poll),
    "generator of prompts": lambda flow: flow.map(agent, iterate_forever()),
    "stage": lambda flow: flow.pipeline(["a", "b"], lambda item: spin_in_task()),
    "branch": lambda flow: asyncio.gather(flow.sleep(1000), spin_in_task()),
}


@pytest.mark.spec("WFL-05")
@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_program_that_blocks_the_event_loop_ends_with_an_error(tmp_path: Path, program: str) -> None:
    ended: list[WorkflowEnded] = []

    @shoal.workflow
    async def block(flow: shoal.Workflow) -> str:
        await flow.agent(agent, "first")
        await PROGRAMS[program](flow)
        return "unreachable"

    async with open_session(tmp_path) as session:
        session.subscribe(lambda event: ended.append(event) if isinstance(event, WorkflowEnded) else None)
        with pytest.raises(WorkflowError, match=INTERRUPTED):
            await block.run(session)
        # The session works, and the finished step is kept.
        assert (await session.run("next")).text == "done"
    assert ended[0].status == "failed"
    assert "WorkflowError: The workflow block-" in ended[0].detail


@pytest.mark.spec("WFL-05")
async def test_a_task_that_nobody_awaits_fails_its_workflow(tmp_path: Path) -> None:
    tasks = []

    @shoal.workflow
    async def block(flow: shoal.Workflow) -> None:
        tasks.append(asyncio.create_task(spin_in_task()))
        await asyncio.Event().wait()

    async with open_session(tmp_path) as session:
        with pytest.raises(WorkflowError, match=INTERRUPTED):
            await block.run(session)
    with pytest.raises(loop_watchdog.LoopBlocked):
        await tasks[0]


@pytest.mark.spec("WFL-05")
async def test_a_program_that_catches_the_interruption_fails_too(tmp_path: Path) -> None:
    @shoal.workflow
    async def block(flow: shoal.Workflow) -> str:
        with suppress(BaseException):
            spin()
        return "returned"

    @shoal.workflow
    async def block_and_continue(flow: shoal.Workflow) -> str:
        with suppress(BaseException):
            spin()
        return await flow.agent(agent, "second")

    async with open_session(tmp_path) as session:
        for workflow in (block, block_and_continue):
            with pytest.raises(WorkflowError, match=INTERRUPTED):
                await workflow.run(session)


@pytest.mark.spec("WFL-05")
async def test_an_outer_workflow_gets_the_error_of_a_blocked_inner_one(tmp_path: Path) -> None:
    @shoal.workflow
    async def inner(flow: shoal.Workflow) -> None:
        spin()

    caught: list[str] = []
    async with open_session(tmp_path) as session:

        @shoal.workflow
        async def outer(flow: shoal.Workflow) -> str:
            try:
                await inner.run(session)
            except WorkflowError as error:
                caught.append(str(error))
            return await flow.agent(agent, "after")

        assert await outer.run(session) == "done"
    assert "The workflow inner-" in caught[0]


@pytest.mark.needs("uvloop")
def test_a_program_on_another_event_loop_is_interrupted(tmp_path: Path) -> None:
    import uvloop

    @shoal.workflow
    async def block(flow: shoal.Workflow) -> None:
        spin()

    async def run() -> None:
        async with open_session(tmp_path) as session:
            with pytest.raises(WorkflowError, match=INTERRUPTED):
                await block.run(session)

    uvloop.run(run())


async def test_other_code_that_blocks_the_loop_is_not_interrupted(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    @shoal.workflow
    async def wait(flow: shoal.Workflow) -> str:
        await may_end.wait()
        return await flow.agent(agent, "after")

    async def block_for_a_second() -> None:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass
        may_end.set()

    async with open_session(tmp_path) as session:
        other = asyncio.create_task(block_for_a_second())
        assert await wait.run(session) == "done"
        await other


async def test_a_program_in_a_debugger_is_not_interrupted(tmp_path: Path) -> None:
    def trace(frame: Any, event: str, argument: Any) -> Any:
        return trace

    @shoal.workflow
    async def debug(flow: shoal.Workflow) -> str:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            wait_for_a_second()
        finally:
            sys.settrace(before)
        return "debugged"

    def wait_for_a_second() -> None:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass

    async with open_session(tmp_path) as session:
        assert await debug.run(session) == "debugged"


async def test_a_program_that_awaits_often_is_not_interrupted(tmp_path: Path) -> None:
    @shoal.workflow
    async def compute(flow: shoal.Workflow) -> int:
        end, rounds = time.monotonic() + 1.0, 0
        while time.monotonic() < end:
            sum(range(1000))
            await asyncio.sleep(0)
            rounds += 1
        return await asyncio.to_thread(get_ident)

    async with open_session(tmp_path) as session:
        assert await compute.run(session) != get_ident()


@pytest.mark.spec("WFL-05")
@pytest.mark.parametrize("catches", [False, True])
async def test_a_program_that_awaits_for_ever_without_a_step_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catches: bool
) -> None:
    monkeypatch.setattr(loop_watchdog, "MAX_SUSPENSIONS", 500)
    requests: list[shoal.ModelRequest] = []

    @shoal.workflow
    async def spin_politely(flow: shoal.Workflow) -> str:
        await flow.agent(agent, "first")
        with suppress(asyncio.CancelledError if catches else ZeroDivisionError):
            while True:
                await asyncio.sleep(0)
        return await flow.agent(agent, "second")

    def answer(request: shoal.ModelRequest) -> str:
        requests.append(request)
        return "done"

    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(answer)) as session:
        with pytest.raises(WorkflowError, match="it awaited 500 times without running a step"):
            await spin_politely.run(session)
        assert len(requests) == 1
        assert (await session.run("next")).text == "done"


async def test_a_program_may_await_while_its_step_runs_and_between_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watchdog, "MAX_SUSPENSIONS", 200)

    @shoal.workflow
    async def wait_politely(flow: shoal.Workflow) -> int:
        step = asyncio.create_task(flow.sleep(0.3))
        rounds = 0
        while not step.done() or rounds < 1_000:
            await asyncio.sleep(0)
            if step.done() and rounds % 100 == 0:
                flow.phase(f"round {rounds}")
            rounds += 1
        return rounds

    async with open_session(tmp_path) as session:
        assert await wait_politely.run(session) >= 1_000


@pytest.mark.spec("WFL-05")
async def test_a_file_that_blocks_the_event_loop_while_it_is_loaded_gets_an_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "workflows").mkdir(parents=True)
    (home / "workflows" / "spin.py").write_text(
        "import shoal\n\n@shoal.workflow\nasync def spin(flow: shoal.Workflow) -> None: ...\n\n"
        "while True:\n    pass\n"
    )
    async with open_session(tmp_path, home=home) as session:
        result = await session.run(session.parse_slash_command("/spin")).wait()
        assert "The workflow spin was interrupted" in result.detail
        assert re.search(r"spin\.py:[67] in <module>", result.detail)
        assert (await session.run("next")).text == "done"
