"""Agents at work, looked at, reached and stopped by agents and people."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, agent, all_turns, cast, use
from crew_rig import drain, last_result, opened, results, texts
from shoal.core.messages import result_text
from shoal.core.requests import Request
from shoal.testing import FakeClock
from shoal.tools.define import tool


def started_id(request: Request) -> str:
    """The id of the agent that the conversation's first call started."""
    first = result_text(results(request.messages)[0])
    return first.partition("agentId: ")[2].split()[0].rstrip(",")


@pytest.mark.spec("CTL-07")
@pytest.mark.parametrize("background", [False, True])
async def test_what_an_agent_says_and_does_can_be_read_from_its_file_while_it_works(
    tmp_path: Path, background: bool
) -> None:
    gate = Gate()
    model = cast(
        lead=[agent("child", "c1", run_in_background=background), "end"],
        child=[["I look.", use("Gate")], "done"],
    )
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        turn = asyncio.create_task(drain(session.run("lead")))
        await gate.wait()
        (child,) = session.parts.crew.agents()
        runs = Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs"
        output = runs / session.id / "tasks" / f"{child.agent}.output"
        # Of one that is waited for it is held back for a moment.
        async with asyncio.timeout(10):
            while not output.exists():
                await asyncio.sleep(0.01)
        assert output.read_text() == "I look.\n· Gate\n"
        gate.opened.set()
        await turn
        await session.agents_idle()
        assert output.read_text().startswith("I look.\n· Gate\ndone\n")
        assert child.output == str(output)
    assert (str(output) in texts(session)[0]) is background


@pytest.mark.spec("RUN-06")
async def test_a_background_agent_that_is_stopped_takes_no_other_and_no_turn_with_it(tmp_path: Path) -> None:
    one, other, lead = Gate("One"), Gate("Other"), Gate("Lead")
    model = cast(
        lead=[
            [agent("one", "c1", run_in_background=True), agent("other", "c2", run_in_background=True)],
            use("Lead"),
            "the turn went on",
        ],
        one=[use("One"), "never"],
        other=[use("Other"), "still here"],
    )
    async with opened(tmp_path, model, tools=[one.tool, other.tool, lead.tool]) as session:
        turn = asyncio.create_task(drain(session.run("lead")))
        for each in (one, other, lead):
            await each.wait()
        stopped = {each.description: each.agent for each in session.parts.crew.agents()}["one"]
        await session.stop_task(stopped)
        states = {each.description: each.status for each in session.parts.crew.agents()}
        assert states == {"one": "killed", "other": "running"}
        lead.opened.set()
        *_, finished = await turn
        assert finished.text == "the turn went on"
        other.opened.set()


@pytest.mark.spec("TRN-01")
async def test_every_message_of_an_agent_is_on_its_transcript_as_it_happens(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(lead=[agent("child", "c1"), "end"], child=[["I look.", use("Gate", "g1")], "done"])

    def kept() -> list[str]:
        (path,) = Path(os.environ["SHOAL_HOME"]).glob(f"projects/*/{session.id}/subagents/*.jsonl")
        return [json.loads(line)["type"] for line in path.read_text().splitlines()]

    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        turn = asyncio.create_task(drain(session.run("lead")))
        await gate.wait()
        assert kept() == ["user", "assistant"]
        gate.opened.set()
        await turn
        assert kept() == ["user", "assistant", "user", "assistant"]


@pytest.mark.spec("CTL-03")
async def test_an_agent_is_reached_by_its_id_and_everyone_at_work_but_the_sender_by_a_star(
    tmp_path: Path,
) -> None:
    gate = Gate()

    def tell(to: str) -> Any:
        return use("SendMessage", f"m-{to}", to=to, message="look here", summary="a place")

    def by_id(_: Request) -> Any:
        return tell(next(each.agent for each in session.parts.crew.agents() if each.name == "reader"))

    def told(request: Request) -> str:
        return " | ".join(map(result_text, results(request.messages)[1:3]))

    model = cast(
        lead=[
            [agent("reads", "c1", name="reader"), agent("writes", "c2", name="writer")],
            "end",
        ],
        reads=[use("Gate"), lambda request: request.messages[-1].text],
        writes=[use("Until"), tell("*"), by_id, use("Open"), told],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open]) as session:
        await all_turns(session)
        heard, sent = texts(session)
    assert sent.startswith("reader hears it at its next step. | reader hears it at its next step.")
    assert heard.count("look here") == 2


