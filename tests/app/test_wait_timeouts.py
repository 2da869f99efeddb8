"""Waiting for an agent or a background command ends at the timeout."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_scripts import ToolGate, call_tool, run_all_turns, script_agents, spawn_agent
from session_helpers import find_tool_results, list_lead_results, open_session
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest


@pytest.mark.spec("USR-07")
@pytest.mark.parametrize("what", ["agent", "command"])
async def test_a_wait_ends_at_its_timeout_and_the_work_continues(tmp_path: Path, what: str) -> None:
    gate = ToolGate()
    started = {
        "agent": spawn_agent("slow", "c1", run_in_background=True),
        "command": call_tool("Bash", "c1", command="sleep 600", run_in_background=True),
    }

    def wait(request: ModelRequest) -> object:
        result = extract_tool_result_text(find_tool_results(request.messages)[0])
        of_agent = result.partition("agentId: ")[2].split()
        ident = of_agent[0].rstrip(",") if of_agent else session.runtime.processes.shells.list_shells()[0].id
        return call_tool("TaskOutput", "t1", task_id=ident, timeout=200)

    model = script_agents(
        lead=[started[what], wait, call_tool("Open"), "end"], slow=[call_tool("Gate"), "at last"]
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.open_tool]) as session:
        event_times: dict[str, float] = {}
        clock = asyncio.get_running_loop().time
        session.subscribe(
            lambda event: event_times.setdefault(
                f"{type(event).__name__} {getattr(event, 'call', '')}", clock()
            )
        )
        await run_all_turns(session)
        assert list_lead_results(session)[1].startswith("status: running")
    assert 0.2 <= event_times["ToolOutputReturned t1"] - event_times["ToolStarted t1"] < 1.2
