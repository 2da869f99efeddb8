"""Approvals that come after the process that asked has died: each is reported once and allows one call."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.core.errors import StateFileError
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.permission_changes import (
    AddPermissionRulesSuggestion,
    PermissionSuggestion,
    SetPermissionModeSuggestion,
    SuggestedPermissionRule,
)
from shoal.core.permissions.questions import (
    RUN_ENDED_REASON,
    AllowAnswer,
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
    PermissionQuestion,
)
from shoal.runs.late_answers import (
    LatePermissionApprovalTracker,
    format_late_answer_item_id,
    parse_question_id_from_item_id,
    resolve_answer_permission_updates,
)
from shoal.stores.files.sessions.question_files import QuestionFiles

ANN = AgentId("ann")
ENDED = DenyAnswer(reason=RUN_ENDED_REASON, by="policy")
RULES = AddPermissionRulesSuggestion(rules=(SuggestedPermissionRule(tool_name="Bash"),))
STORED_RULES = AddPermissionRulesSuggestion(
    rules=(SuggestedPermissionRule(tool_name="Edit"),), destination="localSettings"
)
MODE = SetPermissionModeSuggestion(mode="plan")


def make_question(
    name: str = "q1",
    agent: AgentId = LEAD_ID,
    tool: str = "Bash",
    command: str = "ls",
    suggestions: tuple[PermissionSuggestion, ...] = (),
) -> PermissionQuestion:
    return PermissionQuestion(
        id=name,
        agent=agent,
        tool_use_id="t",
        tool=tool,
        input={"command": command},
        reason="r",
        suggestions=suggestions,
    )


@pytest.fixture
def questions(tmp_path: Path) -> QuestionFiles:
    return QuestionFiles(tmp_path / "questions")


def ask_and_die(questions: QuestionFiles, *asked: PermissionQuestion) -> None:
    for question in asked:
        questions.store_question(question)
        questions.settle_answer(question, ENDED)


class Listener:
    """Notes the answers; it cannot store the first `failures` of them."""

    def __init__(self, failures: int = 0) -> None:
        self.heard: list[tuple[str, AllowAnswer]] = []
        self.failures = failures

    def __call__(self, question: PermissionQuestion, answer: AllowAnswer) -> None:
        if self.failures:
            self.failures -= 1
            raise StateFileError("The disk is full.", path=Path("/"))
        self.heard.append((question.id, answer))


async def test_an_approval_is_reported_once_and_allows_the_same_call_once(questions: QuestionFiles) -> None:
    first, second = make_question("q1"), make_question("q2", ANN)
    ask_and_die(questions, first, second)
    tracker, listener = LatePermissionApprovalTracker(questions), Listener()
    tracker.watch_interrupted_questions((first, second), listener)
    assert listener.heard == []
    assert tracker.take_late_approval(first) is None
    tracker.submit_late_answer("q2", AllowAnswer(remember="session"))
    assert listener.heard == [("q2", AllowAnswer(remember="session"))]
    with pytest.raises(StateFileError, match="already allowed"):
        tracker.submit_late_answer("q2", AllowAnswer())
    with pytest.raises(StateFileError, match="nothing to deny"):
        tracker.submit_late_answer("q1", DenyAnswer(reason="no"))
    assert len(listener.heard) == 1
    for other in (
        make_question("q3", LEAD_ID),
        make_question("q3", ANN, "Edit"),
        make_question("q3", ANN, "Bash", "rm"),
    ):
        assert tracker.take_late_approval(other) is None
    assert tracker.take_late_approval(make_question("q3", ANN)) == AllowAnswer()
    assert tracker.take_late_approval(make_question("q3", ANN)) is None
    tracker.close()


async def test_an_approval_of_a_changed_call_allows_the_changed_one(questions: QuestionFiles) -> None:
    asked = make_question(command="rm -r x")
    ask_and_die(questions, asked)
    tracker = LatePermissionApprovalTracker(questions)
    tracker.watch_interrupted_questions([asked], Listener())
    tracker.submit_late_answer("q1", AllowAnswer(input={"command": "rm x"}))
    assert tracker.take_late_approval(make_question(command="rm -r x")) is None
    assert tracker.take_late_approval(make_question(command="rm x")) == AllowAnswer()


async def test_an_approval_of_another_process_is_reported_when_it_comes(questions: QuestionFiles) -> None:
    first, second, third = (make_question(name) for name in ("q1", "q2", "q3"))
    ask_and_die(questions, first, second, third)
    tracker, listener = LatePermissionApprovalTracker(questions), Listener()
    tracker.watch_interrupted_questions((first,), listener)
    tracker.watch_interrupted_questions((second,), listener)
    for number, name in enumerate(("q2", "q1"), 1):
        questions.store_late_permission(name, AllowAnswer())
        async with asyncio.timeout(30):
            while len(listener.heard) < number:
                await asyncio.sleep(0.005)
    assert [name for name, _ in listener.heard] == ["q2", "q1"]
    # Nothing is watched any more; a further question is watched again.
    tracker.watch_interrupted_questions((third,), listener)
    questions.store_late_permission("q3", AllowAnswer())
    async with asyncio.timeout(30):
        while len(listener.heard) < 3:
            await asyncio.sleep(0.005)
    tracker.close()
    tracker.close()


async def test_nothing_is_watched_without_an_interrupted_question_or_after_the_last_answer(
    questions: QuestionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    closed: list[str] = []
    watch_answers = questions.watch_answers

    def watch(on_change):
        opened.append("")
        watched = watch_answers(on_change)
        close = watched.close

        def close_watch() -> None:
            closed.append("")
            close()

        monkeypatch.setattr(watched, "close", close_watch)
        return watched

    monkeypatch.setattr(questions, "watch_answers", watch)
    asked = make_question()
    ask_and_die(questions, asked)
    tracker = LatePermissionApprovalTracker(questions)
    tracker.watch_interrupted_questions((), Listener())
    assert opened == []
    tracker.watch_interrupted_questions((asked,), Listener())
    tracker.watch_interrupted_questions((asked,), Listener())
    assert (len(opened), len(closed)) == (1, 0)
    tracker.submit_late_answer("q1", AllowAnswer())
    assert (len(opened), len(closed)) == (1, 1)


async def test_an_approval_that_could_not_be_stored_is_reported_again(questions: QuestionFiles) -> None:
    first, second = make_question("q1"), make_question("q2", command="rm")
    ask_and_die(questions, first, second)
    for question in (first, second):
        questions.store_late_permission(question.id, AllowAnswer())
    tracker, listener = LatePermissionApprovalTracker(questions), Listener(failures=1)
    tracker.watch_interrupted_questions((first, second), listener)
    assert listener.heard == []
    assert tracker.take_late_approval(first) is None
    tracker.watch_interrupted_questions((), listener)
    assert [name for name, _ in listener.heard] == ["q1", "q2"]
    assert tracker.take_late_approval(second) == AllowAnswer()
    tracker.close()


async def test_an_answer_is_unreported_if_it_was_given_while_the_process_may_have_lived(
    questions: QuestionFiles,
) -> None:
    died, denied, open_question = make_question("q1"), make_question("q2"), make_question("q3")
    ask_and_die(questions, died)
    for question in (denied, open_question):
        questions.store_question(question)
    denial = DenyAnswer(reason="no")
    questions.settle_answer(denied, denial)
    tracker = LatePermissionApprovalTracker(questions)
    assert tracker.find_unreported_answer(died) is None
    assert tracker.find_unreported_answer(denied) == denial
    assert tracker.find_unreported_answer(open_question) is None
    choice = ChoiceQuestion(
        id="q4",
        agent=LEAD_ID,
        choices=(MultipleChoice(question="?", header="h", options=(ChoiceOption(label="a"),)),),
    )
    questions.store_question(choice)
    assert tracker.find_permission_question("q1") == died
    assert tracker.find_permission_question("q4") is None
    assert tracker.find_permission_question("q5") is None


@pytest.mark.parametrize(
    ("answer", "agent", "expected"),
    [
        (AllowAnswer(), LEAD_ID, ()),
        (AllowAnswer(remember="session"), LEAD_ID, (RULES,)),
        (AllowAnswer(remember="settings"), LEAD_ID, (STORED_RULES,)),
        (AllowAnswer(updates=(MODE,)), LEAD_ID, (MODE,)),
        (AllowAnswer(updates=(MODE, RULES)), ANN, (RULES,)),
        (AllowAnswer(updates=(STORED_RULES,), remember="session"), ANN, (STORED_RULES,)),
    ],
)
def test_an_answer_changes_permissions_as_it_says_and_modes_only_for_the_lead(
    answer: AllowAnswer, agent: AgentId, expected: tuple[PermissionSuggestion, ...]
) -> None:
    question = make_question(agent=agent, suggestions=(RULES, STORED_RULES))
    assert resolve_answer_permission_updates(question, answer) == expected
    assert (
        resolve_answer_permission_updates(make_question(agent=agent), AllowAnswer(remember="session")) == ()
    )


def test_the_item_of_a_late_approval_names_its_question() -> None:
    assert parse_question_id_from_item_id(format_late_answer_item_id("q1")) == "q1"
    assert parse_question_id_from_item_id("q1") == ""
