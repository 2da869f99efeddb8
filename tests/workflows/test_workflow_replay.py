"""Replay of resumed workflows: an unchanged program repeats nothing, a changed one is refused loudly."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

import shoal
from shoal.app.workflows import replay_gate
from shoal.app.workflows.workflow_loader import load_workflow_file
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import WorkflowChanged, WorkflowError, WorkflowStopped
from shoal.core.events import Event, NoteAdded, WorkflowStepFinished, WorkflowStepStarted

HEAD = """
import asyncio
import shoal

editor = shoal.Agent("editor", prompt="You edit.", tools=[])
writer = shoal.Agent("writer", prompt="You edit.", tools=[])


@shoal.workflow
async def job(flow: shoal.Workflow):
"""


class EditedWorkflow:
    """A workflow in a file that changes between two runs."""

    def __init__(self, directory: Path, *failing: str) -> None:
        self.directory = directory
        self.prompts: list[str] = []
        self.events: list[Event] = []
        self.failing = set(failing)
        self.session = ""
        self.options: dict[str, Any] = {}

    def write(self, body: str) -> Any:
        path = self.directory / "job.py"
        path.write_text(HEAD + indent(body, "    "))
        return load_workflow_file(path, "job")

    def open(self) -> shoal.Session[None]:
        def reply(request: ModelRequest) -> Any:
            prompt = request.messages[0].text
            self.prompts.append(prompt)
            if prompt in self.failing:
                return shoal.errors.BadRequest("no")
            return f"did {prompt}"

        more: Any = {"mode": "bypassPermissions", **self.options}
        if self.session:
            more["resume"] = self.session
        return shoal.open(cwd=self.directory, model=shoal.ScriptedModel(reply), **more)

    async def fail(self, body: str) -> None:
        """Run the workflow until an agent fails."""
        async with self.open() as session:
            self.session = session.id
            session.subscribe(self.events.append)
            with pytest.raises(shoal.RunFailed):
                await self.write(body).run(session)
        self.failing.clear()

    async def resume(self, body: str, **options: Any) -> Any:
        """Resume the workflow; `prompts` and `events` are those of this run."""
        self.prompts.clear()
        self.events.clear()
        async with self.open() as session:
            session.subscribe(self.events.append)
            async with asyncio.timeout(60):
                return await self.write(body).resume(session, **options)


EDIT = """
flow.phase("edit")
await flow.agent(editor, "one")
await flow.agent(editor, "two")
await flow.agent(editor, "stop")
"""
MAP = """
await flow.map(editor, ["a", "b", "c"])
await flow.agent(editor, "stop")
"""
GATHER = """
await asyncio.gather(*[flow.agent(editor, name) for name in ("a", "b", "c")])
await flow.agent(editor, "stop")
"""
HELPER = """
async def help_edit(prompt):
    return await flow.agent(editor, prompt)
"""
CAUGHT = """
flow.phase("edits")
for prompt in ("one", "two", "stop"):
    try:
        await flow.agent(editor, prompt)
    except Exception:
        pass
"""
GROUP = """
async with asyncio.TaskGroup() as group:
    for name in ("a", "b", "c"):
        group.create_task(flow.agent(editor, name))
await flow.agent(editor, "stop")
"""
WAIT = """
await asyncio.wait([asyncio.ensure_future(flow.agent(editor, name)) for name in ("a", "b", "c")])
await flow.agent(editor, "stop")
"""
PIPELINE = """
async def edit(name):
    return await flow.agent(editor, name)
