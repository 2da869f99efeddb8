"""Workflows in one process: steps, phases, failures, and what a resumed session repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import shoal
from git_repository import GitRepository
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import QuotaExceeded, WorkflowChanged, WorkflowError
from shoal.core.events import (
    AgentStarted,
    Event,
    ModelRequestFailed,
    NoteAdded,
    WorkflowEnded,
    WorkflowPhaseStarted,
)
from shoal.core.permissions.questions import ChoiceAnswer, ChoiceQuestion
from shoal.models.scripted_model import ReplyLike
from shoal.testing.mock_replies import HttpErrorFault
from shoal.testing.servers import messages_server


@dataclass
class Verdict:
    good: bool
    why: str


editor = shoal.Agent("editor", prompt="You edit.")
judge = shoal.Agent("judge", prompt="You judge.", output=Verdict)


class RecordingModel:
    """Answers every prompt, and records the prompts of agents in order."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.failing: set[str] = set()

    def reply(self, request: ModelRequest) -> ReplyLike:
        prompt = request.messages[0].text
        if request.messages[-1].role == "user" and len(request.messages) == 1:
            self.prompts.append(prompt)
        if prompt in self.failing:
            raise QuotaExceeded("credit balance is too low", provider="test", model="m")
        if "You judge." in request.system and len(request.messages) == 1:
            return [ToolUseBlock(id="c", name="StructuredOutput", input={"good": True, "why": prompt})]
        return f"done: {prompt}"

    def open(self, cwd: Path, **options: Any) -> shoal.Session[None]:
        return shoal.open(cwd=cwd, model=shoal.ScriptedModel(self.reply), **options)


@shoal.workflow
async def migrate(flow: shoal.Workflow, files: list[str]) -> Verdict:
    """Migrate files, then judge the result."""
    flow.phase("edit")
    edits = await flow.map(editor, [f"Migrate {file}" for file in files], at_once=4)
    flow.phase("verify")
    return await flow.agent(judge, "; ".join(edits))


@pytest.mark.spec("WFL-01")
async def test_a_workflow_runs_its_steps_and_returns_a_typed_value(tmp_path: Path) -> None:
    model, phases = RecordingModel(), []
    async with model.open(tmp_path) as session:
        session.subscribe(
            lambda event: phases.append(event) if isinstance(event, WorkflowPhaseStarted) else None
        )
        verdict = await migrate.run(session, ["a", "b"])
    assert verdict == Verdict(good=True, why="done: Migrate a; done: Migrate b")
    assert sorted(model.prompts[:2]) == ["Migrate a", "Migrate b"]
    assert [event.phase for event in phases] == ["edit", "verify"]


@pytest.mark.spec("WFL-02")
async def test_a_resumed_workflow_asks_no_finished_agent_again(tmp_path: Path) -> None:
    model = RecordingModel()
    model.failing.add("done: Migrate a; done: Migrate b")
    async with model.open(tmp_path) as session:
        with pytest.raises(shoal.RunFailed):
            await migrate.run(session, ["a", "b"])
        ident = session.config.history.session
    model.failing.clear()
    model.prompts.clear()
    async with model.open(tmp_path, resume=ident) as session:
        verdict = await migrate.resume(session)
    assert verdict.good
    assert model.prompts == ["done: Migrate a; done: Migrate b"]
    model.prompts.clear()
    async with model.open(tmp_path, resume=ident) as session:
        assert await migrate.resume(session) == verdict
    assert model.prompts == []


@pytest.mark.spec("WFL-02")
async def test_a_step_can_be_run_again_on_purpose(tmp_path: Path) -> None:
    model = RecordingModel()
    async with model.open(tmp_path) as session:
        await migrate.run(session, ["a", "b"])
        ident = session.config.history.session
    model.prompts.clear()
    async with model.open(tmp_path, resume=ident) as session:
        await migrate.resume(session, rerun_from=3)
    assert model.prompts == ["done: Migrate a; done: Migrate b"]
    model.prompts.clear()
    async with model.open(tmp_path, resume=ident) as session:
        await migrate.resume(session, rerun_from=1)
    assert len(model.prompts) == 3


