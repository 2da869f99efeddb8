"""File leases: with the setting on, a file changed by an agent is reserved until the agent ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import join_results

from agent_scripts import ToolGate, call_tool, script_agents, spawn_agent
from session_helpers import (
    collect_events,
    list_agent_starts,
    list_lead_results,
    map_agent_results,
    open_session,
)
from shoal.core.errors import SettingsError


def call_write(path: str, content: str, call_id: str) -> Any:
    return call_tool("Write", call_id, file_path=path, content=content)


@pytest.mark.spec("USR-28", "RUN-09")
@pytest.mark.parametrize("leased", [True, False])
async def test_a_file_changed_by_an_agent_is_leased_until_the_agent_ends(
    tmp_path: Path, leased: bool
) -> None:
    gate = ToolGate()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("zero\n")
    read = call_tool("Read", "r0", file_path="src/a.py")
    model = script_agents(
        lead=[
            spawn_agent("first", "c1", run_in_background=True),
            call_tool("Until"),
            spawn_agent("second", "c2"),
            [read, call_write("src/a.py", "lead\n", "w3")],
            call_tool("Open"),
            "wait",
            [call_tool("Read", "r4", file_path="src/a.py"), call_write("src/a.py", "after\n", "w4")],
            "end",
        ],
        first=[
            read,
            [call_write("src/a.py", "first\n", "w1"), call_write("free.txt", "x", "w2")],
            call_tool("Gate"),
            "done",
        ],
        second=[
            [read, call_tool("Read", "r1", file_path="free.txt")],
            [call_write("src/a.py", "second\n", "w1"), call_write("free.txt", "y", "w2")],
            join_results,
        ],
    )
    own = {"file_leases": ["docs/**", "src/**"] if leased else []}
    async with open_session(
        tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool], shoal_settings=own
    ) as session:
        async with asyncio.timeout(20):
            await collect_events(session.run("lead"))
            while (turn := await session.next_turn()) is not None:
                await collect_events(turn)
    first = list_agent_starts(session)[0].agent
    second, lead = map_agent_results(session)["second"].text, list_lead_results(session)
    path = tmp_path / "src" / "a.py"
    refusal = f"Agent {first} is changing {path} and keeps it locked until the agent ends"
    assert (refusal in second) is leased
    assert any(refusal in each for each in lead[3:5]) is leased
    # What no pattern names is free, and so is the file when its holder has ended.
    assert (tmp_path / "free.txt").read_text() == "y"
    assert (tmp_path / "src" / "a.py").read_text() == "after\n"


async def test_an_invalid_lease_pattern_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="file_leases"):
        async with open_session(
            tmp_path, script_agents(lead=["end"]), shoal_settings={"file_leases": ["src/[a"]}
        ):
            pass