await flow.pipeline(["a", "b", "c"], edit)
await flow.agent(editor, "stop")
"""
TIME = """
flow.now()
await flow.agent(editor, "one")
await flow.agent(editor, "stop")
"""
TWO = 'await flow.agent(editor, "two")'
CHANGES: dict[str, tuple[str, str, str, str]] = {
    "phase renamed": (EDIT, EDIT.replace('"edit"', '"edits"'), "edit/agent editor", "edits/agent editor"),
    "agent renamed": (EDIT, EDIT.replace('editor, "one"', 'writer, "one"'), "agent editor", "agent writer"),
    "helper function": (EDIT, HELPER + EDIT.replace(TWO, 'await help_edit("two")'), "'two'", "help_edit/"),
    "helper renamed": (
        HELPER + EDIT.replace(TWO, 'await help_edit("two")'),
        (HELPER + EDIT.replace(TWO, 'await help_edit("two")')).replace("help_edit", "edit_helper"),
        "help_edit/",
        "edit_helper/",
    ),
    "step removed": (EDIT, EDIT.replace(TWO, ""), "'two'", "'stop'"),
    "step inserted": (EDIT, EDIT.replace(TWO, f'await flow.shell("touch new")\n{TWO}'), "'two'", "shell"),
    "error caught": (EDIT, CAUGHT, "edit/agent editor", "edits/agent editor"),
    "all removed": (EDIT, "return 'nothing'", "edit/agent editor", "the program ends"),
    "map to gather": (MAP, GATHER, "map editor: 'a'", "agent editor: 'a'"),
    "map to task group": (MAP, GROUP, "map editor: 'a'", "agent editor: 'a'"),
    "map to wait": (MAP, WAIT, "map editor: 'a'", "agent editor: 'a'"),
    "map to pipeline": (MAP, PIPELINE, "map editor: 'a'", "agent editor: 'a'"),
    "map to agent": (MAP, 'for name in "abc":\n    await flow.agent(editor, name)\n', "map", "agent"),
    "gather to map": (GATHER, MAP, "agent editor: 'a'", "map editor: 'a'"),
    "prompt of a map": (MAP, MAP.replace('"b"', '"x"'), "'b'", "'x'"),
    "now to random": (TIME, TIME.replace("now", "random"), "recorded: now", "'stop'"),
}


@pytest.mark.spec("WFL-03")
@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_program_starts_nothing_and_shows_the_difference(tmp_path: Path, change: str) -> None:
    first, second, recorded, now = CHANGES[change]
    workflow = EditedWorkflow(tmp_path, "stop")
    await workflow.fail(first)
    with pytest.raises(WorkflowChanged) as caught:
        await workflow.resume(second)
    lines = str(caught.value).splitlines()
    assert recorded in lines[1], caught.value
    assert now in lines[2], caught.value
    assert f"pass rerun_from={caught.value.step}. This repeats" in lines[-1]
    assert workflow.prompts == []
    assert not (tmp_path / "new").exists()
    # The journal has nothing of the changed program, so the old one still continues.
    assert not any(isinstance(event, WorkflowStepStarted) for event in workflow.events)
    await workflow.resume(first)
    assert workflow.prompts == ["stop"]


@pytest.mark.spec("WFL-03")
@pytest.mark.parametrize("is_completed", [True, False])
async def test_a_refused_repetition_keeps_the_recorded_steps(tmp_path: Path, is_completed: bool) -> None:
    workflow = EditedWorkflow(tmp_path, "stop")
    body = EDIT + 'await flow.agent(editor, "last")\nreturn "all"\n'
    await workflow.fail(body)
    if is_completed:
        assert await workflow.resume(body) == "all"
    for _ in range(2):
        with pytest.raises(WorkflowChanged):
            await workflow.resume(body.replace('"one"', '"changed"'), rerun_from=2)
        assert workflow.prompts == []
    assert await workflow.resume(body) == "all"
    assert workflow.prompts == ([] if is_completed else ["stop", "last"])
    # A repetition that starts a step replaces the recorded ones.
    assert await workflow.resume(body, rerun_from=3) == "all"
    assert workflow.prompts == ["stop", "last"]


@pytest.mark.spec("WFL-03")
async def test_the_step_that_the_error_names_runs_again_on_purpose(tmp_path: Path) -> None:
    workflow = EditedWorkflow(tmp_path, "stop")
    await workflow.fail(EDIT)
    changed = EDIT.replace('"two"', '"three"')
    with pytest.raises(WorkflowChanged) as caught:
        await workflow.resume(changed)
    await workflow.resume(changed, rerun_from=caught.value.step)
    assert workflow.prompts == ["three", "stop"]


@pytest.mark.spec("WFL-03")
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"one"', '"uno"', "prompt: recorded 'one', now 'uno'"),
        ('"You edit."', '"You edit well."', "agent prompt: recorded 'You edit.', now 'You edit well.'"),
        ("tools=[]", 'tools=["Read"]', "agent tools: recorded '[]', now '[\"Read\"]'"),
        ('"one"', '"one", model="sonnet"', "options model: recorded nothing, now 'sonnet'"),
        ('"one"', '"one", output=int', "output type: recorded nothing, now"),
        ('"' + "x" * 900 + 'A"', '"' + "x" * 900 + 'B"', "xxxA', now …'xxx"),
    ],
    ids=["prompt", "agent's prompt", "agent's tools", "option", "output", "end of a long prompt"],
)
async def test_the_difference_names_the_part_of_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, expected: str
) -> None:
    body = EDIT.replace('"one"', old) if "x" in old else EDIT
    workflow = EditedWorkflow(tmp_path, "stop")
    await workflow.fail(body)
    monkeypatch.setattr(f"{__name__}.HEAD", HEAD.replace(old, new, 1))
    with pytest.raises(WorkflowChanged) as caught:
        await workflow.resume(body.replace(old, new))
    assert expected in str(caught.value)
    assert workflow.prompts == []


@pytest.mark.spec("WFL-03")
async def test_a_long_prompt_is_stored_once_and_compared_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "You edit files.\\n" + "Follow the rules.\\n" * 20
    head = HEAD.replace("You edit.", text)
    monkeypatch.setattr(f"{__name__}.HEAD", head)
    workflow = EditedWorkflow(tmp_path, "stop")
    await workflow.fail(MAP)
    started = [event for event in workflow.events if isinstance(event, WorkflowStepStarted)]
    assert [type(event.input["agent prompt"]) for event in started] == [str, int, int, int]
    monkeypatch.setattr(f"{__name__}.HEAD", head.replace("edit files", "edit few files"))
    with pytest.raises(WorkflowChanged) as caught:
        await workflow.resume(MAP)
    assert "    -You edit files.\n    +You edit few files.\n" in str(caught.value)


# Legitimate replays

BRANCHES = """
async def pause():
    await asyncio.to_thread(len, "")

