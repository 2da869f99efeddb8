"""One agent waits for an answer: the others continue, and no finished work is repeated."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paused_agents
import shoal
from agent_scripts import call_tool, script_agents, spawn_agent
from session_helpers import (
    collect_events,
    list_agent_starts,
    list_lead_results,
    map_agent_results,
    open_session,
)
from shoal.core.conversation.messages import ToolResultBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentEnded, QuestionAsked
from shoal.core.permissions.questions import AllowAnswer, Answer, DenyAnswer, PermissionQuestion
from shoal.stores.files.sessions.file_journal import read_journal
from shoal.stores.files.sessions.question_files import QuestionFiles

ASKING = {"skip_permissions": False, "attended": True}


async def wait_for_questions(session: shoal.Session, count: int) -> list[PermissionQuestion]:
    """Wait for this many questions."""
    found: list[PermissionQuestion] = []
    async with asyncio.timeout(20):
        async for question in session.runtime.question_broker.watch_questions():
            found.append(question)
            if len(found) == count:
                return found
    raise AssertionError


@pytest.mark.spec("USR-27", "USR-05")
@pytest.mark.parametrize(
    ("answer", "written", "expected_text"),
    [
        (AllowAnswer(), "as planned", "wrote"),
        (AllowAnswer(input={"file_path": "deep.txt", "content": "as edited"}), "as edited", "wrote"),
        (DenyAnswer(reason="leave that alone."), None, "leave that alone."),
    ],
)
async def test_an_answer_reaches_an_agent_at_depth_three_while_the_others_finish(
    tmp_path: Path, answer: Answer, written: str | None, expected_text: str
) -> None:
    def told_of_it(request: ModelRequest) -> str:
        (result,) = [each for each in request.messages[-1].content if isinstance(each, ToolResultBlock)]
        return f"wrote: {result.content}" if not result.is_error else f"could not: {result.content}"

    siblings = [spawn_agent(f"sibling {n}", f"s{n}") for n in range(paused_agents.SIBLINGS)]
    model = script_agents(
        lead=[[spawn_agent("one", "c1"), *siblings], "end"],
        one=[spawn_agent("two", "c2"), lambda r: f"one: {told_of_it(r)}"],
        two=[spawn_agent("three", "c3"), lambda r: f"two: {told_of_it(r)}"],
        three=[call_tool("Write", "w1", file_path="deep.txt", content="as planned"), told_of_it],
        sibling=[call_tool("Count", "n1"), "counted"],
    )
    count = paused_agents.create_count_tool(tmp_path)
    options = {**ASKING, "tools": [count], "allowed_tools": ["Count"]}
    async with open_session(tmp_path, model, **options) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        (question,) = await wait_for_questions(session, 1)
        paused = {run.facts.description: run for run in session.supervisor.list_running_agents()}
        async with asyncio.timeout(20):
            for name, run in paused.items():
                if name.startswith("sibling"):
                    await run.wait_until_closed()
        # All that are left wait for the one that asks.
        left = {run.facts.description: run.facts.depth for run in session.supervisor.list_running_agents()}
        assert left == {"one": 1, "two": 2, "three": 3}
        assert question.agent == paused["three"].id
        assert [each.id for each in session.runtime.question_broker.list_open_questions()] == [question.id]
        session.runtime.question_broker.submit_answer(question.id, answer)
        async with asyncio.timeout(20):
            await turn
        assert expected_text in list_lead_results(session)[0]
    file = tmp_path / "deep.txt"
    assert (file.read_text() if file.exists() else None) == written
    assert len((tmp_path / "counted").read_text().split()) == paused_agents.SIBLINGS
    assert {done.status for done in map_agent_results(session).values()} == {"completed"}


@pytest.mark.spec("USR-05")
async def test_every_question_is_a_row_and_an_answer_releases_one_agent(tmp_path: Path) -> None:
    n = 5
    calls = [spawn_agent(f"child {i}", f"c{i}", run_in_background=True) for i in range(n)]

    def write(request: ModelRequest) -> Any:
        return call_tool("Write", "w1", file_path=f"{request.messages[0].text}.txt", content="x")

    model = script_agents(lead=[calls, "end"], child=[write, "done"])
    async with open_session(tmp_path, model, **ASKING) as session:
        await collect_events(session.run("lead"))
        questions = await wait_for_questions(session, n)
        assert len({question.agent for question in questions}) == n
        rows = Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs" / session.id / "questions"
        assert len(list(rows.glob("*"))) == n
        assert all(question.tool == "Write" for question in questions)
        runs = {run.id: run for run in session.supervisor.list_running_agents()}
        for freed, question in enumerate(questions, start=1):
            session.runtime.question_broker.submit_answer(question.id, AllowAnswer())
            async with asyncio.timeout(20):
                await runs[question.agent].wait_until_closed()
            assert len(list(tmp_path.glob("child *.txt"))) == freed
            assert {each.id for each in session.supervisor.list_running_agents()} == {
                each.agent for each in questions[freed:]
            }
            assert session.runtime.question_broker.list_open_questions() == tuple(questions[freed:])


@pytest.mark.spec("USR-27", "TRN-02", "USR-12")
async def test_after_a_kill_finished_agents_do_not_rerun_and_the_paused_one_continues(tmp_path: Path) -> None:
    plugins = Path(paused_agents.__file__).parent
    command = [sys.executable, str(plugins / "paused_agents.py"), str(tmp_path)]
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
    requests: list[ModelRequest] = []
    options = {**ASKING, "tools": [paused_agents.create_count_tool(tmp_path)], "allowed_tools": ["Count"]}
    async with open_session(
        tmp_path, paused_agents.script_paused_agents(requests), resume=session_id, **options
    ) as session:
        turn = asyncio.create_task(collect_events(session.run("go on")))
        (question,) = await wait_for_questions(session, 1)
        # The question of the dead process is withdrawn.
        open_rows = QuestionFiles(journal.parent / "questions").list_open_questions()
        assert [each.id for each in open_rows] == [question.id]
        session.runtime.question_broker.submit_answer(question.id, AllowAnswer())
        async with asyncio.timeout(20):
            await turn
            while (more := await session.next_turn()) is not None:
                await collect_events(more)
    assert (tmp_path / "deep.txt").read_text() == "as planned"
    # Each of the others counted once, before the kill, and was not started again.
    assert len((tmp_path / "counted").read_text().split()) == paused_agents.SIBLINGS
    again = [event for event in list_agent_starts(session) if event.resumed]
    assert [event.name for event in again] == ["deep"]
    assert len(list_agent_starts(session)) == 3 + paused_agents.SIBLINGS + 1
    # It goes on with all it knew: its job, and the call that was cut off.
    before = requests[0].messages
    assert before[0].text == "three"
    assert [call.name for call in before[1].tool_uses] == ["Write"]
    assert map_agent_results(session)["three"].text == "wrote it"
    expected_text = "".join(message.text for message in session.agent.conversation.messages)
    assert [expected_text.count(f'Agent "sibling {n}"') for n in range(paused_agents.SIBLINGS)] == [
        1
    ] * paused_agents.SIBLINGS
    assert "<result>wrote it</result>" in expected_text


def _is_paused(journal: Path) -> bool:
    if not journal.exists():
        return False
    events = [each.event for each in read_journal(journal)]
    ended = sum(isinstance(event, AgentEnded) for event in events)
    return ended == paused_agents.SIBLINGS and any(isinstance(event, QuestionAsked) for event in events)
