"""Planning before doing: who may change what, and which plan was approved."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.errors import StateFileError
from shoal.core.events import Event, QuestionAsked, RunFinished, ToolOutputReturned
from shoal.core.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.questions import DenyAnswer, PlanApprovalAnswer, PlanApprovalQuestion
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.plan_tools import compute_plan_digest


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id=call_id, name=name, input=arguments)


def write(call_id: str = "w") -> ToolUseBlock:
    return call("Write", call_id, file_path="made.txt", content="x")


TESTS = {"tool": "Bash", "prompt": "run tests"}


def plans() -> list[Path]:
    return sorted((Path(os.environ["SHOAL_HOME"]) / "plans").glob("*.md"))


def results(events: list[Event]) -> dict[str, tuple[bool, str]]:
    return {
        event.call: (event.result.is_error, extract_tool_result_text(event.result))
        for event in events
        if isinstance(event, ToolOutputReturned)
    }


class Person:
    """Answers each plan as it comes."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[PlanApprovalQuestion] = []

    async def work(self, session: shoal.Session) -> list[Event]:
        events: list[Event] = []
        async with asyncio.timeout(20):
            async for event in session.run("go"):
                events.append(event)
                if isinstance(event, QuestionAsked):
                    assert isinstance(event.question, PlanApprovalQuestion)
                    self.asked.append(event.question)
                    answer = self.answers.pop(0)
                    answer = answer(event.question) if callable(answer) else answer
                    session.services.question_broker.submit_answer(event.question.id, answer)
        assert isinstance(events[-1], RunFinished)
        return events


def approve(question: PlanApprovalQuestion) -> PlanApprovalAnswer:
    return PlanApprovalAnswer(digest=question.digest)


async def run_session(tmp_path: Path, mind: list[Any], person: Person, **options: Any) -> list[Event]:
    options = {"mode": "plan", "attended": True, **options}
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind), **options) as session:
        return await person.work(session)


@pytest.mark.spec("PLN-03", "USR-26", "HOM-02")
async def test_nothing_is_written_before_the_plan_is_approved(tmp_path: Path) -> None:
    person = Person(lambda question: approve(question) if not (tmp_path / "made.txt").exists() else None)
    mind = [
        write("early"),
        call("Bash", "early-too", command="touch made.txt"),
        call(
            "ExitPlanMode",
            "exit",
            plan="# Make it\n",
            allowedPrompts=[{"tool": "Bash", "prompt": "run tests"}],
        ),
        call("Bash", "reads", command="ls"),
        write("late"),
        "done",
    ]
    found = results(await run_session(tmp_path, mind, person, allowed_tools=["Write"]))
    assert found["early"][0]
    assert "in plan mode nothing is changed" in found["early"][1]
    assert found["early-too"][0]
    assert not found["exit"][0]
    assert not found["late"][0]
    (question,) = person.asked
    (file,) = plans()
    assert (question.plan, question.digest) == ("# Make it\n", compute_plan_digest("# Make it\n"))
    assert question.wishes == ("Bash: run tests",)
    assert (question.path, file.read_text()) == (str(file), "# Make it\n")
    assert len(file.stem.split("-")) == 3


@pytest.mark.spec("PLN-02")
async def test_a_rejected_plan_leaves_plan_mode_on_and_is_asked_again_under_a_new_id(tmp_path: Path) -> None:
    person = Person(
        DenyAnswer(reason="test it too."), lambda q: PlanApprovalAnswer(digest=q.digest, mode="acceptEdits")
    )
    mind = [
        call("ExitPlanMode", "first", plan="one"),
        write("between"),
        call("ExitPlanMode", "second", plan="two"),
        write("late"),
        "done",
    ]
    found = results(await run_session(tmp_path, mind, person))
    assert found["first"] == (True, "The plan is not approved: test it too. You are still in plan mode.")
    assert found["between"][0]
    assert "acceptEdits" in found["second"][1]
    assert not found["late"][0]
    first, second = person.asked
    assert first.id != second.id
    assert len(plans()) == 1


@pytest.mark.spec("USR-26")
async def test_an_approval_counts_for_the_plan_that_was_shown_alone(tmp_path: Path) -> None:
    def changed_meanwhile(question: PlanApprovalQuestion) -> PlanApprovalAnswer:
        Path(question.path).write_text("something else")
        return approve(question)

    mind = [call("ExitPlanMode", "exit", plan="as shown"), write("w"), "done"]
    found = results(await run_session(tmp_path, mind, Person(changed_meanwhile), allowed_tools=["Write"]))
    assert found["exit"][0]
    assert "has changed since it was presented" in found["exit"][1]
    assert found["w"][0]
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.spec("USR-26")
async def test_an_answer_for_another_plan_is_not_taken(tmp_path: Path) -> None:
    seen: list[str] = []
    async with shoal.open(
        cwd=tmp_path,
        model=ScriptedModel([call("ExitPlanMode", "e", plan="p"), "done"]),
        mode="plan",
        attended=True,
    ) as session:
        async for event in session.run("go"):
            if isinstance(event, QuestionAsked):
                with pytest.raises(StateFileError, match="approval of the plan"):
                    session.services.question_broker.submit_answer(
                        event.question.id, PlanApprovalAnswer(digest="0" * 64)
                    )
                seen.append(session.services.permissions.mode)
                session.services.question_broker.submit_answer(event.question.id, DenyAnswer(reason="no."))
        assert seen == ["plan"]
        assert session.services.permissions.mode == "plan"