async def check(text):
    await pause()
    flow.phase("check")
    return await flow.agent(writer, text)

async def edit(name):
    flow.phase(f"edit {name}")
    text = await flow.agent(editor, name)
    await pause()
    return text

async def count():
    total = 0
    for number in range(3):
        await pause()
        total += len(await flow.agent(editor, f"count {number}"))
        flow.random()
    return total

async def try_twice():
    try:
        await flow.agent(editor, "bad")
    except shoal.RunFailed:
        pass
    return await flow.agent(editor, "after bad")

async with asyncio.TaskGroup() as group:
    counted = group.create_task(count())
    tried = group.create_task(try_twice())
    checked = await flow.pipeline(["p", "q", "r"], edit, check, at_once=2)
    mapped = await flow.map(editor, ["m", "n", "o", "bad"], at_once=2, default="none", output=None)
    same = await asyncio.gather(*[flow.agent(editor, "same") for _ in range(3)])
started = flow.now().isoformat()
last = await flow.agent(writer, "last")
return [counted.result(), tried.result(), checked, mapped, same, last]
"""
STEPS = 21


class Stopper:
    """Stops the workflow of a session when a number of its steps have finished."""

    def __init__(self, session: shoal.Session[None], steps: int) -> None:
        self._session = session
        self._remaining = steps
        self.tasks: list[asyncio.Task[Any]] = []

    def count(self, event: Event) -> None:
        if isinstance(event, WorkflowStepFinished):
            self._remaining -= 1
            if self._remaining == 0:
                self.tasks.append(asyncio.ensure_future(self._session.workflows.stop_all("test")))


@pytest.mark.spec("WFL-02", "WFL-03")
@pytest.mark.parametrize("stop_after", range(1, STEPS, 3))
async def test_branches_that_run_at_the_same_time_are_replayed(tmp_path: Path, stop_after: int) -> None:
    """Each run stops after a few more steps. No run is refused, and no finished step runs again."""
    workflow = EditedWorkflow(tmp_path, "bad")
    calls: Counter[str] = Counter()
    finished: list[int] = []
    value = None
    while value is None:
        workflow.prompts.clear()
        async with workflow.open() as session:
            definition = workflow.write(BRANCHES)
            stopper = Stopper(session, stop_after)
            session.subscribe(stopper.count)
            session.subscribe(
                lambda event: finished.append(event.step) if isinstance(event, WorkflowStepFinished) else None
            )
            try:
                async with asyncio.timeout(60):
                    value = await (
                        definition.resume(session) if workflow.session else definition.run(session)
                    )
            except WorkflowStopped:
                await asyncio.wait(stopper.tasks)
            workflow.session = session.id
        calls.update(set(workflow.prompts))
    assert value[1:] == [
        "did after bad",
        ["did did p", "did did q", "did did r"],
        ["did m", "did n", "did o", "none"],
        ["did same"] * 3,
        "did last",
    ]
    assert len(finished) == len(set(finished)) == STEPS
    assert calls["after bad"] == calls["last"] == calls["did p"] == 1


@pytest.mark.spec("WFL-03")
async def test_new_steps_wait_for_a_branch_that_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_gate, "NOTE_SECONDS", 0.01)
    workflow, may_continue = EditedWorkflow(tmp_path, "stop"), threading.Event()
    monkeypatch.setattr(shoal, "may_continue", may_continue, raising=False)
    body = """