@pytest.mark.spec("CTL-09", "CTL-02")
async def test_an_id_reaches_its_agent_as_long_as_there_is_a_transcript_whatever_else_is_gone(
    tmp_path: Path,
) -> None:
    def again(_: Request) -> Any:
        return use("SendMessage", "m1", to=known, message="what was it?", summary="the number")

    script = [agent("child remember 42", "c1"), "noted", again, "wait", "end"]
    child = ["42, noted", lambda request: " | ".join(message.text for message in request.messages)]
    async with opened(tmp_path, cast(lead=script, child=child)) as session:
        await all_turns(session)
        (known,) = [each.agent for each in session.parts.crew.agents()]
    shutil.rmtree(Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs" / session.id)
    async with opened(tmp_path, cast(lead=script, child=child), resume=session.id) as session:
        await all_turns(session, "ask it again")
        (found,) = session.parts.crew.agents()
    assert found.agent == known
    assert found.completion is not None
    assert found.completion.text.startswith("child remember 42 | 42, noted | ")


@pytest.mark.spec("CTL-05", "QUE-05")
async def test_a_look_that_does_not_wait_leaves_the_announcement_to_come(tmp_path: Path) -> None:
    @tool(name="Over", deadline=20)
    async def over() -> str:
        """Wait for the end of all agents."""
        await session.agents_idle()
        return "over"

    def look(request: Request) -> Any:
        # Of one message: nothing is taken from the queue between the end and the look.
        return [use("Over"), use("TaskOutput", "t1", task_id=started_id(request), block=False)]

    model = cast(
        lead=[agent("child", "c1", run_in_background=True), look, lambda request: request.messages[-1].text],
        child=["the end of it"],
    )
    async with opened(tmp_path, model, tools=[over]) as session:
        notice = await all_turns(session)
        shown = texts(session)[-1]
    assert shown.startswith("status: completed")
    assert "the end of it" in shown
    assert "<result>the end of it</result>" in notice


@pytest.mark.spec("CTL-05", "QUE-05")
async def test_an_end_that_another_agent_waited_for_is_still_told_to_who_started_it(tmp_path: Path) -> None:
    gate = Gate()

    def wait_for_slow(_: Request) -> Any:
        (slow,) = [each.agent for each in session.parts.crew.agents() if each.description == "slow"]
        return [use("Open"), use("TaskOutput", "t1", task_id=slow)]

    model = cast(
        lead=[
            [agent("slow", "c1", run_in_background=True), agent("other", "c2")],
            "wait",
            lambda request: request.messages[-1].text,
        ],
        slow=[use("Gate"), "the end of it"],
        other=[use("Until"), wait_for_slow, last_result],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open]) as session:
        await all_turns(session)
        told = [message.text for message in session.agent.conversation.messages if message.role == "user"]
        seen = texts(session)[1]
    assert "the end of it" in seen
    assert "\n".join(told).count("<result>the end of it</result>") == 1


@pytest.mark.spec("CTL-05", "USR-07")
async def test_a_look_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    model = cast(
        lead=[
            agent("slow", "c1", run_in_background=True),
            lambda request: use("TaskOutput", "t1", task_id=started_id(request), timeout=5_000),
            last_result,
        ],
        slow=[use("Gate"), "done"],
    )
    async with opened(tmp_path, model, tools=[gate.tool], clock=clock, persist=False) as session:
        turn = asyncio.create_task(drain(session.run("lead")))
        await gate.wait()
        async with asyncio.timeout(10):
            await clock.asleep()
            await clock.advance(5)
            *_, finished = await turn
    assert finished.text.startswith("status: running")


@pytest.mark.spec("CTL-06")
async def test_commands_in_the_background_are_stopped_by_either_id_and_what_is_wrong_is_said(
    tmp_path: Path,
) -> None:
    asleep = [use("Bash", f"b{n}", command="sleep 600", run_in_background=True) for n in (1, 2)]
    stops = [
        use("TaskStop", "s1", task_id="bash_1"),
        use("TaskStop", "s2", shell_id="bash_2"),
        use("TaskStop", "s3", task_id="bash_1"),
        use("TaskStop", "s4", task_id="nobody"),
        use("TaskStop", "s5"),
    ]
    async with opened(tmp_path, cast(lead=[asleep, stops, "end"])) as session:
        await all_turns(session)
        _, _, *told = texts(session)
        assert [shell.status for shell in session.parts.shells.list()] == ["stopped", "stopped"]
    assert told[:2] == ["Shell bash_1 is ended: sleep 600", "Shell bash_2 is ended: sleep 600"]
    assert told[2] == "Shell bash_1 is not running: it stopped."
    assert "There is no agent or task 'nobody' in this session." in told[3]
    assert told[4] == "Give task_id: what is to be stopped."
