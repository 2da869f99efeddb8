"""Agents that a Python program defines and starts itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import shoal
from agent_scripts import ToolGate, script_agents
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import (
    AgentRequestRefused,
    AgentUnusable,
    QuotaExceeded,
    SettingsError,
    WorkflowError,
)
from shoal.core.events import AgentStarted, ModelRequestFailed
from shoal.models.scripted_model import ReplyLike


class FindingModel(pydantic.BaseModel):
    file: str
    line: int = pydantic.Field(ge=1)

    @pydantic.field_validator("file")
    @classmethod
    def refuse_absolute_paths(cls, file: str) -> str:
        if file.startswith("/"):
            raise ValueError("use a relative path")
        return file


@dataclass
class FindingDataclass:
    file: str
    line: int


class FindingDict(TypedDict):
    file: str
    line: int


class FindingStruct(msgspec.Struct):
    file: str
    line: int


def call_tool(tool: str, /, **arguments: object) -> ToolUseBlock:
    return ToolUseBlock(id=f"call-{tool}", name=tool, input=dict(arguments))


def answer_with(*answers: object) -> Any:
    """Return a model that submits the answers one after the other, then ends."""
    remaining = list(answers)

    def reply(request: ModelRequest) -> ReplyLike:
        return [call_tool("StructuredOutput", value=remaining.pop(0))] if remaining else "Done."

    return shoal.ScriptedModel(reply)


@pytest.mark.spec("API-02")
async def test_a_program_starts_an_agent_and_awaits_its_result(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> ReplyLike:
        assert "You review." in request.system
        return f"Reviewed: {request.messages[0].text}"

    reviewer = shoal.Agent("reviewer", prompt="You review.")
    async with shoal.open(cwd=tmp_path, agents=[reviewer], model=shoal.ScriptedModel(reply)) as session:
        handle = await session.spawn(reviewer, "src/a.py")
        result = await handle
    assert result.text == "Reviewed: src/a.py"
    assert result.ok
    assert result.output is None
    assert result.requests == 1


@pytest.mark.spec("API-02")
async def test_the_lead_is_not_woken_by_agents_of_the_program(tmp_path: Path) -> None:
    agent = shoal.Agent("worker", prompt="Work.")
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda _: "done")) as session:
        await (await session.spawn(agent, "go"))
        assert await session.next_turn() is None
        session_id = session.id
    async with shoal.open(
        cwd=tmp_path, model=shoal.ScriptedModel(lambda _: "done"), resume=session_id
    ) as session:
        assert await session.next_turn() is None


@pytest.mark.spec("API-03")
@pytest.mark.parametrize("kind", [FindingModel, FindingDataclass, FindingDict, FindingStruct])
async def test_an_answer_has_the_type_that_the_agent_declares(tmp_path: Path, kind: type[Any]) -> None:
    agent = shoal.Agent("finder", prompt="Find.", output=list[kind])  # type: ignore[valid-type]
    model = answer_with([{"file": "a.py", "line": 3}])
    async with shoal.open(cwd=tmp_path, model=model) as session:
        result = await (await session.spawn(agent, "go"))
    (finding,) = result.output
    if kind is FindingDict:
        assert finding == {"file": "a.py", "line": 3}
    else:
        assert finding == kind(file="a.py", line=3)


@pytest.mark.spec("API-03")
async def test_an_answer_that_a_validator_refuses_goes_back_to_the_model(tmp_path: Path) -> None:
    requests: list[str] = []

    def reply(request: ModelRequest) -> ReplyLike:
        requests.append(str(request.messages[-1]))
        file = "/etc/passwd" if len(requests) == 1 else "a.py"
        return [call_tool("StructuredOutput", file=file, line=1)] if len(requests) < 3 else "Done."

    async with shoal.open(cwd=tmp_path, output=FindingModel, model=shoal.ScriptedModel(reply)) as session:
        result = await session.run("go")
    assert result.output == FindingModel(file="a.py", line=1)
    assert "use a relative path" in requests[1]


@pytest.mark.spec("API-03")
async def test_an_agent_that_never_answers_in_the_type_fails(tmp_path: Path) -> None:
    requests: list[str] = []

    def reply(request: ModelRequest) -> ReplyLike:
        requests.append(request.messages[-1].text)
        return "It is fine."

    agent = shoal.Agent("finder", prompt="Find.", output=FindingStruct)
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(reply)) as session:
        handle = await session.spawn(agent, "go")
        with pytest.raises(shoal.RunFailed, match="no answer in the requested format") as failure:
            await handle
        with pytest.raises(shoal.RunFailed):
            _ = (await handle.wait()).output
    assert failure.value.result.text == "It is fine."
    assert len(requests) == 4
    assert "call StructuredOutput" in requests[-1]


def test_a_type_without_a_schema_is_refused_when_the_agent_is_defined() -> None:
    with pytest.raises(TypeError, match="output=complex cannot be described as JSON Schema"):
        shoal.Agent("finder", prompt="Find.", output=complex)


@pytest.mark.spec("API-02")
async def test_a_python_tool_belongs_to_the_agent_that_names_it(tmp_path: Path) -> None:
    @shoal.tool(reads_only=True)
    def look_up(key: str) -> str:
        """Look up a value."""
        return f"value of {key}"

    offered: dict[str, list[str]] = {}

    def reply(request: ModelRequest) -> ReplyLike:
        who = request.messages[0].text.split()[-1]
        offered.setdefault(who, [tool.name for tool in request.tools])
        if who == "with" and len(request.messages) == 1:
            return [call_tool("look_up", key="k")]
        return "done"

    able = shoal.Agent("able", prompt="x", tools=["Read", look_up])
    plain = shoal.Agent("plain", prompt="x", tools=["Read"])
    async with shoal.open(
        cwd=tmp_path, agents=[able, plain], model=shoal.ScriptedModel(reply), allowed_tools=["look_up"]
    ) as session:
        events = []
        session.subscribe(events.append)
        await (await session.spawn(able, "with"))
        await (await session.spawn(plain, "without"))
        await session.run("lead")
    assert offered["with"] == ["Read", "look_up"]
    assert offered["without"] == ["Read"]
    assert "look_up" not in offered["lead"]
    (finished,) = [event for event in events if isinstance(event, shoal.events.ToolFinished)]
    assert (finished.tool, finished.is_error) == ("look_up", False)


@pytest.mark.spec("API-04")
async def test_map_waits_for_free_places_and_keeps_the_order(tmp_path: Path) -> None:
    running = peak = 0
    all_places_used = asyncio.Event()

    class CountingModel(shoal.ScriptedModel):
        async def generate_reply(self, request: ModelRequest, on_delta: Any) -> Any:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            if running == 3:
                all_places_used.set()
            async with asyncio.timeout(20):
                await all_places_used.wait()
            running -= 1
            return await super().generate_reply(request, on_delta)

    model = CountingModel(lambda request: request.messages[0].text.upper())
    agent = shoal.Agent("worker", prompt="Work.")
    async with shoal.open(cwd=tmp_path, model=model, settings={"shoal": {"max_concurrent": 3}}) as session:
        results = await session.map(agent, (f"job {n}" for n in range(12)), at_once=8)
    assert [result.text for result in results] == [f"JOB {n}" for n in range(12)]
    assert peak == 3


async def test_an_agent_whose_limit_is_spent_while_it_waits_keeps_no_place(tmp_path: Path) -> None:
    gate = ToolGate()
    editor = shoal.Agent("editor", prompt="Edit.", tools=[gate.tool])
    other = shoal.Agent("other", prompt="Look.")
    model = script_agents(slow=[call_tool("Gate"), "done"], next=["never"], look=["seen"])
    limits = {"max_concurrent": 1, "agent_type_limits": {"editor": {"requests": 2}}}
    async with (
        shoal.open(
            cwd=tmp_path,
            model=model,
            settings={"shoal": limits},
            agents=[editor],
            allowed_tools=["Gate"],
        ) as session,
        asyncio.timeout(60),
    ):
        first = await session.spawn(editor, "slow")
        await gate.wait_until_reached()
        waiting = asyncio.create_task(session.spawn(editor, "next"))
        gate.is_open.set()
        assert (await first).text == "done"
        with pytest.raises(AgentRequestRefused, match="requests"):
            await (await waiting)
        assert (await (await session.spawn(other, "look"))).text == "seen"


@pytest.mark.spec("API-04")
async def test_a_failed_agent_of_map_is_a_result_and_the_others_continue(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> ReplyLike:
        prompt = request.messages[0].text
        return shoal.errors.BadRequest("no such thing") if prompt == "b" else prompt

    agent = shoal.Agent("worker", prompt="Work.")
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(reply)) as session:
        first, second, third = await session.map(agent, ["a", "b", "c"])
    assert (first.text, third.text) == ("a", "c")
    assert not second.ok
    assert second.detail == "no such thing"


@pytest.mark.spec("API-04")
async def test_a_cancelled_map_stops_its_agents(tmp_path: Path) -> None:
    started = asyncio.Event()

    class HangingModel(shoal.ScriptedModel):
        async def generate_reply(self, request: ModelRequest, on_delta: Any) -> Any:
            started.set()
            await asyncio.Event().wait()

    agent = shoal.Agent("worker", prompt="Work.")
    async with shoal.open(cwd=tmp_path, model=HangingModel([])) as session:
        mapping = asyncio.create_task(session.map(agent, ["a", "b"]))
        async with asyncio.timeout(20):
            await started.wait()
        mapping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mapping
        assert not session.has_running_subagents


@pytest.mark.spec("API-04")
async def test_no_agent_starts_once_the_budget_is_spent(tmp_path: Path) -> None:
    requests: list[ModelRequest] = []

    def reply(request: ModelRequest) -> ReplyLike:
        requests.append(request)
        return "done"

    agent = shoal.Agent("worker", prompt="Work.")
    async with shoal.open(
        cwd=tmp_path, model=shoal.ScriptedModel(reply), settings={"shoal": {"max_requests": 3}}
    ) as session:
        results = await session.map(agent, ["go"] * 10, at_once=1)
    assert [result.ok for result in results] == [True] * 3 + [False] * 7
    assert {result.reason for result in results[3:]} == {"refused"}
    assert len(requests) == 3


@pytest.mark.spec("API-02")
async def test_a_message_resumes_an_ended_agent_and_the_handle_waits_for_it(tmp_path: Path) -> None:
    agent = shoal.Agent("worker", prompt="Work.")
    model = shoal.ScriptedModel(lambda request: f"heard {request.messages[-1].text}")
    async with shoal.open(cwd=tmp_path, model=model) as session:
        handle = await session.spawn(agent, "one", name="anna")
        assert (await handle).text == "heard one"
        await handle.send("two")
        assert (await handle).text == "heard two"
        assert await session.next_turn() is None
        assert handle.name == "anna"


@pytest.mark.spec("API-02")
async def test_a_stopped_agent_has_a_result_that_says_so(tmp_path: Path) -> None:
    started = asyncio.Event()

    class HangingModel(shoal.ScriptedModel):
        async def generate_reply(self, request: ModelRequest, on_delta: Any) -> Any:
            started.set()
            await asyncio.Event().wait()

    async with shoal.open(cwd=tmp_path, model=HangingModel([])) as session:
        handle = await session.spawn(shoal.Agent("worker", prompt="Work."), "go")
        events = []

        async def read_events() -> None:
            events.extend([event async for event in handle.events()])

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(read_events())
            await started.wait()
            result = await handle.stop("enough")
        assert (result.reason, result.detail) == ("stopped", "enough")
        assert isinstance(events[-1], shoal.events.AgentEnded)
        assert {event.agent for event in events} == {handle.id}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tols": []}, r"shoal.Agent\(\) got an unknown option 'tols'. Did you mean tools\?"),
        ({"tools": "Read"}, r"tools: expected a list .* Write tools=\['Read'\]"),
        ({"tools": [print]}, "Make a tool from a function with @shoal.tool"),
        ({"mode": "plaan"}, "mode: 'plaan' is not one of .*did you mean plan"),
        ({"budget_usd": -1}, "budget_usd: expected a number of dollars greater than 0"),
        ({"max_turns": 0}, "max_turns: "),
        ({"isolation": "vm"}, "isolation: 'vm' is not one of"),
    ],
)
def test_a_wrong_field_of_an_agent_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, SettingsError), match=problem):
        shoal.Agent("a", prompt="x", **fields)


async def test_two_agents_with_one_name_are_refused(tmp_path: Path) -> None:
    one, other = shoal.Agent("a", prompt="x"), shoal.Agent("a", prompt="y")
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda _: "done")) as session:
        await (await session.spawn(one, "go"))
        with pytest.raises(ValueError, match="already has another agent named 'a'"):
            await session.spawn(other, "go")
        with pytest.raises(AgentRequestRefused, match="There is no agent 'b'"):
            await session.spawn("b", "go")


class QuotaModel(shoal.ScriptedModel):
    """Answers twice, then its quota is used up."""

    replies = 2

    async def generate_reply(self, request: ModelRequest, on_delta: Any) -> Any:
        self.replies -= 1
        if self.replies < 0:
            raise QuotaExceeded("credit balance is too low", provider="test", model="m")
        return await super().generate_reply(request, on_delta)


@pytest.mark.spec("WFL-04")
@pytest.mark.parametrize("at_once", [1, 4, 1000])
async def test_map_starts_no_agent_after_the_provider_refused_for_quota(tmp_path: Path, at_once: int) -> None:
    is_refused, started, late = False, 0, 0

    def count(event: shoal.Event) -> None:
        nonlocal is_refused, started, late
        is_refused = is_refused or (isinstance(event, ModelRequestFailed) and event.quota)
        if isinstance(event, AgentStarted):
            started += 1
            late += is_refused

    reader = shoal.Agent("reader", prompt="You read.", tools=[])
    async with shoal.open(cwd=tmp_path, model=QuotaModel(lambda request: "read")) as session:
        session.subscribe(count)
        results = await session.map(reader, [f"{number}" for number in range(300)], at_once=at_once)
        assert late == 0
        assert 3 <= started <= 2 + min(at_once, 20)
        assert len(results) == 300
        assert sum(result.ok for result in results) == 2
        refused = [result for result in results if result.reason == "refused"]
        assert len(refused) == 300 - started
        assert all(isinstance(result.error, AgentRequestRefused) for result in refused)
        assert "the quota is exhausted (" in refused[-1].detail
        assert "credit balance" in refused[-1].detail
        # The next call of the program may try again.
        assert not (await session.map(reader, ["again"]))[0].ok
        assert started == 301 - len(refused)


async def test_an_agent_that_is_refused_after_it_waited_keeps_no_place(tmp_path: Path) -> None:
    reader = shoal.Agent("reader", prompt="You read.", tools=[])
    model = QuotaModel(lambda request: "read")
    model.replies = 0
    async with (
        shoal.open(cwd=tmp_path, model=model, settings={"shoal": {"max_concurrent": 1}}) as session,
        asyncio.timeout(30),
    ):
        results = await session.map(reader, ["one", "two", "three"], at_once=3)
        assert [result.reason for result in results].count("refused") == 2
        model.replies = 1
        assert [result.text for result in await session.map(reader, ["again"])] == ["read"]


@pytest.mark.parametrize("available", [["Read"], ["Read", "Agent"], []])
async def test_a_started_agent_has_no_tool_that_the_session_lacks(
    tmp_path: Path, available: list[shoal.ToolName]
) -> None:
    @shoal.tool
    def weigh(ship: str) -> str:
        """Weigh a ship."""
        return ship

    offered: list[set[str]] = []

    def reply(request: ModelRequest) -> ReplyLike:
        offered.append({tool.name for tool in request.tools})
        return "ok"

    wide = shoal.Agent("wide", prompt="p", tools=["Read", "Bash", "Write", weigh])
    agents: list[Any] = [wide, shoal.Agent("all", prompt="p"), "general-purpose"]
    model = shoal.ScriptedModel(reply)
    async with shoal.open(cwd=tmp_path, model=model, available_tools=available) as session:
        for agent in agents:
            await (await session.spawn(agent, "work"))
            await session.map(agent, ["work"])
        await session.run("work")
    assert len(offered) == 7
    assert offered[-1] == set(available)
    assert all(tools <= offered[-1] for tools in offered)


async def spawn_and_wait(session: shoal.Session[None]) -> None:
    await (await session.spawn("general-purpose", "work"))


CallInWorkflow = Callable[[shoal.Session[None]], Awaitable[Any]]


@pytest.mark.spec("WFL-01")
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (spawn_and_wait, r"session.spawn\(\) .* flow.agent\(\)"),
        (lambda session: session.map("general-purpose", ["work"]), r"session.map\(\) .* flow.map\(\)"),
        (
            lambda session: session.run("work"),
            r"session.run\(\) .* Use flow.agent\(\) in the workflow call_session-",
        ),
    ],
)
async def test_a_call_that_is_not_a_step_is_refused_in_a_workflow(
    tmp_path: Path, call: CallInWorkflow, sentence: str
) -> None:
    requests: list[ModelRequest] = []

    def reply(request: ModelRequest) -> ReplyLike:
        requests.append(request)
        return "ok"

    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(reply)) as session:

        @shoal.workflow
        async def call_session(flow: shoal.Workflow) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(wait_for_call())

        async def wait_for_call() -> None:
            with pytest.raises(WorkflowError, match=sentence):
                await call(session)

        await call_session.run(session)
        assert requests == []
        # Outside the workflow it is an ordinary call.
        await call(session)
        assert requests


@pytest.mark.spec("WFL-01")
async def test_a_tool_of_an_agent_in_a_workflow_may_start_agents(tmp_path: Path) -> None:
    @shoal.tool
    async def ask_other() -> str:
        """Ask another agent."""
        handle = await session.spawn("general-purpose", "inner")
        return (await handle).text

    @shoal.workflow
    async def delegate(flow: shoal.Workflow) -> str:
        return await flow.agent(shoal.Agent("outer", prompt="p", tools=[ask_other]), "outer")

    prompts: list[str] = []

    def reply(request: ModelRequest) -> ReplyLike:
        prompts.append(request.messages[0].text)
        return [call_tool("ask_other")] if prompts == ["outer"] else "done"

    model = shoal.ScriptedModel(reply)
    async with shoal.open(cwd=tmp_path, model=model, mode="bypassPermissions") as session:
        assert await delegate.run(session) == "done"
    assert prompts == ["outer", "inner", "outer"]


@pytest.mark.spec("API-07")
async def test_a_huge_limit_starts_no_more_tasks_than_prompts(tmp_path: Path) -> None:
    worker = shoal.Agent("worker", prompt="You work.")
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda _: "ok")) as session:
        results = await session.map(worker, ["a", "b"], at_once=10**12)
    assert [result.text for result in results] == ["ok", "ok"]


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"model": "sonet"}, "There is no model 'sonet'. Did you mean sonnet?"),
        ({"cwd": "nowhere"}, "nowhere is not a directory in the project"),
        ({"isolation": "worktree"}, "worktree"),
    ],
    ids=["model", "directory", "worktree"],
)
async def test_map_raises_what_spawn_raises_if_an_option_cannot_be_used(
    tmp_path: Path, options: Any, problem: str
) -> None:
    agent = shoal.Agent("a", prompt="You answer.")
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([])) as session:
        with pytest.raises(shoal.errors.AgentUnusable, match=re.escape(problem)) as spawned:
            await session.spawn(agent, "one", **options)
        with pytest.raises(shoal.errors.AgentUnusable) as mapped:
            await session.map(agent, ["one", "two"], **options)
        assert str(mapped.value) == str(spawned.value)
        assert session.list_subagents() == ()


@pytest.mark.spec("API-07")
async def test_map_raises_if_the_model_of_a_definition_cannot_be_used(tmp_path: Path) -> None:
    agent = shoal.Agent("a", prompt="You answer.", model="opsu")
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([])) as session:
        with pytest.raises(SettingsError, match="Did you mean opus"):
            await session.spawn(agent, "one")
        with pytest.raises(SettingsError, match="Did you mean opus"):
            await session.map(agent, ["one", "two"])


@pytest.mark.spec("ISO-04")
@pytest.mark.parametrize(
    ("agent", "options", "reason"),
    [
        ("general-purpose", {"isolation": "remote"}, "no Ray cluster is configured"),
        (shoal.Agent("far", prompt="You work.", isolation="remote"), {}, "no Ray cluster is configured"),
        ("general-purpose", {"isolation": "remote", "cwd": "."}, "cwd and isolation cannot be combined"),
        ("nobody", {"isolation": "remote"}, "nobody"),
    ],
)
async def test_an_agent_that_cannot_run_on_another_machine_does_not_run_here(
    tmp_path: Path, agent: Any, options: Any, reason: str
) -> None:
    events: list[shoal.Event] = []
    async with shoal.open(cwd=tmp_path, model=script_agents(lead=["never"], go=["never"])) as session:
        session.subscribe(events.append)
        with pytest.raises(AgentUnusable, match=reason):
            await session.spawn(agent, "go", **options)
        with pytest.raises(AgentUnusable, match=reason):
            await session.map(agent, ["go", "go"], **options)
        assert session.list_subagents() == ()
        # What was reserved for them is free again.
        assert session.runtime.budget.running_agent_count == 0
    assert not [event for event in events if isinstance(event, AgentStarted)]