@pytest.mark.spec("WFL-03")
async def test_a_changed_program_is_refused_with_the_difference(tmp_path: Path) -> None:
    names = ["a", "b"]

    @shoal.workflow
    async def changing(flow: shoal.Workflow) -> None:
        await flow.map(editor, [f"Migrate {name}" for name in names])
        await flow.agent(editor, "stop here")

    model = RecordingModel()
    model.failing.add("stop here")
    async with model.open(tmp_path) as session:
        with pytest.raises(shoal.RunFailed):
            await changing.run(session)
        ident = session.config.history.session
    names[1] = "c"
    model.prompts.clear()
    async with model.open(tmp_path, resume=ident) as session:
        with pytest.raises(WorkflowChanged, match=r"recorded 'Migrate b', now 'Migrate c'\n.*rerun_from=2\."):
            await changing.resume(session)
    assert model.prompts == []


@pytest.mark.spec("WFL-02")
async def test_now_random_shell_and_answers_are_the_same_after_a_resume(tmp_path: Path) -> None:
    seen: list[Any] = []

    @shoal.workflow
    async def gather_facts(flow: shoal.Workflow) -> None:
        command = await flow.shell("echo ran >> log.txt; cat log.txt")
        await flow.sleep(0.001)
        answer = await flow.ask("Which color?", ["red", "blue"])
        seen.append((flow.now(), flow.now(), flow.random(), flow.random(), command.text, answer))
        if len(seen) == 1:
            raise ValueError("an error of the program")

    async def answer_question(session: shoal.Session[Any]) -> None:
        async for question in session.questions.watch_questions():
            assert isinstance(question, ChoiceQuestion)
            answer = ChoiceAnswer(answers={"Which color?": "blue"})
            session.questions.submit_answer(question.id, answer)

    model = RecordingModel()
    async with model.open(tmp_path, mode="bypassPermissions", attended=True) as session:
        answering = asyncio.create_task(answer_question(session))
        with pytest.raises(ValueError, match="an error of the program"):
            await gather_facts.run(session)
        answering.cancel()
        ident = session.config.history.session
    async with model.open(tmp_path, mode="bypassPermissions", resume=ident) as session:
        await gather_facts.resume(session)
    assert seen[0] == seen[1]
    assert seen[0][2] != seen[0][3]
    assert seen[0][5] == "blue"
    assert (tmp_path / "log.txt").read_text() == "ran\n"


class StartsAfterRefusal:
    """Agents that were started after the provider first refused for quota."""

    def __init__(self) -> None:
        self.is_refused = False
        self.before = 0
        self.after: list[AgentStarted] = []

    def count(self, event: Event) -> None:
        self.is_refused = self.is_refused or (isinstance(event, ModelRequestFailed) and event.quota)
        if isinstance(event, AgentStarted):
            if self.is_refused:
                self.after.append(event)
            else:
                self.before += 1


async def gather_and_raise_refusal(flow: shoal.Workflow, prompts: list[str]) -> list[str]:
    agents = (flow.agent(editor, prompt) for prompt in prompts)
    answers = await asyncio.gather(*agents, return_exceptions=True)
    raise next(answer for answer in answers if isinstance(answer, WorkflowError))


@pytest.mark.spec("WFL-04")
@pytest.mark.parametrize(
    ("run_agents", "most_at_once"),
    [
        (lambda flow, prompts: flow.map(editor, prompts, at_once=1), 1),
        (lambda flow, prompts: flow.map(editor, prompts, at_once=4), 4),
        # More than the places for running agents: the others wait for one.
        (lambda flow, prompts: flow.map(editor, prompts, at_once=1000), 20),
        (lambda flow, prompts: flow.pipeline(prompts, partial(flow.agent, editor), at_once=50), 20),
        (gather_and_raise_refusal, 20),
    ],
    ids=["map-1", "map-4", "map-1000", "pipeline-50", "gather"],
)
async def test_no_agent_is_started_after_the_provider_refused_for_quota(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_agents: Callable[[shoal.Workflow, list[str]], Awaitable[list[str]]],
    most_at_once: int,
) -> None:
    @shoal.workflow
    async def edit_all(flow: shoal.Workflow) -> list[str]:
        return await run_agents(flow, [f"{number}" for number in range(1000)])

    refusal = HttpErrorFault(status=400, message="Your credit balance is too low")
    replies = iter(["one", "two", *[refusal] * 1000])
    async with messages_server(lambda request: next(replies)) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        starts = StartsAfterRefusal()
        async with shoal.open(cwd=tmp_path, model="anthropic:claude-haiku-4-5") as session:
            session.subscribe(starts.count)
            with pytest.raises(WorkflowError, match=r"quota is exhausted \(.*credit balance"):
                await edit_all.run(session)
        assert starts.is_refused
        assert starts.after == []
        # Those that ran already may be refused too.
        assert 3 <= server.request_count <= 2 + most_at_once


