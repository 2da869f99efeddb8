"""One agent waits for a person: the others go on, and nothing they did is done again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paused_rig
import shoal
from cast import agent, cast, use
from crew_rig import drain, ends, opened, starts, texts
from shoal.core.events import AgentEnded, Asked
from shoal.core.messages import ToolResult
from shoal.core.questions import Allowed, Answer, Denied, MayRun
from shoal.core.requests import Request
from shoal.stores.files.journal import read_journal
from shoal.stores.files.questions import Questions

ASKING = {"skip_permissions": False, "attended": True}


async def asked(session: shoal.Session, count: int) -> list[MayRun]:
    """The questions, when there are so many."""
    found: list[MayRun] = []
    async with asyncio.timeout(20):
        async for question in session.parts.desk.incoming():
            found.append(question)
            if len(found) == count:
                return found
    raise AssertionError


@pytest.mark.spec("USR-27", "USR-05")
@pytest.mark.parametrize(
    ("answer", "written", "told"),
    [
        (Allowed(), "as planned", "wrote"),
        (Allowed(input={"file_path": "deep.txt", "content": "as edited"}), "as edited", "wrote"),
        (Denied(reason="leave that alone."), None, "leave that alone."),
    ],
)
async def test_an_answer_reaches_depth_three_while_the_others_finish(
    tmp_path: Path, answer: Answer, written: str | None, told: str
) -> None:
    def told_of_it(request: Request) -> str:
        (result,) = [each for each in request.messages[-1].content if isinstance(each, ToolResult)]
        return f"wrote: {result.content}" if not result.is_error else f"could not: {result.content}"

    siblings = [agent(f"sibling {n}", f"s{n}") for n in range(paused_rig.SIBLINGS)]
    model = cast(
        lead=[[agent("one", "c1"), *siblings], "end"],
        one=[agent("two", "c2"), lambda r: f"one: {told_of_it(r)}"],
        two=[agent("three", "c3"), lambda r: f"two: {told_of_it(r)}"],
        three=[use("Write", "w1", file_path="deep.txt", content="as planned"), told_of_it],
        sibling=[use("Count", "n1"), "counted"],
    )
    count = paused_rig.counting(tmp_path)
    options = {**ASKING, "tools": [count], "allowed_tools": ["Count"]}
    async with opened(tmp_path, model, **options) as session:
        turn = asyncio.create_task(drain(session.run("lead")))
        (question,) = await asked(session, 1)
        paused = {run.facts.description: run for run in session.parts.crew.at_work()}
        async with asyncio.timeout(20):
            for name, run in paused.items():
                if name.startswith("sibling"):
                    await run.over()
        # All that are left wait for the one that asks.
        left = {run.facts.description: run.facts.depth for run in session.parts.crew.at_work()}
        assert left == {"one": 1, "two": 2, "three": 3}
        assert question.agent == paused["three"].id
        assert [each.id for each in session.parts.desk.open_questions()] == [question.id]
        session.parts.desk.answer(question.id, answer)
        async with asyncio.timeout(20):
            await turn
        assert told in texts(session)[0]
    file = tmp_path / "deep.txt"
    assert (file.read_text() if file.exists() else None) == written
    assert len((tmp_path / "counted").read_text().split()) == paused_rig.SIBLINGS
    assert {done.status for done in ends(session).values()} == {"completed"}


@pytest.mark.spec("USR-05")
async def test_so_many_questions_are_so_many_rows_and_an_answer_frees_one_agent(tmp_path: Path) -> None:
    n = 5
    calls = [agent(f"child {i}", f"c{i}", run_in_background=True) for i in range(n)]

    def write(request: Request) -> Any:
        return use("Write", "w1", file_path=f"{request.messages[0].text}.txt", content="x")

    model = cast(lead=[calls, "end"], child=[write, "done"])
    async with opened(tmp_path, model, **ASKING) as session:
        await drain(session.run("lead"))
        questions = await asked(session, n)
        assert len({question.agent for question in questions}) == n
        rows = Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs" / session.id / "questions"
        assert len(list(rows.glob("*"))) == n
        assert all(question.tool == "Write" for question in questions)
        runs = {run.id: run for run in session.parts.crew.at_work()}
        for freed, question in enumerate(questions, start=1):
            session.parts.desk.answer(question.id, Allowed())
            async with asyncio.timeout(20):
                await runs[question.agent].over()
            assert len(list(tmp_path.glob("child *.txt"))) == freed
            assert {each.id for each in session.parts.crew.at_work()} == {
                each.agent for each in questions[freed:]
            }
            assert session.parts.desk.open_questions() == tuple(questions[freed:])


@pytest.mark.spec("USR-27", "TRN-02", "USR-12")
async def test_after_a_kill_no_finished_agent_works_again_and_the_paused_one_goes_on(tmp_path: Path) -> None:
    plugins = Path(paused_rig.__file__).parent
    command = [sys.executable, str(plugins / "paused_rig.py"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            session_id = child.stdout.readline().strip()
            journal = Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs" / session_id / "journal.jsonl"
            async with asyncio.timeout(30):
                while not _is_paused(journal):
                    await asyncio.sleep(0.01)
        finally:
            child.kill()
    seen: list[Request] = []
    options = {**ASKING, "tools": [paused_rig.counting(tmp_path)], "allowed_tools": ["Count"]}
    async with opened(tmp_path, paused_rig.model(seen), resume=session_id, **options) as session:
        turn = asyncio.create_task(drain(session.run("go on")))
        (question,) = await asked(session, 1)
        # What the dead process asked is withdrawn: nobody waits for that answer.
        open_rows = Questions(journal.parent / "questions").open()
        assert [each.id for each in open_rows] == [question.id]
        session.parts.desk.answer(question.id, Allowed())
        async with asyncio.timeout(20):
            await turn
            while (more := await session.next_turn()) is not None:
                await drain(more)
    assert (tmp_path / "deep.txt").read_text() == "as planned"
    # Each of the others counted once, before the kill, and was not started again.
    assert len((tmp_path / "counted").read_text().split()) == paused_rig.SIBLINGS
    again = [event for event in starts(session) if event.resumed]
    assert [event.name for event in again] == ["deep"]
    assert len(starts(session)) == 3 + paused_rig.SIBLINGS + 1
    # It goes on with all it knew: its job, and the call that was cut off.
    before = seen[0].messages
    assert before[0].text == "three"
    assert [call.name for call in before[1].tool_uses] == ["Write"]
    assert ends(session)["three"].text == "wrote it"
    told = "".join(message.text for message in session.agent.conversation.messages)
    assert [told.count(f'Agent "sibling {n}"') for n in range(paused_rig.SIBLINGS)] == [
        1
    ] * paused_rig.SIBLINGS
    assert "<result>wrote it</result>" in told


def _is_paused(journal: Path) -> bool:
    if not journal.exists():
        return False
    events = [each.event for each in read_journal(journal)]
    ended = sum(isinstance(event, AgentEnded) for event in events)
    return ended == paused_rig.SIBLINGS and any(isinstance(event, Asked) for event in events)
