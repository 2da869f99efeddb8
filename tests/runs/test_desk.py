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
from shoal.core.errors import StoreError
from shoal.core.events import Answered, Asked, Event
from shoal.core.ids import LEAD, AgentId
from shoal.core.questions import Allowed, Answer, Choice, Choose, Chosen, Denied, MayRun, Option, Question
from shoal.runs.desk import FileDesk
from shoal.stores.files.questions import Questions


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "run" / "questions"


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def desk(directory: Path, told: list[Event]) -> FileDesk:
    return FileDesk(directory, clock=SystemClock(), emit=told.append, attended=True)


def may(name: str = "q-1", agent: AgentId = LEAD) -> MayRun:
    return MayRun(id=name, agent=agent, tool_use_id="t", tool="Bash", input={"command": "ls"}, reason="r")


def choose(name: str = "q-2") -> Choose:
    choice = Choice(question="Which?", header="h", options=(Option(label="a"), Option(label="b")))
    return Choose(id=name, agent=LEAD, choices=(choice,))


@asynccontextmanager
async def asking(desk: FileDesk, *questions: Question) -> AsyncIterator[list[asyncio.Task[Answer]]]:
    """The answers, once the block has seen to them."""
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(desk.ask(question)) for question in questions]
        incoming = desk.incoming()
        for _ in questions:
            await anext(incoming)
        yield asked


async def test_a_surface_answers_and_both_are_recorded(desk: FileDesk, told: list[Event], directory: Path):
    async with asking(desk, may(), choose()) as asked:
        assert {question.id for question in desk.open_questions()} == {"q-1", "q-2"}
        assert (directory / "q-1.json").stat().st_mode & 0o777 == 0o600
        assert desk.answer("q-1", Allowed(remember="session"))
        assert desk.answer("q-2", Chosen(answers={"Which?": "b"}))
    assert [task.result() for task in asked] == [
        Allowed(remember="session"),
        Chosen(answers={"Which?": "b"}),
    ]
    assert desk.open_questions() == ()
    assert told == [
        Asked(agent=LEAD, question=may()),
        Asked(agent=LEAD, question=choose()),
        Answered(agent=LEAD, question="q-1", answer=Allowed(remember="session")),
        Answered(agent=LEAD, question="q-2", answer=Chosen(answers={"Which?": "b"})),
    ]


async def test_the_first_answer_stands(desk: FileDesk, directory: Path):
    async with asking(desk, may()) as asked:
        assert Questions(directory).answer("q-1", Denied(reason="no"))
        assert not desk.answer("q-1", Allowed())
        assert not Questions(directory).answer("q-1", Allowed())
    assert asked[0].result() == Denied(reason="no")
    assert sorted(path.name for path in directory.iterdir()) == ["q-1.answer.json", "q-1.json"]


def test_a_question_that_is_settled_keeps_its_first_answer(directory: Path):
    questions = Questions(directory)
    questions.put(may())
    assert questions.settle(may(), Denied(reason="a")) == Denied(reason="a")
    assert questions.settle(may(), Denied(reason="b")) == Denied(reason="a")
    assert questions.answer_to(may()) == Denied(reason="a")


OTHER = """
import sys
from pathlib import Path
from shoal.core.questions import Allowed
from shoal.stores.files.questions import Questions
questions = Questions(Path(sys.argv[1]))
(question,) = questions.open()
print(questions.answer(question.id, Allowed(input={"command": "pwd"})))
"""


async def test_another_process_answers_and_the_asker_wakes_at_once(desk: FileDesk, directory: Path):
    async with asking(desk, may()) as asked:
        other = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", OTHER, str(directory)], capture_output=True, check=True
        )
        assert other.stdout == b"True\n"
    assert asked[0].result() == Allowed(input={"command": "pwd"})


async def test_a_hundred_questions_need_one_watch_and_leave_none(desk: FileDesk, directory: Path):
    def descriptors():
        return len(list(os.scandir("/proc/self/fd")))

    before = descriptors()
    questions = [may(f"q-{number}", AgentId(f"a{number}")) for number in range(100)]
    async with asking(desk, *questions):
        assert descriptors() == before + 1
        outside = Questions(directory)
        for question in questions:
            assert outside.answer(question.id, Denied(reason=question.agent))
    assert descriptors() == before


async def test_nobody_there_is_answered_by_policy_at_once(directory: Path, told: list[Event]):
    desk = FileDesk(directory, clock=SystemClock(), emit=told.append, attended=False)
    answer = await desk.ask(may())
    assert (answer.by, "not attended" in answer.reason, "Bash" in answer.reason) == ("policy", True, True)
    assert "Decide yourself" in (await desk.ask(choose())).reason
    assert Questions(directory).open() == ()
    assert told[1] == Answered(agent=LEAD, question="q-1", answer=answer)


@pytest.mark.spec("USR-05")
async def test_patience_ends_with_an_answer_by_policy(directory: Path, told: list[Event]):
    desk = FileDesk(directory, clock=SystemClock(), emit=told.append, attended=True, patience=0.02)
    answer = await desk.ask(may())
    assert answer.by == "policy"
    assert "within 0.02 seconds" in answer.reason
    assert not Questions(directory).answer("q-1", Allowed())