@pytest.mark.spec("WFL-04")
@pytest.mark.parametrize("at_once", [1, 1000])
async def test_no_agent_is_started_after_an_own_model_refused_for_quota(tmp_path: Path, at_once: int) -> None:
    class BrokeModel(shoal.ScriptedModel):
        async def generate_reply(self, request: ModelRequest, on_delta: Any) -> Any:
            raise QuotaExceeded("credit balance is too low", provider="test", model="m")

    @shoal.workflow
    async def edit_all(flow: shoal.Workflow) -> list[str | None]:
        return await flow.map(editor, [f"{number}" for number in range(1000)], at_once=at_once, default=None)

    starts = StartsAfterRefusal()
    async with shoal.open(cwd=tmp_path, model=BrokeModel([])) as session:
        session.subscribe(starts.count)
        with pytest.raises(WorkflowError, match=r"quota is exhausted \(.*credit balance"):
            await edit_all.run(session)
    assert 1 <= starts.before <= min(at_once, 20)
    assert starts.after == []


@pytest.mark.spec("WFL-04")
async def test_a_default_replaces_the_answers_of_failed_agents(tmp_path: Path) -> None:
    @shoal.workflow
    async def judge_all(flow: shoal.Workflow) -> list[Verdict | None]:
        prompts = ["good", "empty"]
        return await flow.map(picky, prompts, output=Verdict, default=None)

    def reply(request: ModelRequest) -> ReplyLike:
        if request.messages[0].text == "good" and len(request.messages) == 1:
            return [ToolUseBlock(id="c", name="StructuredOutput", input={"good": True, "why": "x"})]
        return "no answer"

    picky = shoal.Agent("picky", prompt="You judge.", max_turns=1)
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(reply)) as session:
        assert await judge_all.run(session) == [Verdict(good=True, why="x"), None]


@pytest.mark.spec("WFL-01", "WFL-02")
async def test_the_directory_of_a_step_may_be_a_path(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()

    @shoal.workflow
    async def edit_inside(flow: shoal.Workflow) -> list[str]:
        first = await flow.agent(editor, "one", cwd=tmp_path / "inner")
        return [first, await flow.agent(editor, "two", cwd=tmp_path / "inner")]

    replies: Any = ["1", shoal.errors.BadRequest("no")]
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(replies)) as session:
        with pytest.raises(shoal.RunFailed):
            await edit_inside.run(session)
        name = session.id
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["2"]), resume=name) as session:
        assert await edit_inside.resume(session) == ["1", "2"]


@pytest.mark.spec("WFL-01")
async def test_items_of_a_pipeline_do_not_wait_for_each_other(tmp_path: Path) -> None:
    first_done, order = asyncio.Event(), []

    @shoal.workflow
    async def improve(flow: shoal.Workflow) -> list[str]:
        async def edit(item: str) -> str:
            if item == "slow":
                await first_done.wait()
            return await flow.agent(editor, item)

        async def check(text: str) -> str:
            order.append(text)
            first_done.set()
            return text.upper()

        return await flow.pipeline(["slow", "fast"], edit, check)

    async with RecordingModel().open(tmp_path) as session:
        assert await improve.run(session) == ["DONE: SLOW", "DONE: FAST"]
    assert order == ["done: fast", "done: slow"]


@pytest.mark.spec("WFL-05")
async def test_a_workflow_cannot_start_itself(tmp_path: Path) -> None:
    @shoal.workflow
    async def recurse(flow: shoal.Workflow) -> None:
        await recurse.run(session)

    async with RecordingModel().open(tmp_path) as session:
        with pytest.raises(WorkflowError, match="cannot start itself: recurse"):
            await recurse.run(session)


@pytest.mark.spec("WFL-05")
async def test_a_returned_value_must_fit_its_type(tmp_path: Path) -> None:
    @shoal.workflow
    async def lie(flow: shoal.Workflow) -> int:
        return "many"  # type: ignore[return-value]

    ends: list[WorkflowEnded] = []
    async with RecordingModel().open(tmp_path) as session:
        session.subscribe(lambda event: ends.append(event) if isinstance(event, WorkflowEnded) else None)
        with pytest.raises(WorkflowError, match="The value that lie returns does not match its type"):
            await lie.run(session)
    assert [end.status for end in ends] == ["failed"]


