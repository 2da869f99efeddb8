"""Wrong arguments of workflows and their steps: a clear error at once, before anything runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.app.workflows.workflow_loader import parse_typed_arguments
from shoal.core.errors import WorkflowError
from shoal.core.events import (
    AgentStarted,
    Event,
    WorkflowEnded,
    WorkflowPhaseStarted,
    WorkflowStarted,
    WorkflowStepStarted,
)

editor = shoal.Agent("editor", prompt="You edit.", tools=[])


def add_one(value: int) -> int:
    return value + 1


async def set_phase(flow: shoal.Workflow, name: Any) -> None:
    flow.phase(name)


Step = Callable[[shoal.Workflow], Awaitable[Any]]
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "phase(3)": (lambda flow: set_phase(flow, 3), TypeError, "flow.phase(): name: expected a string, got 3."),
    "phase('')": (lambda flow: set_phase(flow, " "), ValueError, "flow.phase(): name is empty."),
    "shell timeout": (
        lambda flow: flow.shell("touch made", timeout="a"),
        TypeError,
        "flow.shell(): timeout: expected a number of seconds, got 'a'.",
    ),
    "shell timeout 0": (lambda flow: flow.shell("touch made", timeout=0), ValueError, "got 0."),
    "shell timeout nan": (
        lambda flow: flow.shell("touch made", timeout=float("nan")),
        ValueError,
        "got nan.",
    ),
    "sleep inf": (
        lambda flow: flow.sleep(float("inf")),
        ValueError,
        "flow.sleep(): seconds: expected a number of seconds from 0 to 31,536,000, got inf.",
    ),
    "sleep nan": (lambda flow: flow.sleep(float("nan")), ValueError, "got nan."),
    "sleep negative": (lambda flow: flow.sleep(-1), ValueError, "got -1."),
    "sleep text": (lambda flow: flow.sleep("1"), TypeError, "expected a number of seconds, got '1'."),
    "sleep bool": (lambda flow: flow.sleep(True), TypeError, "got True."),
    "ask set": (
        lambda flow: flow.ask("Go?", {"yes"}),
        TypeError,
        "flow.ask(): options: expected a list of strings, got {'yes'}.",
    ),
    "pipeline sync": (
        lambda flow: flow.pipeline([1, 2], add_one),
        TypeError,
        "flow.pipeline(): the stage add_one returned 2. Write it as `async def`.",
    ),
    "pipeline empty": (lambda flow: flow.pipeline([1]), TypeError, "pass at least one stage"),
    "pipeline items": (lambda flow: flow.pipeline(3, add_one), TypeError, "items: expected a list, got 3."),
    "map option": (
        lambda flow: flow.map(editor, ["a"], fallback=None),
        TypeError,
        "flow.map() got an unknown option 'fallback'.",
    ),
}


@pytest.mark.spec("WFL-05")
@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_argument_of_a_step_is_refused_at_once(tmp_path: Path, name: str) -> None:
    step, kind, message = WRONG[name]

    @shoal.workflow
    async def run_step(flow: shoal.Workflow) -> Any:
        return await step(flow)

    events: list[Event] = []
    model = shoal.ScriptedModel(lambda request: "done")
    async with shoal.open(cwd=tmp_path, model=model, mode="bypassPermissions") as session:
        session.subscribe(events.append)
        with pytest.raises(kind) as caught:
            await run_step.run(session)
    assert message in str(caught.value)
    assert not any(isinstance(event, WorkflowStepStarted | AgentStarted) for event in events)
    assert not (tmp_path / "made").exists()


class Opaque:
    def __init__(self, secret: object) -> None: ...


@pytest.mark.spec("WFL-05")
def test_a_returned_type_without_a_schema_is_refused_by_the_decorator() -> None:
    with pytest.raises(TypeError, match=r"the type that make returns: Opaque cannot be described as JSON"):

        @shoal.workflow
        async def make(flow: shoal.Workflow) -> Opaque: ...


@pytest.mark.spec("WFL-05")
async def test_a_returned_type_that_is_defined_later_is_checked_at_the_start(tmp_path: Path) -> None:
    @shoal.workflow
    async def make(flow: shoal.Workflow) -> LaterType: ...  # type: ignore[name-defined]  # noqa: F821

    events: list[Event] = []
    globals()["LaterType"] = Opaque
    try:
        async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([])) as session:
            session.subscribe(events.append)
            with pytest.raises(TypeError, match="the type that make returns"):
                await make.run(session)
    finally:
        del globals()["LaterType"]
    assert not any(isinstance(event, WorkflowStarted) for event in events)


@shoal.workflow
async def edit_twice(flow: shoal.Workflow, name: str = "a") -> str:
    await flow.agent(editor, f"first {name}")
    return await flow.agent(editor, f"second {name}")


@pytest.mark.spec("WFL-05")
@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (99, WorkflowError, r"has no step 99. Its steps: 1 to 2"),
        (3, WorkflowError, r"has no step 3"),
        (0, WorkflowError, r"has no step 0"),
        (-1, WorkflowError, r"has no step -1"),
        (1.5, TypeError, r"rerun_from: expected the number of a step, got 1.5"),
        ("x", TypeError, r"rerun_from: expected the number of a step, got 'x'"),
        (True, TypeError, r"got True"),
    ],
)
async def test_a_step_that_does_not_exist_cannot_run_again(
    tmp_path: Path, number: Any, kind: type[Exception], message: str
) -> None:
    events: list[Event] = []
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda request: "done")) as session:
        await edit_twice.run(session)
        session.subscribe(events.append)
        with pytest.raises(kind, match=message):
            await edit_twice.resume(session, rerun_from=number)
    assert not any(isinstance(event, WorkflowStarted) for event in events)


@pytest.mark.spec("WFL-05")
async def test_arguments_that_do_not_fit_name_the_workflow(tmp_path: Path) -> None:
    run: Any = edit_twice.run
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([])) as session:
        with pytest.raises(
            TypeError, match=r"edit_twice.run\(\): there is no parameter 'nam'. Did you mean name\?"
        ):
            await run(session, nam="a")
    with pytest.raises(TypeError, match="session: expected an open session, got 'x'"):
        await edit_twice.resume("x")  # type: ignore[arg-type]


@pytest.mark.spec("WFL-01")
@pytest.mark.parametrize("mode", ["bypassPermissions", "default", "plan"])
async def test_a_command_that_is_not_permitted_does_not_run(tmp_path: Path, mode: Any) -> None:
    @shoal.workflow
    async def touch(flow: shoal.Workflow) -> int:
        return (await flow.shell("touch made")).exit_code

    model = shoal.ScriptedModel([])
    denied = [shoal.ToolRule("Bash(touch:*)")] if mode == "bypassPermissions" else []
    async with shoal.open(cwd=tmp_path, model=model, mode=mode, disallowed_tools=denied) as session:
        with pytest.raises(WorkflowError, match="The command 'touch made' has no exit status: "):
            await touch.run(session)
    assert not (tmp_path / "made").exists()


LIMITED_LEADS: list[dict[str, Any]] = [
    {"available_tools": ["Read", "Workflow"]},
    {"agent": shoal.Agent("limited", prompt="p", tools=["Read", "Workflow"])},
]


@pytest.mark.spec("WFL-01")
@pytest.mark.parametrize("limits", LIMITED_LEADS)
async def test_a_step_needs_the_tool_that_it_stands_for(tmp_path: Path, limits: dict[str, Any]) -> None:
    @shoal.workflow
    async def touch(flow: shoal.Workflow) -> int:
        return (await flow.shell("touch made")).exit_code

    @shoal.workflow
    async def delegate(flow: shoal.Workflow) -> str:
        return await flow.agent("general-purpose", "work")

    model = shoal.ScriptedModel([])
    settings = {"shoal": {"workflow_tool": True}}
    options = {"mode": "bypassPermissions", "settings": settings, **limits}
    async with shoal.open(cwd=tmp_path, model=model, **options) as session:
        with pytest.raises(WorkflowError, match="step shell did not run: it needs the tool Bash"):
            await touch.run(session)
        with pytest.raises(WorkflowError, match="needs the tool Agent"):
            await delegate.run(session)
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("WFL-01")
async def test_a_step_that_a_rule_forbids_names_the_rule(tmp_path: Path) -> None:
    @shoal.workflow
    async def touch(flow: shoal.Workflow) -> int:
        return (await flow.shell("touch made")).exit_code

    @shoal.workflow
    async def delegate(flow: shoal.Workflow) -> str:
        return await flow.agent("general-purpose", "work")

    denied = ["Bash", "Agent"]
    model = shoal.ScriptedModel([])
    async with shoal.open(
        cwd=tmp_path, model=model, mode="bypassPermissions", disallowed_tools=denied
    ) as session:
        with pytest.raises(WorkflowError, match=r"Bash .*disallowed_tools"):
            await touch.run(session)
        with pytest.raises(WorkflowError, match="the rule Agent"):
            await delegate.run(session)
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("WFL-01")
@pytest.mark.parametrize("allowed", [True, False])
async def test_a_person_decides_about_a_command(tmp_path: Path, allowed: bool) -> None:
    @shoal.workflow
    async def touch(flow: shoal.Workflow) -> int:
        return (await flow.shell("touch made")).exit_code

    def answer(question: shoal.Question) -> shoal.Answer:
        assert isinstance(question, shoal.PermissionQuestion)
        assert question.input["command"] == "touch made"
        return question.allow() if allowed else question.deny("not today")

    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([]), on_question=answer) as session:
        if allowed:
            assert await touch.run(session) == 0
        else:
            with pytest.raises(WorkflowError, match=r"has no exit status: .*not today"):
                await touch.run(session)
    assert (tmp_path / "made").exists() == allowed


@pytest.mark.spec("WFL-05")
async def test_a_program_that_exits_ends_its_workflow_and_not_the_session(tmp_path: Path) -> None:
    @shoal.workflow
    async def leave(flow: shoal.Workflow) -> None:
        raise SystemExit(3)

    events: list[Event] = []
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda request: "done")) as session:
        session.subscribe(events.append)
        with pytest.raises(WorkflowError, match=r"called sys.exit\(3\). Return a value or raise an error"):
            await leave.run(session)
        assert (await session.run("go on")).text == "done"
    assert [event.status for event in events if isinstance(event, WorkflowEnded)] == ["failed"]


@pytest.mark.spec("WFL-05")
async def test_a_phase_that_already_runs_is_not_announced_again(tmp_path: Path) -> None:
    @shoal.workflow
    async def repeat(flow: shoal.Workflow) -> None:
        while True:
            flow.phase("edit")

    events: list[Event] = []
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([])) as session:
        session.subscribe(events.append)
        with pytest.raises(WorkflowError, match="called more than 100,000 steps"):
            await repeat.run(session)
    assert sum(isinstance(event, WorkflowPhaseStarted) for event in events) == 1


@shoal.workflow
async def one(flow: shoal.Workflow, branch: str) -> str:
    return branch


@shoal.workflow
async def two(flow: shoal.Workflow, branch: str, dry_run: bool = False) -> str:
    return branch


@pytest.mark.parametrize(
    ("definition", "text", "problem"),
    [
        (two, "branch=main dry_rnu=true", "/two has no argument 'dry_rnu'. Did you mean dry_run?"),
        (two, "branch=main force=true", "/two has no argument 'force'. It takes branch=…, dry_run=…."),
        (two, "brnch=main dry_run=true", "Did you mean branch?"),
        (two, 'branch="main" dry_rnu=true', "Did you mean dry_run?"),
        (one, "branhc=main", "Did you mean branch?"),
        (one, "force=main", "/one has no argument 'force'."),
        (one, "use main branhc=main", "Did you mean branch?"),
        (two, "branch=a branch=b", "/two: the argument 'branch' is given twice. Leave one out. If branch="),
        (two, "dry_run=true branch=a dry_run=true", "the argument 'dry_run' is given twice"),
        (one, "branch=main branch=main", "the argument 'branch' is given twice"),
        (
            two,
            '{"branch": "a", "branch": "b"}',
            "is not JSON: the name 'branch' is given twice in one object",
        ),
        (one, "branch=main force=1", 'put the text in quotes: branch="main force=1"'),
    ],
)
def test_a_misspelled_argument_of_a_typed_command_is_refused(
    definition: Any, text: str, problem: str
) -> None:
    with pytest.raises(WorkflowError) as caught:
        parse_typed_arguments(definition, text)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("definition", "text", "arguments"),
    [
        (two, "branch=main dry_run=true", {"branch": "main", "dry_run": True}),
        (two, "branch=a==b", {"branch": "a==b"}),
        (two, "branch=https://host/?force=1", {"branch": "https://host/?force=1"}),
        (two, 'branch="main force=true"', {"branch": "main force=true"}),
        (two, 'branch="a branch=b" dry_run=true', {"branch": "a branch=b", "dry_run": True}),
        (two, '{"branch": "main force=true"}', {"branch": "main force=true"}),
        (one, "explain why x=1 holds", {"branch": "explain why x=1 holds"}),
        (one, "main", {"branch": "main"}),
    ],
)
def test_typed_arguments_may_contain_equals_signs(
    definition: Any, text: str, arguments: dict[str, Any]
) -> None:
    assert parse_typed_arguments(definition, text) == arguments


@pytest.mark.spec("WFL-05")
async def test_a_typed_workflow_that_fails_fails_the_turn(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "workflows").mkdir(parents=True)
    (home / "workflows" / "fail.py").write_text(
        "import shoal\n\n@shoal.workflow\nasync def fail(flow: shoal.Workflow) -> None:\n"
        "    raise KeyError('x')\n"
    )
    async with shoal.open(cwd=tmp_path, home=home, model=shoal.ScriptedModel([])) as session:
        invocation = session.parse_slash_command("/fail")
        with pytest.raises(shoal.RunFailed, match=r"\(error\): The workflow raised KeyError: 'x'"):
            await session.run(invocation)


@pytest.mark.spec("WFL-05")
def test_a_typed_workflow_without_arguments_uses_its_defaults() -> None:
    @shoal.workflow
    async def greet(flow: shoal.Workflow) -> None: ...

    @shoal.workflow
    async def repeat(flow: shoal.Workflow, what: str = "hi", times: int = 2) -> None: ...

    @shoal.workflow
    async def say(flow: shoal.Workflow, what: str) -> None: ...

    assert parse_typed_arguments(greet, "") == parse_typed_arguments(repeat, " ") == {}
    with pytest.raises(WorkflowError, match="missing a required argument: 'what'"):
        parse_typed_arguments(say, "")
