from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.core.clock import Deadline, SystemClock
from shoal.core.errors import StateFileError
from shoal.core.events import Event, QuestionAnswered, QuestionAsked
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import (
    RUN_ENDED_REASON,
    AllowAnswer,
    Answer,
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
    PermissionQuestion,
    Question,
)
from shoal.runs.question_broker import SessionQuestionBroker
from shoal.stores.files.sessions.question_files import QuestionFiles


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "run" / "questions"


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def broker(directory: Path, events: list[Event]) -> SessionQuestionBroker:
    return SessionQuestionBroker(
        QuestionFiles(directory), clock=SystemClock(), emit=events.append, attended=True
    )


def make_permission_question(name: str = "q-1", agent: AgentId = LEAD_ID) -> PermissionQuestion:
    return PermissionQuestion(
        id=name, agent=agent, tool_use_id="t", tool="Bash", input={"command": "ls"}, reason="r"
    )


def make_choice_question(name: str = "q-2") -> ChoiceQuestion:
    choice = MultipleChoice(
        question="Which?", header="h", options=(ChoiceOption(label="a"), ChoiceOption(label="b"))
    )
    return ChoiceQuestion(id=name, agent=LEAD_ID, choices=(choice,))


@asynccontextmanager
async def ask_questions(
    broker: SessionQuestionBroker, *questions: Question
) -> AsyncIterator[list[asyncio.Task[Answer]]]:
    """Ask the questions and yield the tasks that return the answers."""
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(broker.ask_person_or_deny(question)) for question in questions]
        incoming = broker.watch_questions()
        for _ in questions:
            await anext(incoming)
        yield asked


async def test_questions_and_answers_are_recorded(
    broker: SessionQuestionBroker, events: list[Event], directory: Path
):
    async with ask_questions(broker, make_permission_question(), make_choice_question()) as asked:
        assert {question.id for question in broker.list_open_questions()} == {"q-1", "q-2"}
        assert (directory / "q-1.json").stat().st_mode & 0o777 == 0o600
        assert broker.submit_answer("q-1", AllowAnswer(remember="session"))
        assert broker.submit_answer("q-2", ChoiceAnswer(answers={"Which?": "b"}))
    assert [task.result() for task in asked] == [
        AllowAnswer(remember="session"),
        ChoiceAnswer(answers={"Which?": "b"}),
    ]
    assert broker.list_open_questions() == ()
    assert events == [
        QuestionAsked(agent=LEAD_ID, question=make_permission_question()),
        QuestionAsked(agent=LEAD_ID, question=make_choice_question()),
        QuestionAnswered(agent=LEAD_ID, question="q-1", answer=AllowAnswer(remember="session")),
        QuestionAnswered(agent=LEAD_ID, question="q-2", answer=ChoiceAnswer(answers={"Which?": "b"})),
    ]


async def test_the_first_answer_wins(broker: SessionQuestionBroker, directory: Path):
    async with ask_questions(broker, make_permission_question()) as asked:
        assert QuestionFiles(directory).answer("q-1", DenyAnswer(reason="no"))
        assert not broker.submit_answer("q-1", AllowAnswer())
        assert not QuestionFiles(directory).answer("q-1", AllowAnswer())
    assert asked[0].result() == DenyAnswer(reason="no")
    assert sorted(path.name for path in directory.iterdir()) == ["q-1.answer.json", "q-1.json"]


def test_a_settled_question_keeps_its_first_answer(directory: Path):
    questions = QuestionFiles(directory)
    questions.store_question(make_permission_question())
    assert questions.settle_answer(make_permission_question(), DenyAnswer(reason="a")) == DenyAnswer(
        reason="a"
    )
    assert questions.settle_answer(make_permission_question(), DenyAnswer(reason="b")) == DenyAnswer(
        reason="a"
    )
    assert questions.read_answer(make_permission_question()) == DenyAnswer(reason="a")


OTHER = """
import sys
from pathlib import Path
from shoal.core.permissions.questions import AllowAnswer
from shoal.stores.files.sessions.question_files import QuestionFiles
questions = QuestionFiles(Path(sys.argv[1]))
(question,) = questions.list_open_questions()
print(questions.answer(question.id, AllowAnswer(input={"command": "pwd"})))
"""


async def test_an_answer_of_another_process_wakes_the_waiter(broker: SessionQuestionBroker, directory: Path):
    async with ask_questions(broker, make_permission_question()) as asked:
        other = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", OTHER, str(directory)], capture_output=True, check=True
        )
        assert other.stdout == b"True\n"
    assert asked[0].result() == AllowAnswer(input={"command": "pwd"})