@pytest.mark.spec("WFL-05")
@pytest.mark.parametrize(
    ("returned_type", "returned", "expected"),
    [
        (dict[int, str], {1: "a"}, {1: "a"}),
        (dict[str, set[int]], {"s": {1, 2}}, {"s": {1, 2}}),
        (tuple[int, ...], (1, 2), (1, 2)),
        (dict, {1: (2, 3)}, {"1": [2, 3]}),
        (Any, {"s": (1, 2)}, {"s": [1, 2]}),
        (Verdict, Verdict(True, "x"), Verdict(True, "x")),
    ],
)
async def test_a_workflow_returns_the_same_value_when_it_is_resumed(
    tmp_path: Path, returned_type: Any, returned: Any, expected: Any
) -> None:
    async def make(flow: shoal.Workflow) -> Any:
        return returned

    make.__annotations__["return"] = returned_type
    make_value = shoal.workflow(make)
    async with RecordingModel().open(tmp_path) as session:
        values = [await make_value.run(session), await make_value.resume(session)]
    assert values == [expected, expected]


@pytest.mark.spec("WFL-05")
async def test_a_number_that_json_does_not_have_is_refused(tmp_path: Path) -> None:
    @shoal.workflow
    async def measure(flow: shoal.Workflow, start: float) -> dict[str, float]:
        return {"x": float("nan")}

    async with RecordingModel().open(tmp_path) as session:
        with pytest.raises(WorkflowError, match="The value that measure returns cannot be stored as JSON: "):
            await measure.run(session, 0.0)
        with pytest.raises(WorkflowError, match="The argument 'start' of measure cannot be stored as JSON: "):
            await measure.run(session, float("inf"))


async def test_an_output_type_may_have_keys_that_are_not_text(tmp_path: Path) -> None:
    call = ToolUseBlock(id="c", name="StructuredOutput", input={"1": "a"})
    model = shoal.ScriptedModel([[call], "done"])
    result = await shoal.run("Number them", cwd=tmp_path, model=model, output=dict[int, str])
    assert result.value == {1: "a"}


@pytest.mark.spec("WFL-05")
async def test_arguments_must_be_json(tmp_path: Path) -> None:
    @shoal.workflow
    async def take(flow: shoal.Workflow, thing: object) -> None: ...

    async with RecordingModel().open(tmp_path) as session:
        with pytest.raises(WorkflowError, match="The argument 'thing' of take cannot be stored as JSON"):
            await take.run(session, object())


@pytest.mark.spec("WFL-05")
async def test_a_workflow_that_loops_forever_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.app.workflows.step_runner.MAX_STEPS", 50)

    @shoal.workflow
    async def loop_forever(flow: shoal.Workflow) -> None:
        while True:
            flow.random()

    async with RecordingModel().open(tmp_path) as session:
        with pytest.raises(WorkflowError, match="called more than 50 steps"):
            await loop_forever.run(session)


def test_only_async_functions_with_a_workflow_are_workflows() -> None:
    with pytest.raises(TypeError, match="must be an async function"):

        @shoal.workflow  # type: ignore[arg-type]
        def plain(flow: shoal.Workflow) -> None: ...

    with pytest.raises(TypeError, match="needs the workflow as its first parameter"):

        @shoal.workflow  # type: ignore[arg-type]
        async def empty() -> None: ...

    with pytest.raises(TypeError, match=r"edit is a method\. Make it a function"):

        class Editor:
            @shoal.workflow  # type: ignore[arg-type]
            async def edit(self, flow: shoal.Workflow) -> None: ...

    with pytest.raises(TypeError, match=r"takes 'file' only by its position\. Remove the `/`"):

        @shoal.workflow
        async def positional(flow: shoal.Workflow, file: str, /) -> None: ...

    with pytest.raises(TypeError, match="takes any number of arguments as 'files'"):

        @shoal.workflow
        async def variadic(flow: shoal.Workflow, *files: str) -> None: ...