async def work_slowly():
    await asyncio.to_thread(shoal.may_continue.wait, 30)
    await flow.agent(editor, "slow")

async def stop_after(task):
    await task
    await flow.agent(editor, "stop")

slow = asyncio.create_task(work_slowly())
await asyncio.gather(stop_after(slow), NEW)
"""
    may_continue.set()
    await workflow.fail(body.replace("NEW", "flow.sleep(0)"))
    may_continue.clear()

    class Events(list[Event]):
        def append(self, event: Event) -> None:
            super().append(event)
            if isinstance(event, NoteAdded) and "starts no new steps yet" in event.text:
                may_continue.set()

    workflow.events = Events()
    await workflow.resume(body.replace("NEW", 'flow.sleep(0), flow.agent(editor, "new")'))
    assert sorted(workflow.prompts) == ["new", "stop"]
    notes = [event.text for event in workflow.events if isinstance(event, NoteAdded)]
    assert any("starts no new steps yet" in note and "agent editor" in note for note in notes)


@pytest.mark.spec("WFL-03")
async def test_a_branch_that_waits_for_something_else_for_too_long_is_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_gate, "NOTE_SECONDS", 0.01)
    monkeypatch.setattr(replay_gate, "PATIENCE_SECONDS", 0.01)
    workflow = EditedWorkflow(tmp_path, "stop")
    await workflow.fail(EDIT)
    forever = "waiting = asyncio.create_task(asyncio.Event().wait())\n"
    with pytest.raises(WorkflowChanged, match="no longer calls step 1"):
        await workflow.resume(forever + EDIT.replace('"edit"', '"edits"'))
    assert workflow.prompts == []


INNER = """
@shoal.workflow
async def check(flow: shoal.Workflow, name: str):
    await flow.agent(editor, f"check {name}")
    return await flow.agent(editor, f"judge {name}")


