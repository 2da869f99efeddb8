"""Planning before doing: who may change what, and which plan was approved."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import StateFileError
from shoal.core.events import Event, QuestionAsked, RunFinished, ToolOutputReturned
from shoal.core.permissions.questions import DenyAnswer, PlanApprovalQuestion, PlanApprovedAnswer
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.plan_tools import compute_plan_digest


def make_call(name: str, call_id: str = "c1", **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id=call_id, name=name, input=arguments)


def make_write_call(call_id: str = "w") -> ToolUseBlock:
    return make_call("Write", call_id, file_path="made.txt", content="x")


TESTS = {"tool": "Bash", "prompt": "run tests"}


def list_plans() -> list[Path]:
    return sorted((Path(os.environ["SHOAL_HOME"]) / "plans").glob("*.md"))


def map_results(events: list[Event]) -> dict[str, tuple[bool, str]]:
    return {
        event.call: (event.result.is_error, extract_tool_result_text(event.result))
        for event in events
        if isinstance(event, ToolOutputReturned)
    }


class ScriptedPerson:
    """Answers each plan as it comes."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[PlanApprovalQuestion] = []

    async def run_session(self, session: shoal.Session) -> list[Event]:
        events: list[Event] = []
        async with asyncio.timeout(20):
            async for event in session.run("go"):
                events.append(event)
                if isinstance(event, QuestionAsked):
                    assert isinstance(event.question, PlanApprovalQuestion)
                    self.asked.append(event.question)
                    answer = self.answers.pop(0)
                    answer = answer(event.question) if callable(answer) else answer
                    session.runtime.question_broker.submit_answer(event.question.id, answer)
        assert isinstance(events[-1], RunFinished)
        return events


def approve_plan(question: PlanApprovalQuestion) -> PlanApprovedAnswer:
    return PlanApprovedAnswer(digest=question.digest)


async def run_session(
    tmp_path: Path, script: list[Any], person: ScriptedPerson, **options: Any
) -> list[Event]:
    options = {"mode": "plan", "attended": True, **options}
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(script), **options) as session:
        return await person.run_session(session)


@pytest.mark.spec("PLN-03", "USR-26", "HOM-02")
async def test_no_file_is_written_before_the_plan_is_approved(tmp_path: Path) -> None:
    person = ScriptedPerson(
        lambda question: approve_plan(question) if not (tmp_path / "made.txt").exists() else None
    )
    script = [
        make_write_call("early"),
        make_call("Bash", "early-too", command="touch made.txt"),
        make_call(
            "ExitPlanMode",
            "exit",
            plan="# Make it\n",
            allowedPrompts=[{"tool": "Bash", "prompt": "run tests"}],
        ),
        make_call("Bash", "reads", command="ls"),
        make_write_call("late"),
        "done",
    ]
    results = map_results(await run_session(tmp_path, script, person, allowed_tools=["Write"]))
    assert results["early"][0]
    assert "plan mode allows no changes" in results["early"][1]
    assert results["early-too"][0]
    assert not results["exit"][0]
    assert not results["late"][0]
    (question,) = person.asked
    (file,) = list_plans()
    assert (question.plan, question.digest) == ("# Make it\n", compute_plan_digest("# Make it\n"))
    assert question.wishes == ("Bash: run tests",)
    assert (question.path, file.read_text()) == (str(file), "# Make it\n")
    assert len(file.stem.split("-")) == 3


@pytest.mark.spec("PLN-02")
async def test_after_a_rejected_plan_plan_mode_stays_on_and_the_next_question_has_a_new_id(
    tmp_path: Path,
) -> None:
    person = ScriptedPerson(
        DenyAnswer(reason="test it too."), lambda q: PlanApprovedAnswer(digest=q.digest, mode="acceptEdits")
    )
    script = [
        make_call("ExitPlanMode", "first", plan="one"),
        make_write_call("between"),
        make_call("ExitPlanMode", "second", plan="two"),
        make_write_call("late"),
        "done",
    ]
    results = map_results(await run_session(tmp_path, script, person))
    assert results["first"] == (True, "The plan was not approved: test it too. You are still in plan mode.")
    assert results["between"][0]
    assert "acceptEdits" in results["second"][1]
    assert not results["late"][0]
    first, second = person.asked
    assert first.id != second.id
    assert len(list_plans()) == 1