@pytest.mark.spec("WFL-05")
async def test_an_error_of_the_program_is_raised_and_its_results_stay(tmp_path: Path) -> None:
    problems = ["too early"]

    @shoal.workflow
    async def edit_and_raise(flow: shoal.Workflow) -> str:
        text = await flow.agent(editor, "one")
        if problems:
            raise LookupError(problems[0])
        return text

    model = RecordingModel()
    ends: list[WorkflowEnded] = []
    async with model.open(tmp_path) as session:
        session.subscribe(lambda event: ends.append(event) if isinstance(event, WorkflowEnded) else None)
        with pytest.raises(LookupError, match="too early"):
            await edit_and_raise.run(session)
        ident = session.id
    assert [(end.status, end.detail) for end in ends] == [("failed", "LookupError: too early")]
    problems.clear()
    async with model.open(tmp_path, resume=ident) as session:
        assert await edit_and_raise.resume(session) == "done: one"
    assert model.prompts == ["one"]


@pytest.mark.spec("WFL-05")
async def test_an_output_type_without_a_schema_is_refused_before_anything_starts(tmp_path: Path) -> None:
    class Opaque:
        def __init__(self, secret: object) -> None: ...

    @shoal.workflow
    async def ask_for_object(flow: shoal.Workflow) -> None:
        await flow.agent(editor, "one", output=Opaque)

    model = RecordingModel()
    async with model.open(tmp_path) as session:
        with pytest.raises(TypeError, match="output=Opaque cannot be described as JSON Schema"):
            await ask_for_object.run(session)
    assert model.prompts == []


EDITED = """
import shoal

editor = shoal.Agent("editor", prompt="You edit.")


@shoal.workflow
async def edit(flow: shoal.Workflow) -> str:
    first = await flow.agent(editor, "one")
    return first + " " + await flow.agent(editor, "two")
"""


@pytest.mark.spec("WFL-05")
async def test_a_file_that_is_edited_while_its_workflow_runs_is_noted_at_the_resume(tmp_path: Path) -> None:
    from shoal.app.workflows.workflow_loader import load_workflow_file

    path = tmp_path / "edit.py"
    path.write_text(EDITED)
    model = RecordingModel()
    model.failing.add("two")

    def edit_file(event: Event) -> None:
        if isinstance(event, AgentStarted):
            path.write_text(EDITED.replace('"two"', '"three"'))

    async with model.open(tmp_path) as session:
        session.subscribe(edit_file)
        with pytest.raises(shoal.RunFailed):
            await load_workflow_file(path, "edit").run(session)
        ident = session.id
    assert model.prompts == ["one", "two"]
    notes: list[str] = []
    async with model.open(tmp_path, resume=ident) as session:
        session.subscribe(lambda event: notes.append(event.text) if isinstance(event, NoteAdded) else None)
        assert await load_workflow_file(path, "edit").resume(session) == "done: one done: three"
    assert model.prompts == ["one", "two", "three"]
    assert any("has changed since it ran" in note for note in notes)


@pytest.mark.spec("WFL-05")
async def test_a_second_program_cannot_resume_the_same_workflow(tmp_path: Path) -> None:
    model = RecordingModel()
    async with model.open(tmp_path) as session:
        await migrate.run(session, ["a"])
        with pytest.raises(shoal.ShoalError, match=r"another process|already|in use|is open"):
            async with model.open(tmp_path, resume=session.id) as other:
                await migrate.resume(other)


@pytest.mark.spec("WFL-04")
async def test_a_refused_agent_ends_the_workflow_with_one_error(tmp_path: Path) -> None:
    @shoal.workflow
    async def edit_all(flow: shoal.Workflow) -> list[str]:
        return await flow.map(editor, [str(number) for number in range(20)], at_once=4)

    async with RecordingModel().open(tmp_path, max_agents=3) as session:
        with pytest.raises(WorkflowError, match="The agent was not started"):
            await edit_all.run(session)


@pytest.mark.spec("WFL-01")
@pytest.mark.needs("git", "bwrap")
async def test_a_workflow_merges_the_work_of_agents_in_worktrees(tmp_path: Path) -> None:
    repository = GitRepository(tmp_path)
    problems = ["stop before the merge"]

    @shoal.workflow
    async def write_files(flow: shoal.Workflow) -> list[str]:
        texts = await flow.map(writer, ["a.txt", "b.txt"], isolation="worktree")
        if problems:
            raise ValueError(problems[0])
        for work in flow.worktrees:
            assert (await flow.shell(f"git merge -q {work.ref}")).ok
        return texts

    def reply(request: ModelRequest) -> ReplyLike:
        file = request.messages[0].text.splitlines()[-1]
        if len(request.messages) == 1:
            return [ToolUseBlock(id="w", name="Write", input={"file_path": file, "content": "new"})]
        return f"wrote {file}"

    writer = shoal.Agent("writer", prompt="You write.", mode="acceptEdits")
    model = shoal.ScriptedModel(reply)
    options: Any = {"cwd": repository.top, "model": model, "mode": "bypassPermissions"}
    async with shoal.open(**options) as session:
        with pytest.raises(ValueError, match="stop before the merge"):
            await write_files.run(session)
        ident = session.id
    assert not (repository.top / "a.txt").exists()
    problems.clear()
    async with shoal.open(**options, resume=ident) as session:
        assert await write_files.resume(session) == ["wrote a.txt", "wrote b.txt"]
    assert [(repository.top / name).read_text() for name in ("a.txt", "b.txt")] == ["new", "new"]