@shoal.workflow
async def job(flow: shoal.Workflow):
"""
OUTER = """
session = shoal.test_session
first = await check.run(session, "a")
both = await asyncio.gather(check.run(session, "b"), check.run(session, "c"))
return [first, *both, await flow.agent(editor, "last")]
"""


class NestedWorkflow(EditedWorkflow):
    def write(self, body: str) -> Any:
        path = self.directory / "job.py"
        path.write_text(
            HEAD.replace("\n@shoal.workflow\nasync def job(flow: shoal.Workflow):\n", INNER)
            + indent(body, "    ")
        )
        return load_workflow_file(path, "job")


@pytest.mark.spec("WFL-02")
@pytest.mark.parametrize("failing", ["check a", "judge a", "last"])
async def test_a_workflow_in_a_workflow_continues_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    workflow = NestedWorkflow(tmp_path, failing)
    async with workflow.open() as session:
        monkeypatch.setattr(shoal, "test_session", session, raising=False)
        workflow.session = session.id
        with pytest.raises(shoal.RunFailed):
            await workflow.write(OUTER).run(session)
    before = Counter(workflow.prompts)
    workflow.failing.clear()
    workflow.prompts.clear()
    async with workflow.open() as session:
        monkeypatch.setattr(shoal, "test_session", session, raising=False)
        value = await workflow.write(OUTER).resume(session)
        records = session.workflows.read_records().workflows.values()
    assert value == ["did judge a", "did judge b", "did judge c", "did last"]
    assert Counter(workflow.prompts) + before == {
        **dict.fromkeys(("check a", "judge a", "check b", "judge b", "check c", "judge c", "last"), 1),
        failing: 2,
    }
    assert sorted(record.started.name for record in records) == ["check", "check", "check", "job"]
    workflow.prompts.clear()
    async with workflow.open() as session:
        monkeypatch.setattr(shoal, "test_session", session, raising=False)
        await workflow.write(OUTER).resume(session, rerun_from=2)
    assert sorted(workflow.prompts) == ["check b", "check c", "judge b", "judge c", "last"]


@pytest.mark.spec("WFL-03")
async def test_a_refused_repetition_keeps_an_inner_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = NestedWorkflow(tmp_path, "judge b")
    async with workflow.open() as session:
        monkeypatch.setattr(shoal, "test_session", session, raising=False)
        workflow.session = session.id
        with pytest.raises(shoal.RunFailed):
            await workflow.write(OUTER).run(session)
    workflow.failing.clear()
    workflow.prompts.clear()
    async with workflow.open() as session:
        monkeypatch.setattr(shoal, "test_session", session, raising=False)
        with pytest.raises(WorkflowChanged):
            await workflow.write(OUTER.replace('"a"', '"z"')).resume(session, rerun_from=2)
        assert workflow.prompts == []
        await workflow.write(OUTER).resume(session)
    assert "judge b" in workflow.prompts
    assert "check b" not in workflow.prompts


FALLBACK = """
try:
    text = await flow.agent(editor, "risky")
except shoal.RunFailed:
    text = await flow.agent(writer, "fallback")
reports = await flow.map(editor, ["a", "bad"], default="none")
summary = await flow.agent(writer, f"sum up {text} {reports}")
return await flow.agent(editor, "stop")
"""


@pytest.mark.spec("WFL-02", "WFL-03")
@pytest.mark.parametrize("still_failing", [{"risky", "bad"}, {"risky"}, set()], ids=["both", "one", "none"])
async def test_a_program_that_handles_failures_is_not_taken_for_a_changed_one(
    tmp_path: Path, still_failing: set[str]
) -> None:
    workflow = EditedWorkflow(tmp_path, "risky", "bad", "stop")
    await workflow.fail(FALLBACK)
    workflow.failing = set(still_failing)
    assert await workflow.resume(FALLBACK) == "did stop"
    notes = [event.text for event in workflow.events if isinstance(event, NoteAdded)]
    is_same = still_failing == {"risky", "bad"}
    assert any("but succeeded this time" in note for note in notes) == (not is_same)
    # Finished agents are asked again only with another prompt.
    assert {"a", "fallback"}.isdisjoint(workflow.prompts)
    assert sum(prompt.startswith("sum up") for prompt in workflow.prompts) == (not is_same)


@pytest.mark.spec("WFL-03")
async def test_a_change_before_a_step_that_failed_is_still_refused(tmp_path: Path) -> None:
    workflow = EditedWorkflow(tmp_path, "risky", "stop")
    body = 'await flow.agent(editor, "one")\n' + FALLBACK
    await workflow.fail(body)
    with pytest.raises(WorkflowChanged, match="no longer calls step 1"):
        await workflow.resume(body.replace('"one"', '"uno"'))
    assert workflow.prompts == []


CAUGHT_ERRORS = """
async def try_step(step):
    try:
        return await step
    except shoal.errors.WorkflowError as error:
        return f"caught {str(error)[:40]}"

