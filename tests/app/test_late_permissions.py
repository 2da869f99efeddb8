"""A person answers a question whose process died meanwhile: the agent is told, and nothing runs by itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from cast import cast, recorded, use
from crew_rig import drain, opened, texts
from shoal.app.outside.questions import find_cut_off, give_late
from shoal.core.clock import SystemClock
from shoal.core.errors import StoreError
from shoal.core.events import Answered, Asked, Queued
from shoal.core.ids import LEAD
from shoal.core.messages import INTERRUPTED
from shoal.core.permissions import AddRules, RuleValue
from shoal.core.questions import Allowed, Answer, Denied, MayRun
from shoal.core.requests import Request
from shoal.stores.files.questions import Questions

ASKING: dict[str, Any] = {"skip_permissions": False, "attended": True}
MAKING = use("Bash", "b1", command="touch made")
ASKER = """
    import asyncio, sys, shoal
    from shoal.core.messages import ToolUse

    call = ToolUse(id="b1", name="Bash", input={"command": "touch made"})
    child = ToolUse(id="c1", name="Agent", input={"description": "child", "prompt": "child"})

    def mind(request):
        return child if sys.argv[2] == "agent" and request.messages[0].text.startswith("lead") else call

    async def main():
        async with shoal.open(cwd=sys.argv[1], model=shoal.ScriptedModel(mind), attended=True) as session:
            async with asyncio.TaskGroup() as tasks:
                async def run():
                    async for _ in session.run("lead"):
                        pass
                tasks.create_task(run())
                async for question in session.parts.desk.incoming():
                    print(session.id, question.id, flush=True)

    asyncio.run(main())