@pytest.mark.spec("WFL-05")
async def test_no_step_of_a_failed_workflow_runs_on(tmp_path: Path) -> None:
    hanging, late = asyncio.Event(), []

    class HangingModel(shoal.ScriptedModel):
        async def generate_reply(self, request: ModelRequest, on_delta: Any) -> Any:
            if request.messages[0].text == "hang":
                hanging.set()
                await asyncio.Event().wait()
            return await super().generate_reply(request, on_delta)

    @shoal.workflow
    async def fail_early(flow: shoal.Workflow) -> None:
        async def hang_and_continue() -> None:
            try:
                await flow.agent(editor, "hang")
            finally:
                try:
                    await flow.agent(editor, "late")
                except WorkflowError as error:
                    late.append(str(error))

        async def fail() -> None:
            await hanging.wait()
            raise LookupError("no")

        await asyncio.gather(hang_and_continue(), fail())

    started: list[Event] = []
    async with shoal.open(cwd=tmp_path, model=HangingModel(lambda request: "done")) as session:
        session.subscribe(lambda event: started.append(event) if isinstance(event, AgentStarted) else None)
        with pytest.raises(LookupError):
            await fail_early.run(session)
        assert not session.supervisor.has_running_agents
    assert len(started) == 1
    assert "the workflow fail_early-" in late[0]
    assert "has ended" in late[0]


@pytest.mark.spec("WFL-05")
async def test_a_step_in_another_event_loop_is_refused(tmp_path: Path) -> None:
    @shoal.workflow
    async def edit_in_thread(flow: shoal.Workflow) -> str:
        return await asyncio.to_thread(lambda: asyncio.run(flow.agent(editor, "a")))

    async with RecordingModel().open(tmp_path) as session:
        with pytest.raises(WorkflowError, match="outside the event loop of the workflow"):
            await edit_in_thread.run(session)


@pytest.mark.spec("WFL-05")
@pytest.mark.parametrize("call", ["now", "random", "phase"])
async def test_a_call_of_a_workflow_in_a_plain_thread_is_refused(tmp_path: Path, call: str) -> None:
    @shoal.workflow
    async def call_in_thread(flow: shoal.Workflow) -> None:
        arguments = ("late",) if call == "phase" else ()
        await asyncio.to_thread(getattr(flow, call), *arguments)

    async with RecordingModel().open(tmp_path) as session:
        with pytest.raises(WorkflowError, match="outside the event loop of the workflow"):
            await call_in_thread.run(session)


async def test_a_workflow_is_run_and_not_called(tmp_path: Path) -> None:
    @shoal.workflow
    async def greet(flow: shoal.Workflow) -> str:
        return await flow.agent(editor, "a")

    call: Any = greet
    with pytest.raises(TypeError, match=r"greet is a workflow. Run it: `await greet.run\(session"):
        await call("go")


@pytest.mark.spec("WFL-01")
async def test_a_phase_of_one_item_is_not_that_of_the_others(tmp_path: Path) -> None:
    @shoal.workflow
    async def edit_in_phases(flow: shoal.Workflow) -> list[str]:
        async def edit(file: str) -> str:
            if file == "a":
                flow.phase("first")
                return "none"
            return await flow.agent(editor, file)

        return await flow.pipeline(["a", "b", "c"], edit, at_once=10**12)

    events: list[shoal.Event] = []
    async with RecordingModel().open(tmp_path) as session:
        session.subscribe(events.append)
        assert await edit_in_phases.run(session) == ["none", "done: b", "done: c"]
    started = [event for event in events if isinstance(event, shoal.events.WorkflowStepStarted)]
    assert [event.phase for event in started] == ["", ""]