@pytest.mark.spec("USR-26")
async def test_an_approval_applies_only_to_the_plan_that_was_shown(tmp_path: Path) -> None:
    def changed_meanwhile(question: PlanApprovalQuestion) -> PlanApprovedAnswer:
        Path(question.path).write_text("something else")
        return approve_plan(question)

    script = [make_call("ExitPlanMode", "exit", plan="as shown"), make_write_call("w"), "done"]
    results = map_results(
        await run_session(tmp_path, script, ScriptedPerson(changed_meanwhile), allowed_tools=["Write"])
    )
    assert results["exit"][0]
    assert "changed after you presented it" in results["exit"][1]
    assert results["w"][0]
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.spec("USR-26")
async def test_an_answer_to_another_plan_is_refused(tmp_path: Path) -> None:
    seen: list[str] = []
    async with shoal.open(
        cwd=tmp_path,
        model=ScriptedModel([make_call("ExitPlanMode", "e", plan="p"), "done"]),
        mode="plan",
        attended=True,
    ) as session:
        async for event in session.run("go"):
            if isinstance(event, QuestionAsked):
                with pytest.raises(StateFileError, match="approval of the plan"):
                    session.runtime.question_broker.submit_answer(
                        event.question.id, PlanApprovedAnswer(digest="0" * 64)
                    )
                seen.append(session.runtime.lead.permissions.mode)
                session.runtime.question_broker.submit_answer(event.question.id, DenyAnswer(reason="no."))
        assert seen == ["plan"]
        assert session.runtime.lead.permissions.mode == "plan"


@pytest.mark.spec("PLN-03")
async def test_the_first_answer_to_a_plan_wins(tmp_path: Path) -> None:
    model = ScriptedModel([make_call("ExitPlanMode", "exit", plan="p"), make_write_call(), "done"])
    events: list[Event] = []
    async with shoal.open(cwd=tmp_path, model=model, mode="plan", attended=True) as session:
        async for event in session.run("go"):
            events.append(event)
            if isinstance(event, QuestionAsked):
                assert isinstance(event.question, PlanApprovalQuestion)
                assert session.runtime.question_broker.submit_answer(
                    event.question.id, DenyAnswer(reason="not yet.")
                )
                assert not session.runtime.question_broker.submit_answer(
                    event.question.id, approve_plan(event.question)
                )
        assert session.runtime.lead.permissions.mode == "plan"
    assert "not yet." in map_results(events)["exit"][1]
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.spec("PLN-03")
@pytest.mark.parametrize(("approver", "made"), [("auto", True), ("user", False), ("lead", False)])
async def test_a_setting_decides_whether_unattended_plans_are_approved(
    tmp_path: Path, approver: str, made: bool
) -> None:
    script = [make_call("ExitPlanMode", "exit", plan="p"), make_write_call(), "done"]
    settings = f'{{"shoal": {{"plan_approver": "{approver}"}}}}'
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel(script), mode="plan", settings=settings, allowed_tools=["Write"]
    ) as session:
        results = map_results([event async for event in session.run("go")])
    assert results["exit"][0] is not made
    assert (tmp_path / "made.txt").exists() is made


VOLUNTARY_PLAN = [
    make_call("EnterPlanMode", "enter"),
    make_write_call("early"),
    make_call("ExitPlanMode", "exit", plan="p"),
    make_write_call("late"),
    "done",
]


@pytest.mark.spec("PLN-04", "CMP-106")
async def test_a_person_approves_a_plan_that_the_lead_chose_to_make(tmp_path: Path) -> None:
    person = ScriptedPerson(approve_plan)
    results = map_results(await run_session(tmp_path, VOLUNTARY_PLAN, person, mode="acceptEdits"))
    assert results["early"][0]
    assert "the permission mode is acceptEdits" in results["exit"][1]
    assert not results["late"][0]
    assert [question.plan for question in person.asked] == ["p"]


