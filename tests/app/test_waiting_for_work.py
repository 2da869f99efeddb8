"""Whoever waits for an agent or a command in the background waits no longer than it said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cast import Gate, agent, all_turns, cast, use
from crew_rig import opened, results, texts
from shoal.core.messages import result_text
from shoal.core.requests import Request


@pytest.mark.spec("USR-07")
@pytest.mark.parametrize("what", ["agent", "command"])
async def test_a_wait_ends_at_its_time_and_what_was_waited_for_goes_on(tmp_path: Path, what: str) -> None:
    gate = Gate()
    started = {
        "agent": agent("slow", "c1", run_in_background=True),
        "command": use("Bash", "c1", command="sleep 600", run_in_background=True),
    }

    def wait(request: Request) -> object:
        told = result_text(results(request.messages)[0])
        of_agent = told.partition("agentId: ")[2].split()
        ident = of_agent[0].rstrip(",") if of_agent else session.parts.shells.list()[0].id
        return use("TaskOutput", "t1", task_id=ident, timeout=200)

    model = cast(lead=[started[what], wait, use("Open"), "end"], slow=[use("Gate"), "at last"])
    async with opened(tmp_path, model, tools=[gate.tool, gate.open]) as session:
        seen: dict[str, float] = {}
        clock = asyncio.get_running_loop().time
        session.watch(
            lambda event: seen.setdefault(f"{type(event).__name__} {getattr(event, 'call', '')}", clock())
        )
        await all_turns(session)
        assert texts(session)[1].startswith("status: running")
    assert 0.2 <= seen["ToolReturned t1"] - seen["ToolStarted t1"] < 1.2
