"""Sessions, turns, handles and teams outside their lifetime or event loop: each use is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.testing import make_tool_call

WORKER = shoal.Agent("worker", prompt="Work.")
OTHER_LOOP = "belongs to another event loop"


@shoal.workflow
async def greet(flow: shoal.Workflow) -> str:
    return await flow.agent(WORKER, "go")


Call = Callable[[shoal.Session[Any]], Any]
CALLS: dict[str, Call] = {
    "run": lambda session: session.run("go"),
    "steer": lambda session: session.steer("go"),
    "subscribe": lambda session: session.subscribe(print),
    "send": lambda session: session.send("lead", "go"),
    "spawn": lambda session: session.spawn(WORKER, "go"),
    "map": lambda session: session.map(WORKER, ["go"]),
    "compact": lambda session: session.compact(),
    "set_model": lambda session: session.set_model(None),
    "set_mode": lambda session: session.set_mode("plan"),
    "stop_agents": lambda session: session.stop_agents(),
    "stop_all": lambda session: session.stop_all(),
    "stop_task": lambda session: session.stop_task("worker"),
    "undo": lambda session: session.undo(),
    "next_turn": lambda session: session.next_turn(),
    "wait_for_mcp_servers": lambda session: session.wait_for_mcp_servers(),
    "workflow": greet.run,
}


def open_session(cwd: Path, **options: Any) -> shoal.Session[None]:
    return shoal.open(cwd=cwd, model=shoal.ScriptedModel(lambda _: "done"), **options)


async def call_in_other_loop(call: Callable[[], Any]) -> str:
    """Return the error of a call in the event loop of another thread."""

    with pytest.raises(RuntimeError) as failure:
        await asyncio.to_thread(lambda: asyncio.run(make_call(call)))
    return str(failure.value)


async def make_call(call: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        returned = call()
        if hasattr(returned, "__await__"):
            await returned


async def expect_closed(call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match="is closed"):
        await make_call(call)


@pytest.mark.spec("API-07")
async def test_a_session_is_refused_in_another_event_loop_and_continues_in_its_own(tmp_path: Path) -> None:
    async with asyncio.timeout(60), open_session(tmp_path) as session:
        for name, call in CALLS.items():
            assert OTHER_LOOP in await call_in_other_loop(lambda call=call: call(session)), name
        assert OTHER_LOOP in await call_in_other_loop(session.interrupt)
        handle = await session.spawn(WORKER, "go")
        for call_handle in (
            handle.wait,
            handle.stop,
            lambda: handle.send("more"),
            lambda: anext(handle.events()),
        ):
            assert OTHER_LOOP in await call_in_other_loop(call_handle)
        turn = session.run("go")
        for call_turn in (turn.wait, turn.aclose, lambda: anext(turn.text())):
            assert OTHER_LOOP in await call_in_other_loop(call_turn)
        assert (await turn).text == (await handle).text == "done"


@pytest.mark.spec("API-07")
async def test_a_plain_thread_cannot_use_a_session(tmp_path: Path) -> None:
    steered: list[str] = []

    @shoal.tool
    def steer_lead() -> str:
        """Steer the lead from the thread of a plain tool."""
        try:
            session.steer("other way")
        except RuntimeError as error:
            steered.append(str(error))
        return "steered"

    model = shoal.ScriptedModel([make_tool_call("steer_lead"), "done"])
    options: Any = {"tools": [steer_lead], "allowed_tools": [steer_lead]}
    async with asyncio.timeout(60), shoal.open(cwd=tmp_path, model=model, **options) as session:
        assert (await session.run("go")).text == "done"
    assert len(steered) == 1
    assert "run_coroutine_threadsafe" in steered[0]


def test_a_session_is_used_between_two_runs_of_its_loop(tmp_path: Path) -> None:
    events: list[shoal.Event] = []
    with asyncio.Runner() as runner:
        session = open_session(tmp_path)
        runner.run(session.open())
        session.subscribe(events.append)
        session.set_mode("plan")
        runner.run(session.close())
    assert any(isinstance(event, shoal.events.PermissionModeChanged) for event in events)


@pytest.mark.spec("API-07")
async def test_a_closed_session_refuses_every_call_at_once(tmp_path: Path) -> None:
    async with asyncio.timeout(60), open_session(tmp_path) as session:
        handle = await session.spawn(WORKER, "go")
        await handle
    async with asyncio.timeout(60):
        for call in CALLS.values():
            await expect_closed(lambda call=call: call(session))
        await expect_closed(lambda: handle.send("more"))
        assert (await handle).text == (await handle.stop()).text == "done"
        assert await session.interrupt() is False
        await session.close()


@pytest.mark.spec("API-07")
async def test_a_session_in_a_block_is_not_closed_by_hand(tmp_path: Path) -> None:
    async with asyncio.timeout(60), open_session(tmp_path) as session:
        with pytest.raises(RuntimeError, match="Leave the block"):
            await session.close()
        assert (await session.run("go")).text == "done"


@pytest.mark.spec("API-07")
async def test_closing_a_session_that_never_opened_does_nothing(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    await session.close()
    async with asyncio.timeout(60):
        await session.open()
        assert (await session.run("go")).text == "done"
        await session.close()
    broken = open_session(tmp_path, resume="ffffffff")
    with pytest.raises(shoal.errors.SessionNotFound):
        await broken.__aenter__()
    await broken.close()
    with pytest.raises(RuntimeError, match="is closed"):
        broken.run("go")


@pytest.mark.spec("API-08")
async def test_a_team_is_refused_in_another_loop_and_after_its_end(tmp_path: Path) -> None:
    model = shoal.ScriptedModel(lambda _: "done")
    team = shoal.Team(
        "crew", members=[WORKER], lead=shoal.Agent("boss", prompt="Lead."), cwd=tmp_path, model=model
    )
    calls: dict[str, Callable[[], Any]] = {
        "add_task": lambda: team.add_task("Write"),
        "list_tasks": team.list_tasks,
        "start": team.start,
        "send": lambda: team.send("worker", "go"),
        "run": lambda: team.run("go"),
        "events": lambda: anext(team.events()),
        "finished": team.finished,
        "delete": team.delete,
    }
    async with asyncio.timeout(60):
        async with team:
            for name, call in calls.items():
                assert OTHER_LOOP in await call_in_other_loop(call), name
            with pytest.raises(RuntimeError, match="Leave the block"):
                await team.close()
            assert (await team.finished()).ok
        for call in calls.values():
            await expect_closed(call)
        await team.close()


@pytest.mark.spec("API-08")
async def test_a_team_without_a_block_is_closed_once_or_twice(tmp_path: Path) -> None:
    model = shoal.ScriptedModel(lambda _: "done")
    async with asyncio.timeout(60):
        team = await shoal.Team("crew", members=[WORKER], cwd=tmp_path, model=model).open()
        await team.add_task("Write", owner="worker")
        await team.close()
        await team.close()
        with pytest.raises(RuntimeError, match=r"The team is closed.*shoal.Team.resume\('crew'\)"):
            await team.finished()