@pytest.mark.spec("PLN-04", "CMP-106")
async def test_a_rejected_plan_of_the_lead_changes_nothing(tmp_path: Path) -> None:
    person = ScriptedPerson(DenyAnswer(reason="not this."))
    results = map_results(await run_session(tmp_path, VOLUNTARY_PLAN, person, mode="acceptEdits"))
    assert "still in plan mode" in results["exit"][1]
    assert results["late"][0]
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.spec("PLN-04", "CMP-106")
@pytest.mark.parametrize(("approver", "made"), [("user", False), ("auto", True)])
async def test_without_a_person_the_plan_of_the_lead_is_the_result(
    tmp_path: Path, approver: str, made: bool
) -> None:
    settings = f'{{"shoal": {{"plan_approver": "{approver}"}}}}'
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel(VOLUNTARY_PLAN), mode="acceptEdits", settings=settings
    ) as session:
        results = map_results([event async for event in session.run("go")])
    assert ("end with the plan as your answer" in results["exit"][1]) is not made
    assert (tmp_path / "made.txt").exists() is made


@pytest.mark.spec("PLN-04")
async def test_a_sub_agent_leaves_plan_mode_that_it_chose_without_approval(tmp_path: Path) -> None:
    start = make_call("Agent", "start", description="d", prompt="WORKER", subagent_type="general-purpose")

    def choose_reply(request: ModelRequest) -> Any:
        script = VOLUNTARY_PLAN if "WORKER" in request.messages[0].text else [start, "over"]
        return script[sum(message.role == "assistant" for message in request.messages)]

    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel(choose_reply), attended=True, mode="acceptEdits"
    ) as session:
        await ScriptedPerson().run_session(session)
    assert (tmp_path / "made.txt").exists()


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
async def test_an_approved_plan_restores_the_previous_permission_mode(
    tmp_path: Path, passed: str, after: str
) -> None:
    script = ["worked"] * passed.count("WORK") + [make_call("ExitPlanMode", "exit", plan="p"), "done"]
    enabled = '{"permissions": {"defaultMode": "bypassPermissions"}}'
    options = {"mode": "dontAsk", "attended": True, "settings": enabled}
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(script), **options) as session:
        for mode in passed.split():
            if mode == "WORK":
                await ScriptedPerson().run_session(session)
            else:
                session.set_mode(mode)  # type: ignore[arg-type]
        results = map_results(await ScriptedPerson(approve_plan).run_session(session))
        assert session.runtime.lead.permissions.mode == after
    assert f"the permission mode is {after}" in results["exit"][1]


@pytest.mark.spec("PLN-05")
async def test_exit_plan_mode_outside_plan_mode_does_nothing(tmp_path: Path) -> None:
    script = [make_call("ExitPlanMode", "exit", plan="p"), make_write_call("late"), "done"]
    results = map_results(await run_session(tmp_path, script, ScriptedPerson(), mode="acceptEdits"))
    assert results["exit"] == (False, "You are not in plan mode; continue.")
    assert list_plans() == []
    assert not results["late"][0], "the mode is what it was"


async def test_in_plan_mode_only_the_plan_file_may_be_written(tmp_path: Path) -> None:
    seen: list[Path] = []

    async with shoal.open(
        cwd=tmp_path,
        model=ScriptedModel([make_call("EnterPlanMode", "e"), "in"]),
        settings='{"shoal": {"plan_approver": "auto"}}',
    ) as session:
        events = [event async for event in session.run("go")]
        path = Path(map_results(events)["e"][1].split("plan to ")[1].split(" or ")[0])
        seen.append(path)
        session.agent.model = ScriptedModel(
            [
                make_call("Write", "plan", file_path=str(path), content="the plan"),
                make_call("Write", "beside", file_path=str(path.parent / "other.md"), content="x"),
                make_call("ExitPlanMode", "exit"),
                "out",
            ]
        )
        results = map_results([event async for event in session.run("go on")])
    assert not results["plan"][0]
    assert results["beside"][0]
    assert not results["exit"][0]
    assert path.read_text() == "the plan"


async def test_exit_plan_mode_without_a_plan_is_refused(tmp_path: Path) -> None:
    results = map_results(
        await run_session(tmp_path, [make_call("ExitPlanMode", "exit"), "done"], ScriptedPerson())
    )
    assert results["exit"] == (True, "There is no plan yet: pass it as `plan`.")


async def test_the_plan_file_is_named_after_the_session(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        script = [make_call("ExitPlanMode", "e", plan="p"), "done"]
        await run_session(tmp_path, script, ScriptedPerson(approve_plan), seed=7, persist=False)
        (file,) = list_plans()
        names.append(file.name)
        file.unlink()
    assert names[0] == names[1]