@pytest.mark.spec("PLN-03")
async def test_the_first_answer_to_a_plan_stands(tmp_path: Path) -> None:
    model = ScriptedModel([call("ExitPlanMode", "exit", plan="p"), write(), "done"])
    events: list[Event] = []
    async with shoal.open(cwd=tmp_path, model=model, mode="plan", attended=True) as session:
        async for event in session.run("go"):
            events.append(event)
            if isinstance(event, QuestionAsked):
                assert isinstance(event.question, PlanApprovalQuestion)
                assert session.services.question_broker.submit_answer(
                    event.question.id, DenyAnswer(reason="not yet.")
                )
                assert not session.services.question_broker.submit_answer(
                    event.question.id, approve(event.question)
                )
        assert session.services.permissions.mode == "plan"
    assert "not yet." in results(events)["exit"][1]
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.spec("PLN-03")
@pytest.mark.parametrize(("approver", "made"), [("auto", True), ("user", False), ("lead", False)])
async def test_a_setting_says_who_approves_where_nobody_is_there(
    tmp_path: Path, approver: str, made: bool
) -> None:
    mind = [call("ExitPlanMode", "exit", plan="p"), write(), "done"]
    settings = f'{{"shoal": {{"plan_approver": "{approver}"}}}}'
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel(mind), mode="plan", settings=settings, allowed_tools=["Write"]
    ) as session:
        found = results([event async for event in session.run("go")])
    assert found["exit"][0] is not made
    assert (tmp_path / "made.txt").exists() is made


@pytest.mark.spec("PLN-04")
async def test_planning_by_choice_is_left_without_approval(tmp_path: Path) -> None:
    mind = [
        call("EnterPlanMode", "enter"),
        write("early"),
        call("ExitPlanMode", "exit", plan="p"),
        write("late"),
        "done",
    ]
    person = Person()
    found = results(await run_session(tmp_path, mind, person, mode="acceptEdits"))
    assert found["early"][0]
    assert "the permission mode is acceptEdits" in found["exit"][1]
    assert not found["late"][0]
    assert person.asked == []


@pytest.mark.parametrize(
    ("passed", "after"),
    [
        ("plan", "dontAsk"),
        ("default acceptEdits plan", "dontAsk"),
        ("plan plan", "dontAsk"),
        ("plan default acceptEdits plan", "dontAsk"),
        ("acceptEdits WORK plan", "acceptEdits"),
        ("plan WORK default acceptEdits plan", "dontAsk"),
        ("bypassPermissions WORK plan", "bypassPermissions"),
        ("bypassPermissions WORK default plan", "default"),
    ],
)
async def test_an_approved_plan_leads_back_to_the_mode_in_which_the_agent_last_worked(
    tmp_path: Path, passed: str, after: str
) -> None:
    mind = ["worked"] * passed.count("WORK") + [call("ExitPlanMode", "exit", plan="p"), "done"]
    enabled = '{"permissions": {"defaultMode": "bypassPermissions"}}'
    options = {"mode": "dontAsk", "attended": True, "settings": enabled}
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind), **options) as session:
        for mode in passed.split():
            if mode == "WORK":
                await Person().work(session)
            else:
                session.set_mode(mode)  # type: ignore[arg-type]
        found = results(await Person(approve).work(session))
        assert session.services.permissions.mode == after
    assert f"the permission mode is {after}" in found["exit"][1]


@pytest.mark.spec("PLN-05")
async def test_leaving_plan_mode_outside_of_it_does_nothing(tmp_path: Path) -> None:
    mind = [call("ExitPlanMode", "exit", plan="p"), write("late"), "done"]
    found = results(await run_session(tmp_path, mind, Person(), mode="acceptEdits"))
    assert found["exit"] == (False, "You are not in plan mode; go on.")
    assert plans() == []
    assert not found["late"][0], "the mode is what it was"


async def test_the_plan_may_be_written_with_the_tools_and_nothing_beside_it(tmp_path: Path) -> None:
    seen: list[Path] = []

    async with shoal.open(cwd=tmp_path, model=ScriptedModel([call("EnterPlanMode", "e"), "in"])) as session:
        events = [event async for event in session.run("go")]
        path = Path(results(events)["e"][1].split("into ")[1].split(" or ")[0])
        seen.append(path)
        session.agent.model = ScriptedModel(
            [
                call("Write", "plan", file_path=str(path), content="the plan"),
                call("Write", "beside", file_path=str(path.parent / "other.md"), content="x"),
                call("ExitPlanMode", "exit"),
                "out",
            ]
        )
        found = results([event async for event in session.run("go on")])
    assert not found["plan"][0]
    assert found["beside"][0]
    assert not found["exit"][0]
    assert path.read_text() == "the plan"


async def test_leaving_without_a_plan_is_refused(tmp_path: Path) -> None:
    found = results(await run_session(tmp_path, [call("ExitPlanMode", "exit"), "done"], Person()))
    assert found["exit"] == (True, "There is no plan yet: give it as `plan`.")


async def test_the_name_of_a_plan_comes_from_the_session(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        mind = [call("ExitPlanMode", "e", plan="p"), "done"]
        await run_session(tmp_path, mind, Person(approve), seed=7, persist=False)
        (file,) = plans()
        names.append(file.name)
        file.unlink()
    assert names[0] == names[1]