async def test_an_answer_that_came_before_patience_ended_stands(
    directory: Path, told: list[Asked | Answered]
):
    class Impatient(SystemClock):
        """Its deadlines are over at once, after somebody else was quicker."""

        def deadline(self, seconds: float) -> Deadline:
            Questions(directory).answer("q-1", Allowed())
            return super().deadline(0)

    desk = FileDesk(directory, clock=Impatient(), emit=told.append, attended=False, patience=60)
    assert await desk.ask(may()) == Allowed()
    assert told[-1].answer == Allowed()


async def test_an_interrupted_call_withdraws_its_question(desk: FileDesk, told: list[Event], directory: Path):
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(desk.ask(may()))
        await anext(desk.incoming())
        settled = tasks.create_task(desk.settled("q-1"))
        await asyncio.sleep(0)
        asked.cancel()
    assert asked.cancelled()
    assert settled.result().by == "policy"
    assert told[-1] == Answered(agent=LEAD, question="q-1", answer=settled.result())
    assert Questions(directory).open() == ()
    assert desk.open_questions() == ()


async def test_a_full_disk_does_not_swallow_an_interruption(directory: Path):
    def full(event: Event) -> None:
        if isinstance(event, Answered):
            raise StoreError("full", path=directory)

    desk = FileDesk(directory, clock=SystemClock(), emit=full, attended=True)
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(desk.ask(may()))
        await anext(desk.incoming())
        asked.cancel()
    assert asked.cancelled()


async def test_a_surface_learns_that_another_one_was_quicker(desk: FileDesk):
    async with asking(desk, may()), asyncio.TaskGroup() as tasks:
        settled = tasks.create_task(desk.settled("q-1"))
        await asyncio.sleep(0)
        desk.answer("q-1", Allowed())
    assert settled.result() == Allowed()
    assert await desk.settled("q-1") is None


async def test_questions_are_shown_once_each_as_they_come(desk: FileDesk):
    incoming = desk.incoming()
    async with asyncio.TaskGroup() as tasks:
        for name in ("q-1", "q-2", "q-3"):
            tasks.create_task(desk.ask(may(name)))
            assert (await anext(incoming)).id == name
        for name in ("q-1", "q-2", "q-3"):
            desk.answer(name, Allowed())


async def test_an_answer_of_the_wrong_kind_or_to_nothing_is_refused(desk: FileDesk, directory: Path):
    async with asking(desk, may(), choose()):
        with pytest.raises(StoreError, match="for permission"):
            desk.answer("q-1", Chosen(answers={}))
        with pytest.raises(StoreError, match="for a choice"):
            desk.answer("q-2", Allowed())
        with pytest.raises(StoreError, match="no question 'q-9'"):
            desk.answer("q-9", Allowed())
        with pytest.raises(StoreError, match="no question"):
            desk.answer("../../q-1", Allowed())
        desk.answer("q-1", Allowed())
        desk.answer("q-2", Denied(reason="neither"))


async def test_a_file_that_is_no_answer_is_put_aside_and_a_good_one_taken(desk: FileDesk, directory: Path):
    async with asking(desk, may()) as asked:
        bad = directory / "q-1.answer.json"
        bad.write_text('{"type":"allo')
        os.utime(bad, (0, 0))
        while bad.exists():
            await asyncio.sleep(0.01)
        assert not asked[0].done()
        assert desk.answer("q-1", Allowed())
    assert asked[0].result() == Allowed()
    assert (directory / "q-1.answer.refused").exists()


LEFT_OVER = """
import asyncio, sys
from pathlib import Path
from shoal.core.clock import SystemClock
from shoal.core.questions import MayRun
from shoal.runs.desk import FileDesk

async def main():
    desk = FileDesk(Path(sys.argv[1]), clock=SystemClock(), emit=lambda event: None, attended=True)
    async with asyncio.TaskGroup() as tasks:
        for name in ("q-1", "q-2"):
            question = MayRun(id=name, agent="lead", tool_use_id="t", tool="Bash", input={}, reason="r")
            tasks.create_task(desk.ask(question))
        incoming = desk.incoming()
        await anext(incoming)
        await anext(incoming)
        print("asked", flush=True)

asyncio.run(main())
"""


@pytest.mark.spec("TRN-02")
async def test_questions_of_a_killed_run_are_withdrawn_when_it_resumes(
    desk: FileDesk, told: list[Answered], directory: Path
):
    child = subprocess.Popen([sys.executable, "-c", LEFT_OVER, str(directory)], stdout=subprocess.PIPE)
    with child:
        assert child.stdout.readline() == b"asked\n"
        child.kill()
    assert Questions(directory).answer("q-2", Allowed())
    assert [question.id for question in desk.withdraw_left_over()] == ["q-1"]
    assert [(event.question, event.answer.by) for event in told] == [("q-1", "policy")]
    assert Questions(directory).open() == ()
    assert desk.withdraw_left_over() == ()
