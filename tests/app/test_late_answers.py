"""A question is answered after its process died: the agent is notified and nothing runs by itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import run_next_turn

from agent_scripts import call_tool, read_events, script_agents
from session_helpers import collect_events, list_lead_results, open_session
from shoal.app.run_access.pending_questions import find_interrupted_question, submit_late_answer
from shoal.app.settings.configured_store import open_home_store
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import INTERRUPTED_RESULT
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import StateFileError
from shoal.core.events import QuestionAnswered, QuestionAsked, QueueItemAdded
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.permission_changes import AddPermissionRulesSuggestion, SuggestedPermissionRule
from shoal.core.permissions.questions import AllowAnswer, Answer, DenyAnswer, PermissionQuestion
from shoal.stores.files.sessions.question_files import QuestionFiles

ATTENDED: dict[str, Any] = {"skip_permissions": False, "attended": True}
TOUCH = call_tool("Bash", "b1", command="touch made")
ASKING_PROGRAM = """
    import asyncio, sys, shoal
    from shoal.core.conversation.messages import ToolUseBlock

    call = ToolUseBlock(id="b1", name="Bash", input={"command": "touch made"})
    child = ToolUseBlock(id="c1", name="Agent", input={"description": "child", "prompt": "child"})

    def choose_reply(request):
        return child if sys.argv[2] == "agent" and request.messages[0].text.startswith("lead") else call

    async def main():
        model = shoal.ScriptedModel(choose_reply)
        async with shoal.open(cwd=sys.argv[1], model=model, attended=True) as session:
            async with asyncio.TaskGroup() as tasks:
                async def run():
                    async for _ in session.run("lead"):
                        pass
                tasks.create_task(run())
                async for question in session.runtime.question_broker.watch_questions():
                    print(session.id, question.id, flush=True)

    asyncio.run(main())