found = [await try_step(flow.ask("Go?", ["yes", "no"])), await try_step(flow.shell("touch made"))]
found.append(await flow.agent(editor, "caught" if "caught" in found[0] else "answered"))
found += await asyncio.gather(try_step(flow.shell("touch other")), flow.agent(editor, "beside"))
await flow.agent(editor, "stop")
return found
"""
UNCAUGHT_ERRORS = {
    "raised": 'await flow.agent(editor, "one")\nreturn await flow.ask("Go?", ["yes"])\n',
    "wrapped": """
await flow.agent(editor, "one")
try:
    return await flow.ask("Go?", ["yes"])
except shoal.errors.WorkflowError as error:
    raise RuntimeError("stopped") from error
""",
    "replaced": """
await flow.agent(editor, "one")
try:
    return await flow.ask("Go?", ["yes"])
except shoal.errors.WorkflowError:
    raise RuntimeError("stopped")
""",
    "cleanup": """
await flow.agent(editor, "one")
try:
    return await flow.ask("Go?", ["yes"])
finally:
    flow.now()
""",
    "group": """
await flow.agent(editor, "one")
async with asyncio.TaskGroup() as group:
    asked = group.create_task(flow.ask("Go?", ["yes"]))
    other = group.create_task(flow.sleep(0))
return asked.result()
""",
}


def answer_yes(question: shoal.Question) -> shoal.Answer:
    assert isinstance(question, shoal.ChoiceQuestion)
    return question.choose("yes")


@pytest.mark.spec("WFL-02", "WFL-03")
async def test_an_error_that_the_program_caught_is_raised_again(tmp_path: Path) -> None:
    workflow = EditedWorkflow(tmp_path, "stop")
    workflow.options = {"mode": "default"}
    await workflow.fail(CAUGHT_ERRORS)
    errors = [event.error for event in workflow.events if isinstance(event, WorkflowStepFinished)]
    assert sum(bool(error) for error in errors) == 3
    # Now both would succeed: a person answers, and commands run.
    workflow.options = {"mode": "bypassPermissions", "on_question": answer_yes}
    found = await workflow.resume(CAUGHT_ERRORS)
    assert workflow.prompts == ["stop"]
    assert [text.partition(" ")[0] for text in found] == ["caught", "caught", "did", "caught", "did"]
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "other").exists()
    # On purpose, the steps run again.
    found = await workflow.resume(CAUGHT_ERRORS, rerun_from=1)
    assert found[0] == "yes"
    assert (tmp_path / "made").exists()


@pytest.mark.spec("WFL-02")
@pytest.mark.parametrize("name", UNCAUGHT_ERRORS)
async def test_a_step_whose_error_ended_the_workflow_runs_again(tmp_path: Path, name: str) -> None:
    body, workflow = UNCAUGHT_ERRORS[name], EditedWorkflow(tmp_path)
    for _ in range(2):
        async with workflow.open() as session:
            definition = workflow.write(body)
            with pytest.raises((WorkflowError, RuntimeError, ExceptionGroup)):
                await (definition.resume(session) if workflow.session else definition.run(session))
            workflow.session = session.id
    assert workflow.prompts == ["one"]
    workflow.options = {"on_question": answer_yes}
    assert await workflow.resume(body) == "yes"
    assert workflow.prompts == []


@pytest.mark.spec("WFL-02")
async def test_after_a_stop_an_error_counts_if_a_step_followed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a later step, nothing depends on the error; with one, the program must get it again."""
    for later, expected in (("", "yes"), ("flow.now()\n    ", "no answer")):
        body = f"""
try:
    answer = await flow.ask("Go?", ["yes"])
except shoal.errors.WorkflowError:
    {later}answer = "no answer"
await asyncio.sleep(3600 if shoal.hangs else 0)
return answer
"""
        directory = tmp_path / str(len(later))
        directory.mkdir()
        workflow = EditedWorkflow(directory)
        monkeypatch.setattr(shoal, "hangs", True, raising=False)
        async with workflow.open() as session:
            stopper = Stopper(session, 2 if later else 1)
            session.subscribe(stopper.count)
            with pytest.raises(WorkflowStopped):
                await workflow.write(body).run(session)
            await asyncio.wait(stopper.tasks)
            workflow.session = session.id
        monkeypatch.setattr(shoal, "hangs", False, raising=False)
        workflow.options = {"on_question": answer_yes}
        assert await workflow.resume(body) == expected
