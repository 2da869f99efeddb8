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


@shoal.workflow
async def give_no_agent(flow: shoal.Workflow) -> str:
    return await flow.agent("", "go")


@shoal.workflow
async def give_none_as_agent(flow: shoal.Workflow) -> list[str]:
    return await flow.map(None, ["go"])  # type: ignore[call-overload, no-any-return]


@shoal.workflow
async def map_set(flow: shoal.Workflow) -> list[str]:
    return await flow.map(AGENT, {"go", "stay"})


@shoal.workflow
async def pass_set_through_stages(flow: shoal.Workflow) -> list[str]:
    return await flow.pipeline({"go", "stay"}, lambda prompt: flow.agent(AGENT, prompt))


async def subscribe(session: shoal.Session[Any]) -> None:
    session.subscribe(on_event_async)  # type: ignore[arg-type]


async def steer_with_nothing(session: shoal.Session[Any]) -> None:
    session.steer(None)  # type: ignore[arg-type]


async def on_event_async(event: shoal.Event) -> None: ...


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
    (lambda session: session.spawn("", "go"), r"session.spawn\(\): agent is empty"),
    (lambda session: session.map("", ["go"]), r"session.map\(\): agent is empty"),
    (
        lambda session: session.spawn(AGENT, "go", model=Path("opus")),  # type: ignore[arg-type]
        r"session.spawn\(\): model: expected a non-empty string",
    ),
    (
        lambda session: session.spawn(AGENT, "go", name=Path("ana")),  # type: ignore[arg-type]
        r"session.spawn\(\): name: expected a non-empty string",
    ),
    (
        lambda session: session.stop_agents(5),  # type: ignore[arg-type]
        r"session.stop_agents\(\): reason: expected a string, got 5",
    ),
    (subscribe, r"session.subscribe\(\): callback: expected a plain function, got the async function"),
    (steer_with_nothing, r"session.steer\(\): prompt: expected a string or a shoal.Message, got None"),
    (give_no_agent.run, r"flow.agent\(\): agent is empty"),
    (give_none_as_agent.run, r"flow.map\(\): agent: expected an Agent or a name, got None"),
    (map_set.run, r"flow.map\(\): prompts: a set has another order after a crash. Pass a list"),
    (pass_set_through_stages.run, r"flow.pipeline\(\): items: a set has another order after a crash"),
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
        ({"prompt": "x", "skills": [LONE]}, rf"skills: 'a\\ud800b' {ENCODING}"),
        ({"prompt": "x", "color": "grren"}, "color: 'grren' is not a known color; use .* Correct it, or"),
        ({"prompt": "x", "color": 5}, "color: 5 is not a known color"),
        ({"prompt": "x", "mode": "auto"}, "mode: auto mode is not available"),
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


def read_price() -> float:
    """Read a price."""
    return 1.0


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: shoal.tool(reads_only="false")(read_price),
            "reads_only: expected True or False, got 'false'",
        ),
        (lambda: shoal.tool(reads_only=1)(read_price), "reads_only: expected True or False, got 1"),
        (lambda: shoal.tool(concurrent="no")(read_price), "concurrent: expected True or False, got 'no'"),
        (lambda: shoal.tool(description=5)(read_price), "description: expected a string, got 5"),
        (lambda: shoal.tool(description=LONE)(read_price), f"description {ENCODING}"),
        (lambda: shoal.ReplayModel(5), r"shoal.ReplayModel\(\): path: expected a path, got 5"),
        (lambda: shoal.ReplayModel("none.jsonl"), "Cannot read the recording none.jsonl"),
        (lambda: shoal.FileStore(5), r"shoal.FileStore\(\): home: expected a path, got 5"),
        (lambda: shoal.FileStore(""), r"shoal.FileStore\(\): home is empty"),
        (lambda: shoal.FileStore("a\0b"), r"shoal.FileStore\(\): home contains a NUL byte"),
        (lambda: shoal.Team.resume(5), r"shoal.Team.resume\(\): name: expected a string, got 5"),
        (lambda: shoal.Team.resume(""), r"shoal.Team.resume\(\): name is empty"),
        (lambda: shoal.ScriptedModel(on_event_async), "expected a plain function, got an async one"),
        (
            lambda: shoal.run_sync(None, model=shoal.ScriptedModel([])),
            r"shoal.run_sync\(\): prompt: .* got None",
        ),
        (
            lambda: shoal.run_sync("go", on_event=on_event_async, model=shoal.ScriptedModel([])),
            r"shoal.run_sync\(\): on_event: expected a plain function, got the async function",
        ),
    ],
)
def test_an_object_with_a_wrong_value_is_refused_at_once(make: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError, shoal.ShoalError), match=problem):
        make()


@pytest.mark.spec("API-07")
@pytest.mark.parametrize("reply", [5, None, {"text": "go"}, [5], ValueError("go")])
@pytest.mark.parametrize("by_function", [True, False])
async def test_a_scripted_reply_of_a_wrong_type_is_named(
    tmp_path: Path, reply: Any, by_function: bool
) -> None:
    model = shoal.ScriptedModel((lambda _: reply) if by_function else [reply])
    with pytest.raises(TypeError, match=r"shoal.ScriptedModel\(\): expected a text, a block"):
        await shoal.run("go", cwd=tmp_path, model=model)


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"agent": ""}, "shoal.run: agent is empty. Name an agent, or leave it out"),
        ({"settings": "a\0b"}, "shoal.run: settings contains a NUL byte"),
        ({"agents": "a\0b"}, "shoal.run: agents contains a NUL byte"),
        ({"agents": LONE}, f"shoal.run: agents {ENCODING}"),
        ({"mcp_config": [LONE]}, f"shoal.run: mcp_config: .* {ENCODING}"),
        ({"betas": [LONE]}, f"shoal.run: betas: .* {ENCODING}"),
        ({"session_id": "x"}, "shoal.run: session_id: expected a UUID, got 'x'"),
    ],
)
async def test_an_option_that_cannot_work_is_named(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(shoal.SettingsError, match=problem):
        await shoal.run("go", cwd=tmp_path, model=shoal.ScriptedModel([]), **options)


@pytest.mark.spec("API-08")
async def test_a_task_with_a_text_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    team = shoal.Team("crew", members=[AGENT], cwd=tmp_path, model=shoal.ScriptedModel([]))
    async with asyncio.timeout(60), team:
        for name in ("subject", "description", "accept"):
            with pytest.raises(ValueError, match=rf"team.add_task\(\): {name} {ENCODING}"):
                await team.add_task(**{"subject": "Write", name: LONE})
        assert not await team.list_tasks()


@pytest.mark.spec("API-09")
async def test_relative_paths_of_options_start_at_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for directory in (project, elsewhere):
        directory.mkdir()
    monkeypatch.chdir(elsewhere)
    options: Any = {"record": "run.jsonl", "debug_file": "debug.txt", "store": Path("store")}
    model = shoal.ScriptedModel(["done"])
    assert (await shoal.run("go", cwd=project, model=model, seed=1, **options)).text == "done"
    assert {path.name for path in project.iterdir()} == {"run.jsonl", "debug.txt", "store"}
    assert not list(elsewhere.iterdir())
    assert (project / "debug.txt").read_text()
    (project / "mind.toml").write_text('[[steps]]\ntext = "scripted"\n')
    assert (await shoal.run("go", cwd=project, model="scripted:mind.toml")).text == "scripted"
