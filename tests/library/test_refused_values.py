"""Values that cannot work: each gets a sentence instead of an internal error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import shoal

LONE = "a\ud800b"
AGENT = shoal.Agent("worker", prompt="Work.")
ENCODING = r"contains a character that UTF-8 cannot encode: '\\ud800' at 1. Remove it"


@shoal.workflow
async def greet(flow: shoal.Workflow, what: str = "hi", times: int = 1) -> str:
    return await flow.agent(AGENT, what * times)


@shoal.workflow
async def give_wrong_prompt(flow: shoal.Workflow) -> list[str]:
    return await flow.map(AGENT, [LONE])


@shoal.workflow
async def give_wrong_isolation(flow: shoal.Workflow) -> str:
    return await flow.agent(AGENT, "go", isolation="wroktree")  # type: ignore[arg-type]


Call = Callable[[shoal.Session[Any]], Awaitable[Any]]
WRONG_CALLS: list[tuple[Call, str]] = [
    (lambda session: session.run(LONE), rf"session.run\(\): the prompt {ENCODING}"),
    (lambda session: session.spawn(AGENT, LONE), rf"session.spawn\(\): the prompt {ENCODING}"),
    (lambda session: session.spawn(AGENT, "go", name=LONE), rf"session.spawn\(\): name {ENCODING}"),
    (lambda session: session.map(AGENT, [LONE]), rf"session.map\(\): the prompt {ENCODING}"),
    (lambda session: session.map(AGENT, [""]), r"session.map\(\): the prompt is empty"),
    (lambda session: session.map(5, ["go"]), r"session.map\(\): agent: expected an Agent or a name"),  # type: ignore[call-overload]
    (lambda session: session.send("lead", LONE), rf"session.send\(\): text {ENCODING}"),
    (lambda session: session.set_model(5), r"session.set_model\(\): name: expected a string, got 5"),  # type: ignore[arg-type]
    (lambda session: session.set_model(""), r"session.set_model\(\): name is empty"),
    (lambda session: session.compact(5), r"session.compact\(\): instructions: expected a string, got 5"),  # type: ignore[arg-type]
    (lambda session: session.ask_side_question(""), r"session.ask_side_question\(\): question is empty"),
    (give_wrong_prompt.run, rf"flow.map\(\): prompt {ENCODING}"),
    (
        give_wrong_isolation.run,
        r"flow.agent\(\): isolation: unknown value 'wroktree'",
    ),
    (
        lambda session: greet.run(session, waat="x"),
        r"greet.run\(\): there is no parameter 'waat'. Did you mean what",
    ),  # type: ignore[call-arg]
]


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("call", "problem"), WRONG_CALLS)
async def test_a_call_with_a_wrong_value_says_what_is_wrong(tmp_path: Path, call: Call, problem: str) -> None:
    model = shoal.ScriptedModel(lambda _: "done")
    async with asyncio.timeout(60), shoal.open(cwd=tmp_path, model=model) as session:
        with pytest.raises((TypeError, ValueError, shoal.ShoalError), match=problem):
            await call(session)
        assert (await session.run("go")).text == "done"


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"prompt": ""}, r"shoal.Agent\('a'\): prompt is empty. Tell the agent what it is"),
        ({"prompt": " \n"}, "prompt is empty"),
        ({"prompt": LONE}, f"prompt {ENCODING}"),
        ({"prompt": "x", "description": LONE}, f"description {ENCODING}"),
    ],
)
def test_an_agent_with_an_unusable_text_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(shoal.SettingsError, match=problem):
        shoal.Agent("a", **fields)


@pytest.mark.spec("WFL-05")
def test_a_parameter_that_cannot_be_stored_is_refused_at_decoration() -> None:
    async def run(flow: shoal.Workflow, number: complex) -> None: ...

    run.__annotations__["number"] = complex
    with pytest.raises(TypeError, match=r"the type of the parameter 'number' of run: .*complex"):
        shoal.workflow(run)


@pytest.mark.spec("WFL-05")
async def test_a_workflow_that_ended_starts_no_phase_and_records_nothing(tmp_path: Path) -> None:
    kept: list[shoal.Workflow] = []

    @shoal.workflow
    async def keep(flow: shoal.Workflow) -> str:
        kept.append(flow)
        return "done"

    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([])) as session:
        events: list[shoal.Event] = []
        assert await keep.run(session) == "done"
        session.subscribe(events.append)
        for call in (lambda flow: flow.phase("late"), lambda flow: flow.now(), lambda flow: flow.random()):
            with pytest.raises(shoal.errors.WorkflowError, match="ended"):
                call(kept[0])
        assert not events


@pytest.mark.spec("API-08")
async def test_a_message_to_a_member_that_left_says_why(tmp_path: Path) -> None:
    model = shoal.ScriptedModel(lambda _: "done")
    team = shoal.Team("crew", members=[shoal.Agent("ana", prompt="Write.")], cwd=tmp_path, model=model)
    async with asyncio.timeout(60), team:
        await team.start()
        await team.session.stop_task("ana")
        with pytest.raises(shoal.errors.AgentRequestRefused) as refused:
            await team.send("ana", "once more")
    message = str(refused.value)
    assert message.startswith("team.send(): to: ana has ended (")
    assert "stopped by the user" in message
    assert "shoal.Team.resume('crew')" in message
    assert "session.list_subagents" not in message