"""


def kill_asking_session(project: Path, who: str = "lead") -> tuple[str, str, QuestionFiles]:
    """Kill a process while it asks; return its session, the question and the question store."""
    command = [sys.executable, "-c", textwrap.dedent(ASKING_PROGRAM), str(project), who]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            session, question = child.stdout.readline().split()
        finally:
            child.kill()
    home = Path(os.environ["SHOAL_HOME"])
    return session, question, QuestionFiles(home / "shoal" / "runs" / session / "questions")


def answer_from_outside(question: str, answer: Answer) -> None:
    """Answer as `shoal ask answer` does."""
    row = find_interrupted_question(open_home_store(Path(os.environ["SHOAL_HOME"])), question, SystemClock())
    assert row is not None
    submit_late_answer(row, answer)


def list_queued_items(session: Any) -> list[QueueItemAdded]:
    return [each for each in read_events(session) if isinstance(each, QueueItemAdded)]


@pytest.mark.spec("QUE-03", "QUE-06")
async def test_a_late_allow_answer_wakes_the_lead_through_the_queue_and_runs_nothing(tmp_path: Path) -> None:
    session_id, question, _ = kill_asking_session(tmp_path)
    model = script_agents(lead=[TOUCH, "resumed", "heard"])
    async with open_session(tmp_path, model, resume=session_id, **ATTENDED) as session:
        await collect_events(session.run("go on"))
        assert list_lead_results(session) == [INTERRUPTED_RESULT]
        answer_from_outside(question, AllowAnswer())
        await run_next_turn(session)
        notification = session.agent.conversation.messages[-2].text
        assert '<permission-granted tool="Bash" tool-use-id="b1">\n{"command":"touch made"}\n' in notification
        assert "again if it is still needed" in notification
    assert not (tmp_path / "made").exists()
    (queued,) = list_queued_items(session)
    assert (queued.agent, queued.by, queued.mode) == (LEAD_ID, "runtime", "orphaned-permission")


@pytest.mark.spec("QUE-03")
async def test_repeating_the_allowed_call_asks_no_question_but_a_further_call_does(tmp_path: Path) -> None:
    session_id, question, _ = kill_asking_session(tmp_path)
    again, more = call_tool("Bash", "b2", command="touch made"), call_tool("Bash", "b3", command="touch made")
    model = script_agents(lead=[TOUCH, "resumed", again, more, "over"])
    async with open_session(tmp_path, model, resume=session_id, **ATTENDED) as session:
        await collect_events(session.run("go on"))
        answer_from_outside(question, AllowAnswer())
        turn = asyncio.create_task(run_next_turn(session))
        async with asyncio.timeout(20):
            second = await anext(session.runtime.question_broker.watch_questions())
        # It counted once: the same call a second time is a question of its own.
        assert isinstance(second, PermissionQuestion)
        assert (second.tool_use_id, (tmp_path / "made").exists()) == ("b3", True)
        session.runtime.question_broker.submit_answer(second.id, DenyAnswer(reason="once is enough."))
        await turn


async def test_a_late_allow_answer_with_changed_input_applies_to_that_input(tmp_path: Path) -> None:
    session_id, question, _ = kill_asking_session(tmp_path)
    model = script_agents(lead=[TOUCH, "resumed", call_tool("Bash", "b2", command="touch other"), "over"])
    async with open_session(tmp_path, model, resume=session_id, **ATTENDED) as session:
        await collect_events(session.run("go on"))
        answer_from_outside(question, AllowAnswer(input={"command": "touch other"}))
        await run_next_turn(session)
        assert "The user changed its input" in list_queued_items(session)[0].text
    assert [path.name for path in tmp_path.glob("*") if path.name in ("made", "other")] == ["other"]


async def test_a_late_allow_answer_for_the_session_adds_a_session_rule(tmp_path: Path) -> None:
    session_id, question, _ = kill_asking_session(tmp_path)
    rule = AddPermissionRulesSuggestion(
        rules=(SuggestedPermissionRule(tool_name="Bash", rule_content="touch:*"),)
    )
    model = script_agents(
        lead=[TOUCH, "resumed", call_tool("Bash", "b2", command="touch quite-another"), "over"]
    )
    async with open_session(tmp_path, model, resume=session_id, **ATTENDED) as session:
        await collect_events(session.run("go on"))
        answer_from_outside(question, AllowAnswer(updates=(rule,)))
        await run_next_turn(session)
        assert session.runtime.lead.permissions.answers.updates == (rule,)
    assert (tmp_path / "quite-another").exists()


async def test_a_late_deny_a_second_answer_and_an_unknown_id_are_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    session_id, question, _ = kill_asking_session(tmp_path)
    model = script_agents(lead=[TOUCH, "resumed", "heard", "more"])
    async with open_session(tmp_path, model, resume=session_id, **ATTENDED) as session:
        late = session.runtime.question_broker.late_answers
        with pytest.raises(StateFileError, match="nothing to deny"):
            late.submit_late_answer(question, DenyAnswer(reason="no"))
        with pytest.raises(StateFileError, match="There is no question 'other'"):
            late.submit_late_answer("other", AllowAnswer())
        late.submit_late_answer(question, AllowAnswer())
        with pytest.raises(StateFileError, match="counts only once"):
            late.submit_late_answer(question, AllowAnswer())
        await collect_events(session.run("go on"))
    assert len(list_queued_items(session)) == 1
    with pytest.raises(StateFileError, match=f"shoal --resume {session_id}"):
        answer_from_outside(question, AllowAnswer())


@pytest.mark.spec("QUE-03")
async def test_an_answer_that_the_dead_process_missed_is_delivered_once(
    tmp_path: Path,
) -> None:
    session_id, question, store = kill_asking_session(tmp_path)
    assert store.answer(question, AllowAnswer())
    conversations: list[str] = []

    def look(request: ModelRequest) -> str:
        conversations.append("".join(message.text for message in request.messages))
        return "seen"

    for _ in range(2):
        model = script_agents(lead=[TOUCH, look])
        async with open_session(tmp_path, model, resume=session_id, **ATTENDED) as session:
            await collect_events(session.run("go on"))
            while (turn := await session.next_turn()) is not None:
                await collect_events(turn)
    assert conversations[-1].count("</permission-granted>") == 1
    assert len(list_queued_items(session)) == 1
    answers = [each for each in read_events(session) if isinstance(each, QuestionAnswered)]
    assert [(each.question, each.answer) for each in answers] == [(question, AllowAnswer())]
    assert sum(isinstance(each, QuestionAsked) for each in read_events(session)) == 1


async def test_a_late_answer_queued_at_session_end_is_delivered_after_the_next_resume(tmp_path: Path) -> None:
    session_id, question, _ = kill_asking_session(tmp_path)
    async with open_session(
        tmp_path, script_agents(lead=[TOUCH, "unused"]), resume=session_id, **ATTENDED
    ) as session:
        session.runtime.question_broker.late_answers.submit_late_answer(question, AllowAnswer())
    async with open_session(
        tmp_path, script_agents(lead=[TOUCH, "heard"]), resume=session_id, **ATTENDED
    ) as session:
        item = session.runtime.inbox.queue.take_next(LEAD_ID)
        assert item is not None
        assert item.mode == "orphaned-permission"
        session.runtime.inbox.queue.put(item)
        await run_next_turn(session)
    assert len(list_queued_items(session)) == 1


async def test_a_late_answer_for_a_sub_agent_goes_to_the_lead_with_its_name(tmp_path: Path) -> None:
    session_id, question, store = kill_asking_session(tmp_path, "agent")
    asked = store.get(question)
    assert asked is not None
    model = script_agents(lead=["unused", "resumed", "heard"])
    async with open_session(tmp_path, model, resume=session_id, **ATTENDED) as session:
        await collect_events(session.run("go on"))
        answer_from_outside(question, AllowAnswer())
        await run_next_turn(session)
    (queued,) = list_queued_items(session)
    assert queued.agent == LEAD_ID
    assert f'by="{asked.agent}"' in queued.text
    assert "Resume that agent with SendMessage" in queued.text