"""


def killed(project: Path, who: str = "lead") -> tuple[str, str, Questions]:
    """The session of a process that was killed while it asked; the question, and the store it is in."""
    command = [sys.executable, "-c", textwrap.dedent(ASKER), str(project), who]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            session, question = child.stdout.readline().split()
        finally:
            child.kill()
    home = Path(os.environ["SHOAL_HOME"])
    return session, question, Questions(home / "shoal" / "runs" / session / "questions")


def answer_from_outside(question: str, answer: Answer) -> None:
    """As `shoal ask answer` does it."""
    row = find_cut_off(Path(os.environ["SHOAL_HOME"]), question, SystemClock())
    assert row is not None
    give_late(row, answer)


async def next_turn(session: Any) -> None:
    async with asyncio.timeout(20):
        turn = await session.next_turn(wait_for_people=True)
        assert turn is not None
        await drain(turn)


def told(session: Any) -> list[Queued]:
    return [each for each in recorded(session) if isinstance(each, Queued)]


@pytest.mark.spec("QUE-03", "QUE-06")
async def test_a_late_yes_wakes_the_lead_through_the_queue_and_runs_nothing(tmp_path: Path) -> None:
    session_id, question, _ = killed(tmp_path)
    model = cast(lead=[MAKING, "resumed", "heard"])
    async with opened(tmp_path, model, resume=session_id, **ASKING) as session:
        await drain(session.run("go on"))
        assert texts(session) == [INTERRUPTED]
        answer_from_outside(question, Allowed())
        await next_turn(session)
        said = session.agent.conversation.messages[-2].text
        assert '<permission-granted tool="Bash" tool-use-id="b1">\n{"command":"touch made"}\n' in said
        assert "again if it is still wanted" in said
    assert not (tmp_path / "made").exists()
    (queued,) = told(session)
    assert (queued.agent, queued.by, queued.mode) == (LEAD, "runtime", "orphaned-permission")


@pytest.mark.spec("QUE-03")
async def test_the_call_made_again_is_not_asked_about_and_any_other_is(tmp_path: Path) -> None:
    session_id, question, _ = killed(tmp_path)
    again, more = use("Bash", "b2", command="touch made"), use("Bash", "b3", command="touch made")
    model = cast(lead=[MAKING, "resumed", again, more, "over"])
    async with opened(tmp_path, model, resume=session_id, **ASKING) as session:
        await drain(session.run("go on"))
        answer_from_outside(question, Allowed())
        turn = asyncio.create_task(next_turn(session))
        async with asyncio.timeout(20):
            second = await anext(session.parts.desk.incoming())
        # It counted once: the same call a second time is a question of its own.
        assert isinstance(second, MayRun)
        assert (second.tool_use_id, (tmp_path / "made").exists()) == ("b3", True)
        session.parts.desk.answer(second.id, Denied(reason="once is enough."))
        await turn


async def test_a_yes_with_another_input_is_told_and_counts_for_that_input(tmp_path: Path) -> None:
    session_id, question, _ = killed(tmp_path)
    model = cast(lead=[MAKING, "resumed", use("Bash", "b2", command="touch other"), "over"])
    async with opened(tmp_path, model, resume=session_id, **ASKING) as session:
        await drain(session.run("go on"))
        answer_from_outside(question, Allowed(input={"command": "touch other"}))
        await next_turn(session)
        assert "The person has changed its input" in told(session)[0].text
    assert [path.name for path in tmp_path.glob("*") if path.name in ("made", "other")] == ["other"]


async def test_a_yes_for_the_session_is_a_rule_of_the_session(tmp_path: Path) -> None:
    session_id, question, _ = killed(tmp_path)
    rule = AddRules(rules=(RuleValue(tool_name="Bash", rule_content="touch:*"),))
    model = cast(lead=[MAKING, "resumed", use("Bash", "b2", command="touch quite-another"), "over"])
    async with opened(tmp_path, model, resume=session_id, **ASKING) as session:
        await drain(session.run("go on"))
        answer_from_outside(question, Allowed(updates=(rule,)))
        await next_turn(session)
        assert session.parts.permissions.answers.updates == (rule,)
    assert (tmp_path / "quite-another").exists()


async def test_a_no_a_second_yes_and_an_unknown_id_are_refused_with_the_reason(tmp_path: Path) -> None:
    session_id, question, _ = killed(tmp_path)
    model = cast(lead=[MAKING, "resumed", "heard", "more"])
    async with opened(tmp_path, model, resume=session_id, **ASKING) as session:
        late = session.parts.desk.late
        with pytest.raises(StoreError, match="nothing left to deny"):
            late.give(question, Denied(reason="no"))
        with pytest.raises(StoreError, match="There is no question 'other'"):
            late.give("other", Allowed())
        late.give(question, Allowed())
        with pytest.raises(StoreError, match="counts once"):
            late.give(question, Allowed())
        await drain(session.run("go on"))
    assert len(told(session)) == 1
    with pytest.raises(StoreError, match=f"shoal --resume {session_id}"):
        answer_from_outside(question, Allowed())


@pytest.mark.spec("QUE-03")
async def test_a_yes_that_the_dead_process_did_not_hear_is_told_once(
    tmp_path: Path,
) -> None:
    session_id, question, store = killed(tmp_path)
    assert store.answer(question, Allowed())
    seen: list[str] = []

    def look(request: Request) -> str:
        seen.append("".join(message.text for message in request.messages))
        return "seen"

    for _ in range(2):
        model = cast(lead=[MAKING, look])
        async with opened(tmp_path, model, resume=session_id, **ASKING) as session:
            await drain(session.run("go on"))
            while (turn := await session.next_turn()) is not None:
                await drain(turn)
    assert seen[-1].count("</permission-granted>") == 1
    assert len(told(session)) == 1
    answers = [each for each in recorded(session) if isinstance(each, Answered)]
    assert [(each.question, each.answer) for each in answers] == [(question, Allowed())]
    assert sum(isinstance(each, Asked) for each in recorded(session)) == 1


async def test_a_yes_that_waits_when_the_session_ends_is_told_by_the_next(tmp_path: Path) -> None:
    session_id, question, _ = killed(tmp_path)
    async with opened(tmp_path, cast(lead=[MAKING, "unused"]), resume=session_id, **ASKING) as session:
        session.parts.desk.late.give(question, Allowed())
    async with opened(tmp_path, cast(lead=[MAKING, "heard"]), resume=session_id, **ASKING) as session:
        item = session.parts.queue.take(LEAD)
        assert item is not None
        assert item.mode == "orphaned-permission"
        session.parts.queue.put(item)
        await next_turn(session)
    assert len(told(session)) == 1


async def test_a_late_yes_for_an_agent_is_told_to_the_lead_with_its_name(tmp_path: Path) -> None:
    session_id, question, store = killed(tmp_path, "agent")
    asked = store.get(question)
    assert asked is not None
    model = cast(lead=["unused", "resumed", "heard"])
    async with opened(tmp_path, model, resume=session_id, **ASKING) as session:
        await drain(session.run("go on"))
        answer_from_outside(question, Allowed())
        await next_turn(session)
    (queued,) = told(session)
    assert queued.agent == LEAD
    assert f'by="{asked.agent}"' in queued.text
    assert "SendMessage lets that agent go on" in queued.text
