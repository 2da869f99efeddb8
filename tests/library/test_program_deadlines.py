"""The deadline of a session ends everything that a program started, and nothing starts after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import AgentRequestRefused, WorkflowStopped
from shoal.core.events import AgentStarted, Event, ModelRequestSent, WorkflowEnded, WorkflowStarted
from shoal.testing import FakeClock

editor = shoal.Agent("editor", prompt="You edit.", tools=[])
PASSED = "the deadline of 60 s has passed"


class HangingModel(shoal.ScriptedModel):
    """Answers prompts except those that start with `hang`."""

    def __init__(self) -> None:
        super().__init__(lambda request: f"did {request.messages[0].text}")
        self.hanging = asyncio.Event()

    async def generate_reply(self, request: ModelRequest, on_delta: Any) -> Any:
        if any("hang" in message.text for message in request.messages):
            self.hanging.set()
            await asyncio.Event().wait()
        return await super().generate_reply(request, on_delta)


class TimedSession:
    def __init__(self, cwd: Path, **options: Any) -> None:
        self.clock, self.model = FakeClock(), HangingModel()
        self.events: list[Event] = []
        self.session = shoal.open(
            cwd=cwd, model=self.model, clock=self.clock, **(options or {"deadline": 60})
        )

    async def __aenter__(self) -> TimedSession:
        await self.session.__aenter__()
        self.session.subscribe(self.events.append)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.session.__aexit__(*exc)

    async def let_deadline_pass(self) -> None:
        await self.clock.advance(61)
        self.events.clear()

    def assert_nothing_started(self) -> None:
        assert not [
            event
            for event in self.events
            if isinstance(event, AgentStarted | ModelRequestSent | WorkflowStarted)
        ]


@shoal.workflow
async def sleep_long(flow: shoal.Workflow) -> None:
    await flow.sleep(1_000)


@shoal.workflow
async def wait_without_step(flow: shoal.Workflow) -> None:
    await asyncio.Event().wait()


@shoal.workflow
async def hang_in_agent(flow: shoal.Workflow) -> str:
    return await flow.agent(editor, "hang")


@shoal.workflow
async def map_more(flow: shoal.Workflow) -> list[str]:
    return await flow.map(editor, ["a", "hang", *map(str, range(50))], at_once=2)


@shoal.workflow
async def run_shell(flow: shoal.Workflow) -> int:
    return (await flow.shell("echo > pipe; sleep 300")).exit_code


@pytest.mark.spec("WFL-11")
@pytest.mark.parametrize(
    "work", [sleep_long, wait_without_step, hang_in_agent, map_more, run_shell], ids=lambda w: w.name
)
async def test_a_workflow_ends_at_the_deadline(tmp_path: Path, work: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with TimedSession(tmp_path, deadline=60, mode="bypassPermissions") as timed:
        session = timed.session
        started = asyncio.Event()
        session.subscribe(lambda event: started.set() if isinstance(event, WorkflowStarted) else None)
        running = asyncio.create_task(work.run(session))
        async with asyncio.timeout(30):
            await started.wait()
            if work in (hang_in_agent, map_more):
                await timed.model.hanging.wait()
            if work is run_shell:
                # Earlier, the deadline of the start of its process would pass, too.
                await asyncio.to_thread((tmp_path / "pipe").read_text)
            await timed.clock.advance(61)
            with pytest.raises(WorkflowStopped, match=f"was stopped: {PASSED}. Resume it"):
                await running
        (ended,) = (event for event in timed.events if isinstance(event, WorkflowEnded))
        assert (ended.status, ended.detail) == ("stopped", PASSED)
        timed.events.clear()
        with pytest.raises(WorkflowStopped, match=f"was not started: {PASSED}"):
            await map_more.run(session)
        timed.assert_nothing_started()
        assert not session.supervisor.has_running_agents


@pytest.mark.spec("WFL-11")
async def test_a_workflow_that_ignores_its_end_starts_nothing_after_the_deadline(tmp_path: Path) -> None:
    tried: list[Exception] = []

    @shoal.workflow
    async def resist(flow: shoal.Workflow) -> None:
        try:
            await flow.sleep(1_000)
        except asyncio.CancelledError:
            for step in (lambda: flow.agent(editor, "one"), lambda: flow.shell("touch made")):
                try:
                    await step()
                except shoal.ShoalError as error:
                    tried.append(error)

    async with TimedSession(tmp_path, deadline=60, mode="bypassPermissions") as timed:
        running = asyncio.create_task(resist.run(timed.session))
        await timed.clock.wait_for_sleepers(2)
        await timed.let_deadline_pass()
        async with asyncio.timeout(30):
            await asyncio.wait([running])
        timed.assert_nothing_started()
    assert [PASSED in str(error) for error in tried] == [True, True]
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("WFL-11")
async def test_map_ends_at_the_deadline_with_a_result_for_each_prompt(tmp_path: Path) -> None:
    async with TimedSession(tmp_path) as timed:
        running = asyncio.create_task(timed.session.map(editor, ["a", "hang", "b", "c"], at_once=1))
        async with asyncio.timeout(30):
            await timed.model.hanging.wait()
            await timed.let_deadline_pass()
            results = await running
        timed.assert_nothing_started()
    assert [result.reason for result in results] == ["done", "stopped", "refused", "refused"]
    assert all(PASSED in result.detail for result in results[1:])


@pytest.mark.spec("WFL-11")
async def test_agents_that_wait_for_a_place_are_refused_at_the_deadline(tmp_path: Path) -> None:
    async with TimedSession(tmp_path) as timed:
        running = asyncio.create_task(timed.session.map(editor, ["hang"] * 100, at_once=100))
        async with asyncio.timeout(30):
            await timed.model.hanging.wait()
            await timed.let_deadline_pass()
            results = await running
        timed.assert_nothing_started()
    assert {result.reason for result in results} == {"stopped", "refused"}


Refused = Callable[[shoal.Session[Any], shoal.AgentHandle[Any]], Awaitable[Any]]


@pytest.mark.spec("WFL-11")
@pytest.mark.parametrize(
    "start",
    [
        lambda session, handle: session.spawn(editor, "one"),
        lambda session, handle: session.send(handle.id, "more"),
        lambda session, handle: handle.send("more"),
    ],
    ids=["spawn", "session.send", "handle.send"],
)
async def test_an_agent_is_stopped_and_none_is_started_after_the_deadline(
    tmp_path: Path, start: Refused
) -> None:
    async with TimedSession(tmp_path) as timed:
        handle = await timed.session.spawn(editor, "hang")
        async with asyncio.timeout(30):
            await timed.model.hanging.wait()
            await timed.let_deadline_pass()
            result = await handle.wait()
            assert (result.reason, result.detail) == ("stopped", PASSED)
            with pytest.raises(AgentRequestRefused, match=f"was not started: {PASSED}"):
                await start(timed.session, handle)
        timed.assert_nothing_started()


@pytest.mark.spec("WFL-11")
async def test_a_team_ends_at_the_deadline_and_its_report_says_so(tmp_path: Path) -> None:
    clock, model = FakeClock(), HangingModel()
    ana = shoal.Agent("ana", prompt="You hang.", tools=[])
    team = shoal.Team("late", members=[ana], cwd=tmp_path, model=model, clock=clock, deadline=60)
    async with team:
        await team.add_task("hang", owner="ana")
        finished = asyncio.create_task(team.finished())
        async with asyncio.timeout(30):
            await model.hanging.wait()
            await clock.advance(61)
            report = await finished
            assert not report.ok
            assert report.detail == f"#1 hang: The team was stopped: {PASSED}."
            assert (await team.finished()).detail == report.detail
    async with TimedSession(tmp_path) as timed:
        await timed.let_deadline_pass()
    other = shoal.Team(
        "later", members=[ana], cwd=tmp_path, model=model, clock=(late := FakeClock()), deadline=60
    )
    async with other:
        await other.add_task("hang", owner="ana")
        await late.advance(61)
        with pytest.raises(AgentRequestRefused, match=f"The team 'later' was not started: {PASSED}"):
            await other.finished()


@pytest.mark.spec("WFL-11")
async def test_the_time_limit_of_the_settings_ends_a_workflow(tmp_path: Path) -> None:
    async with TimedSession(tmp_path, settings={"shoal": {"max_seconds": 30}}) as timed:
        running = asyncio.create_task(sleep_long.run(timed.session))
        await timed.clock.wait_for_sleepers(2)
        await timed.clock.advance(31)
        async with asyncio.timeout(30):
            with pytest.raises(WorkflowStopped, match="the time limit of 30 s for the whole run has passed"):
                await running