async def test_a_hundred_questions_use_one_directory_watch(broker: SessionQuestionBroker, directory: Path):
    def descriptors():
        return len(list(os.scandir("/proc/self/fd")))

    before = descriptors()
    questions = [make_permission_question(f"q-{number}", AgentId(f"a{number}")) for number in range(100)]
    async with ask_questions(broker, *questions):
        assert descriptors() == before + 1
        outside = QuestionFiles(directory)
        for question in questions:
            assert outside.answer(question.id, DenyAnswer(reason=question.agent))
    assert descriptors() == before


@pytest.mark.parametrize("attended", [True, False])
@pytest.mark.parametrize("timeout", [None, 0.0, 5.0])
def test_a_question_waits_for_a_person_who_is_here_or_may_come(
    directory: Path, attended: bool, timeout: float | None
):
    broker = SessionQuestionBroker(
        QuestionFiles(directory),
        clock=SystemClock(),
        emit=lambda _: None,
        attended=attended,
        answer_timeout=timeout,
    )
    assert broker.attended is attended
    assert broker.can_wait_for_person is (attended or timeout is not None)
    assert broker.keeps_questions_open is (not attended and timeout is not None)
    broker.mark_unattended()
    assert broker.attended is False
    assert broker.can_wait_for_person is (timeout is not None)
    assert broker.keeps_questions_open is (timeout is not None)


@pytest.mark.parametrize("attended", [True, False])
async def test_a_call_that_was_allowed_late_is_allowed_once_without_a_person(
    directory: Path, events: list[Event], attended: bool
):
    questions = QuestionFiles(directory)
    lost = make_permission_question("lost")
    questions.store_question(lost)
    questions.settle_answer(lost, DenyAnswer(reason=RUN_ENDED_REASON, by="policy"))
    broker = SessionQuestionBroker(questions, clock=SystemClock(), emit=events.append, attended=attended)
    broker.late_answers.watch_interrupted_questions([lost], lambda *_: None)
    broker.submit_late_answer("lost", AllowAnswer())
    async with asyncio.timeout(30):
        assert await broker.ask_person_or_deny(make_permission_question("again")) == AllowAnswer()
        assert [type(event) for event in events] == [QuestionAsked, QuestionAnswered]
        assert broker.list_open_questions() == ()
        if not attended:
            assert isinstance(await broker.ask_person_or_deny(make_permission_question("third")), DenyAnswer)


async def test_an_unattended_question_is_answered_by_policy_at_once(directory: Path, events: list[Event]):
    broker = SessionQuestionBroker(
        QuestionFiles(directory), clock=SystemClock(), emit=events.append, attended=False
    )
    answer = await broker.ask_person_or_deny(make_permission_question())
    assert (answer.by, "unattended" in answer.reason, "Bash" in answer.reason) == ("policy", True, True)
    assert "Decide yourself" in (await broker.ask_person_or_deny(make_choice_question())).reason
    assert QuestionFiles(directory).list_open_questions() == ()
    assert events[1] == QuestionAnswered(agent=LEAD_ID, question="q-1", answer=answer)


@pytest.mark.spec("USR-05")
async def test_an_answer_timeout_is_answered_by_policy(directory: Path, events: list[Event]):
    broker = SessionQuestionBroker(
        QuestionFiles(directory), clock=SystemClock(), emit=events.append, attended=True, answer_timeout=0.02
    )
    answer = await broker.ask_person_or_deny(make_permission_question())
    assert answer.by == "policy"
    assert "within 0.02 seconds" in answer.reason
    assert not QuestionFiles(directory).answer("q-1", AllowAnswer())


async def test_an_answer_just_before_the_timeout_wins(
    directory: Path, events: list[QuestionAsked | QuestionAnswered]
):
    class Impatient(SystemClock):
        """Its deadlines expire at once, after another process has answered."""

        def deadline(self, seconds: float) -> Deadline:
            QuestionFiles(directory).answer("q-1", AllowAnswer())
            return super().deadline(0)

    broker = SessionQuestionBroker(
        QuestionFiles(directory), clock=Impatient(), emit=events.append, attended=False, answer_timeout=60
    )
    assert await broker.ask_person_or_deny(make_permission_question()) == AllowAnswer()
    assert events[-1].answer == AllowAnswer()


async def test_an_interrupted_call_withdraws_its_question(
    broker: SessionQuestionBroker, events: list[Event], directory: Path
):
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(broker.ask_person_or_deny(make_permission_question()))
        await anext(broker.watch_questions())
        settled = tasks.create_task(broker.wait_for_answer("q-1"))
        await asyncio.sleep(0)
        asked.cancel()
    assert asked.cancelled()
    assert settled.result().by == "policy"
    assert events[-1] == QuestionAnswered(agent=LEAD_ID, question="q-1", answer=settled.result())
    assert QuestionFiles(directory).list_open_questions() == ()
    assert broker.list_open_questions() == ()


