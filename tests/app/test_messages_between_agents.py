"""Working agents are inspected, messaged and stopped by agents and users."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import get_started_agent_id

from agent_scripts import ToolGate, call_tool, run_all_turns, script_agents, spawn_agent
from session_helpers import (
    collect_events,
    find_tool_results,
    get_last_result,
    list_lead_results,
    open_session,
)
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.testing import FakeClock
from shoal.tools.function_tool import tool


@pytest.mark.spec("CTL-07")
@pytest.mark.parametrize("background", [False, True])
async def test_the_output_file_shows_the_text_and_calls_of_a_working_agent(
    tmp_path: Path, background: bool
) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("child", "c1", run_in_background=background), "end"],
        child=[["I look.", call_tool("Gate")], "done"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        (child,) = session.supervisor.list_agents()
        runs = Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs"
        output = runs / session.id / "tasks" / f"{child.agent}.output"
        # Of one that is waited for it is held back for a moment.
        async with asyncio.timeout(10):
            while not output.exists():
                await asyncio.sleep(0.01)
        assert output.read_text() == "I look.\n· Gate\n"
        gate.is_open.set()
        await turn
        await session.wait_agents_idle()
        assert output.read_text().startswith("I look.\n· Gate\ndone\n")
        assert child.output == str(output)
    assert (str(output) in list_lead_results(session)[0]) is background


@pytest.mark.spec("RUN-06")
async def test_stopping_a_background_agent_stops_no_other_agent_and_no_turn(tmp_path: Path) -> None:
    one, other, lead = ToolGate("One"), ToolGate("Other"), ToolGate("Lead")
    model = script_agents(
        lead=[
            [
                spawn_agent("one", "c1", run_in_background=True),
                spawn_agent("other", "c2", run_in_background=True),
            ],
            call_tool("Lead"),
            "the turn went on",
        ],
        one=[call_tool("One"), "never"],
        other=[call_tool("Other"), "still here"],
    )
    async with open_session(tmp_path, model, tools=[one.tool, other.tool, lead.tool]) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        for each in (one, other, lead):
            await each.wait_until_reached()
        stopped = {each.description: each.agent for each in session.supervisor.list_agents()}["one"]
        await session.stop_task(stopped)
        states = {each.description: each.status for each in session.supervisor.list_agents()}
        assert states == {"one": "killed", "other": "running"}
        lead.is_open.set()
        *_, finished = await turn
        assert finished.text == "the turn went on"
        other.is_open.set()


@pytest.mark.spec("TRN-01")
async def test_every_message_of_an_agent_is_written_to_its_transcript_immediately(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("child", "c1"), "end"], child=[["I look.", call_tool("Gate", "g1")], "done"]
    )

    def list_transcript_texts() -> list[str]:
        (path,) = Path(os.environ["SHOAL_HOME"]).glob(f"projects/*/{session.id}/subagents/*.jsonl")
        return [json.loads(line)["type"] for line in path.read_text().splitlines()]

    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        assert list_transcript_texts() == ["user", "assistant"]
        gate.is_open.set()
        await turn
        assert list_transcript_texts() == ["user", "assistant", "user", "assistant"]


@pytest.mark.spec("CTL-03")
async def test_an_id_addresses_one_agent_and_a_star_every_other_working_agent(
    tmp_path: Path,
) -> None:
    gate = ToolGate()

    def tell(to: str) -> Any:
        return call_tool("SendMessage", f"m-{to}", to=to, message="look here", summary="a place")

    def by_id(_: ModelRequest) -> Any:
        return tell(next(each.agent for each in session.supervisor.list_agents() if each.name == "reader"))

    def texts(request: ModelRequest) -> str:
        return " | ".join(map(extract_tool_result_text, find_tool_results(request.messages)[1:3]))

    model = script_agents(
        lead=[
            [spawn_agent("reads", "c1", name="reader"), spawn_agent("writes", "c2", name="writer")],
            "end",
        ],
        reads=[call_tool("Gate"), lambda request: request.messages[-1].text],
        writes=[call_tool("Until"), tell("*"), by_id, call_tool("Open"), texts],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool]) as session:
        await run_all_turns(session)
        read_result, sent = list_lead_results(session)
    assert sent.startswith("reader will read it at its next step. | reader will read it at its next step.")
    assert read_result.count("look here") == 2


@pytest.mark.spec("CTL-09", "CTL-02")
async def test_an_id_addresses_its_agent_as_long_as_its_transcript_exists(
    tmp_path: Path,
) -> None:
    def again(_: ModelRequest) -> Any:
        return call_tool("SendMessage", "m1", to=known, message="what was it?", summary="the number")

    script = [spawn_agent("child remember 42", "c1"), "noted", again, "wait", "end"]
    child = ["42, noted", lambda request: " | ".join(message.text for message in request.messages)]
    async with open_session(tmp_path, script_agents(lead=script, child=child)) as session:
        await run_all_turns(session)
        (known,) = [each.agent for each in session.supervisor.list_agents()]
    shutil.rmtree(Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs" / session.id)
    async with open_session(tmp_path, script_agents(lead=script, child=child), resume=session.id) as session:
        await run_all_turns(session, "ask it again")
        (found,) = session.supervisor.list_agents()
    assert found.agent == known
    assert found.completion is not None
    assert found.completion.text.startswith("child remember 42 | 42, noted | ")


@pytest.mark.spec("CTL-05", "QUE-05")
async def test_reading_task_output_without_waiting_keeps_the_announcement(tmp_path: Path) -> None:
    @tool(name="Over", deadline=20)
    async def over() -> str:
        """Wait for the end of all agents."""
        await session.wait_agents_idle()
        return "over"

    def look(request: ModelRequest) -> Any:
        # Of one message: nothing is taken from the queue between the end and the look.
        return [
            call_tool("Over"),
            call_tool("TaskOutput", "t1", task_id=get_started_agent_id(request), block=False),
        ]

    model = script_agents(
        lead=[
            spawn_agent("child", "c1", run_in_background=True),
            look,
            lambda request: request.messages[-1].text,
        ],
        child=["the end of it"],
    )
    async with open_session(tmp_path, model, tools=[over]) as session:
        notice = await run_all_turns(session)
        shown = list_lead_results(session)[-1]
    assert shown.startswith("status: completed")
    assert "the end of it" in shown
    assert "<result>the end of it</result>" in notice


@pytest.mark.spec("CTL-05", "QUE-05")
async def test_an_end_another_agent_waited_for_is_still_announced_to_the_parent(tmp_path: Path) -> None:
    gate = ToolGate()

    def wait_for_slow(_: ModelRequest) -> Any:
        (slow,) = [each.agent for each in session.supervisor.list_agents() if each.description == "slow"]
        return [call_tool("Open"), call_tool("TaskOutput", "t1", task_id=slow)]

    model = script_agents(
        lead=[
            [spawn_agent("slow", "c1", run_in_background=True), spawn_agent("other", "c2")],
            "wait",
            lambda request: request.messages[-1].text,
        ],
        slow=[call_tool("Gate"), "the end of it"],
        other=[call_tool("Until"), wait_for_slow, get_last_result],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool]) as session:
        await run_all_turns(session)
        texts = [message.text for message in session.agent.conversation.messages if message.role == "user"]
        result = list_lead_results(session)[1]
    assert "the end of it" in result
    assert "\n".join(texts).count("<result>the end of it</result>") == 1


@pytest.mark.spec("CTL-05", "USR-07")
async def test_reading_task_output_waits_no_longer_than_its_timeout(tmp_path: Path) -> None:
    clock, gate = FakeClock(), ToolGate()
    model = script_agents(
        lead=[
            spawn_agent("slow", "c1", run_in_background=True),
            lambda request: call_tool(
                "TaskOutput", "t1", task_id=get_started_agent_id(request), timeout=5_000
            ),
            get_last_result,
        ],
        slow=[call_tool("Gate"), "done"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool], clock=clock, persist=False) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        async with asyncio.timeout(10):
            await clock.wait_for_sleepers()
            await clock.advance(5)
            *_, finished = await turn
    assert finished.text.startswith("status: running")


@pytest.mark.spec("CTL-06")
async def test_background_commands_are_stopped_by_either_id_with_clear_errors(
    tmp_path: Path,
) -> None:
    asleep = [call_tool("Bash", f"b{n}", command="sleep 600", run_in_background=True) for n in (1, 2)]
    stops = [
        call_tool("TaskStop", "s1", task_id="bash_1"),
        call_tool("TaskStop", "s2", shell_id="bash_2"),
        call_tool("TaskStop", "s3", task_id="bash_1"),
        call_tool("TaskStop", "s4", task_id="nobody"),
        call_tool("TaskStop", "s5"),
    ]
    async with open_session(tmp_path, script_agents(lead=[asleep, stops, "end"])) as session:
        await run_all_turns(session)
        _, _, *texts = list_lead_results(session)
        assert [shell.status for shell in session.runtime.processes.shells.list_shells()] == [
            "stopped",
            "stopped",
        ]
    assert texts[:2] == ["The shell bash_1 was stopped: sleep 600", "The shell bash_2 was stopped: sleep 600"]
    assert texts[2] == "Nothing to stop: the shell bash_1 stopped."
    assert "There is no agent or task 'nobody' in this session." in texts[3]
    assert texts[4].startswith("task_id is missing")