async def test_a_full_disk_does_not_suppress_a_cancellation(directory: Path):
    def full(event: Event) -> None:
        if isinstance(event, QuestionAnswered):
            raise StateFileError("full", path=directory)

    broker = SessionQuestionBroker(QuestionFiles(directory), clock=SystemClock(), emit=full, attended=True)
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(broker.ask_person_or_deny(make_permission_question()))
        await anext(broker.watch_questions())
        asked.cancel()
    assert asked.cancelled()


async def test_wait_for_answer_returns_the_answer_given_elsewhere(broker: SessionQuestionBroker):
    async with ask_questions(broker, make_permission_question()), asyncio.TaskGroup() as tasks:
        settled = tasks.create_task(broker.wait_for_answer("q-1"))
        await asyncio.sleep(0)
        broker.submit_answer("q-1", AllowAnswer())
    assert settled.result() == AllowAnswer()
    assert await broker.wait_for_answer("q-1") is None


async def test_each_question_is_announced_once(broker: SessionQuestionBroker):
    incoming = broker.watch_questions()
    async with asyncio.TaskGroup() as tasks:
        for name in ("q-1", "q-2", "q-3"):
            tasks.create_task(broker.ask_person_or_deny(make_permission_question(name)))
            assert (await anext(incoming)).id == name
        for name in ("q-1", "q-2", "q-3"):
            broker.submit_answer(name, AllowAnswer())


async def test_an_answer_of_the_wrong_kind_or_to_no_question_is_refused(
    broker: SessionQuestionBroker, directory: Path
):
    async with ask_questions(broker, make_permission_question(), make_choice_question()):
        with pytest.raises(StateFileError, match="for permission"):
            broker.submit_answer("q-1", ChoiceAnswer(answers={}))
        with pytest.raises(StateFileError, match="for a choice"):
            broker.submit_answer("q-2", AllowAnswer())
        with pytest.raises(StateFileError, match="no question 'q-9'"):
            broker.submit_answer("q-9", AllowAnswer())
        with pytest.raises(StateFileError, match="no question"):
            broker.submit_answer("../../q-1", AllowAnswer())
        broker.submit_answer("q-1", AllowAnswer())
        broker.submit_answer("q-2", DenyAnswer(reason="neither"))


async def test_an_invalid_answer_file_is_set_aside(broker: SessionQuestionBroker, directory: Path):
    async with ask_questions(broker, make_permission_question()) as asked:
        bad = directory / "q-1.answer.json"
        bad.write_text('{"type":"allo')
        os.utime(bad, (0, 0))
        while bad.exists():
            await asyncio.sleep(0.01)
        assert not asked[0].done()
        assert broker.submit_answer("q-1", AllowAnswer())
    assert asked[0].result() == AllowAnswer()
    assert (directory / "q-1.answer.refused").exists()


LEFT_OVER = """
import asyncio, sys
from pathlib import Path
from shoal.core.clock import SystemClock
from shoal.core.permissions.questions import PermissionQuestion
from shoal.runs.question_broker import SessionQuestionBroker
from shoal.stores.files.sessions.question_files import QuestionFiles

async def main():
    broker = SessionQuestionBroker(
        QuestionFiles(Path(sys.argv[1])), clock=SystemClock(), emit=lambda event: None, attended=True
    )
    async with asyncio.TaskGroup() as tasks:
        for name in ("q-1", "q-2"):
            question = PermissionQuestion(
                id=name, agent="lead", tool_use_id="t", tool="Bash", input={}, reason="r"
            )
            tasks.create_task(broker.ask_person_or_deny(question))
        incoming = broker.watch_questions()
        await anext(incoming)
        await anext(incoming)
        print("asked", flush=True)

asyncio.run(main())
"""


@pytest.mark.spec("TRN-02")
async def test_questions_of_a_killed_run_are_withdrawn_when_it_resumes(
    broker: SessionQuestionBroker, events: list[QuestionAnswered], directory: Path
):
    child = subprocess.Popen([sys.executable, "-c", LEFT_OVER, str(directory)], stdout=subprocess.PIPE)
    with child:
        assert child.stdout.readline() == b"asked\n"
        child.kill()
    assert QuestionFiles(directory).answer("q-2", AllowAnswer())
    assert [question.id for question in broker.withdraw_leftover_questions()] == ["q-1"]
    assert [(event.question, event.answer.by) for event in events] == [("q-1", "policy")]
    assert QuestionFiles(directory).list_open_questions() == ()
    assert broker.withdraw_leftover_questions() == ()
