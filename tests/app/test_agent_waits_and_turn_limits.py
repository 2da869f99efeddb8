"""Agents that end while their parents wait, are interrupted or reach a limit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from app_session_helpers import get_started_agent_id

from agent_scripts import ToolGate, call_tool, run_all_turns, script_agents, spawn_agent
from session_helpers import map_agent_results, open_session
from shoal.core.events import AgentEnded, Event
from shoal.tools.function_tool import tool


@pytest.mark.spec("CTL-05", "RUN-11")
async def test_an_agent_ends_without_waiting_for_the_announcement_of_an_end_it_saw(tmp_path: Path) -> None:
    """The cleanup of the ended agent still runs when its parent finishes."""
    at_work, cleared = asyncio.Event(), asyncio.Event()

    @tool(name="Linger", deadline=None)
    async def linger() -> str:
        """Work, and take long to end."""
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            await cleared.wait()
        return "never"

    @tool(name="Until", deadline=None)
    async def until() -> str:
        """Wait until somebody lingers."""
        await at_work.wait()
        return "there"

    def look(event: Event) -> None:
        if isinstance(event, AgentEnded) and event.completion.description == "middle":
            cleared.set()

    model = script_agents(
        lead=[spawn_agent("middle", "c1"), "end"],
        middle=[
            spawn_agent("leaf", "c2", run_in_background=True),
            lambda request: call_tool("TaskOutput", "t1", task_id=get_started_agent_id(request)),
            "seen",
        ],
        leaf=[
            spawn_agent("below", "c3", run_in_background=True),
            call_tool("Until"),
            RuntimeError("it breaks"),
        ],
        below=[call_tool("Linger"), "never"],
    )
    async with open_session(tmp_path, model, tools=[linger, until]) as session:
        session.subscribe(look)
        assert await run_all_turns(session) == "end"
    assert (map_agent_results(session)["middle"].status, map_agent_results(session)["middle"].text) == (
        "completed",
        "seen",
    )


@pytest.mark.spec("RUN-11", "USR-04")
async def test_a_queued_report_is_delivered_after_the_deadline(tmp_path: Path) -> None:
    """Results are added in the order of the calls; the first one did not arrive before the limit."""
    gate = ToolGate()
    model = script_agents(
        lead=[[spawn_agent("slow", "c1"), spawn_agent("fast", "c2")], "end"],
        slow=[call_tool("Gate"), "never"],
        fast=["the report of the fast one"],
    )
    settings = json.dumps({"shoal": {"agent_type_limits": {"lead": {"seconds": 1.5}}}})
    async with open_session(tmp_path, model, tools=[gate.tool], settings=settings) as session:
        finished = [event async for event in session.run("lead")][-1]
        assert finished.limit == "seconds"  # type: ignore[attr-defined]
        assert map_agent_results(session)["fast"].status == "completed"
        assert session.runtime.inbox.queue.count_waking_items(session.agent.identity.agent) == 1


@pytest.mark.spec("DEF-09")
async def test_the_turn_limit_of_an_agent_counts_across_messages(
    tmp_path: Path,
) -> None:
    """Otherwise each finished sub-agent would give it the full number of requests again."""
    short = {"description": "d", "prompt": "p", "maxTurns": 3}
    model = script_agents(
        lead=[spawn_agent("middle", "c1", subagent_type="short"), "end"],
        middle=[
            spawn_agent("leaf", "c2", run_in_background=True),
            "I wait.",
            spawn_agent("leaf", "c3", run_in_background=True),
            "too much",
        ],
        leaf=["done"],
    )
    async with open_session(tmp_path, model, agents={"short": short}) as session:
        await run_all_turns(session)
    middle = map_agent_results(session)["middle"]
    assert (middle.requests, middle.text) == (3, "I wait.")
    assert "it reached its turn limit of 3" in middle.detail


@pytest.mark.spec("DEF-09")
async def test_a_failed_acceptance_command_does_not_extend_the_turn_limit(tmp_path: Path) -> None:
    short = {"description": "d", "prompt": "p", "maxTurns": 2, "acceptance": "echo x >> tried; false"}
    model = script_agents(
        lead=[spawn_agent("child", "c1", subagent_type="short"), "end"], child=["one", "two", "three"]
    )
    async with open_session(tmp_path, model, agents={"short": short}) as session:
        await run_all_turns(session)
    child = map_agent_results(session)["child"]
    assert (child.status, child.requests) == ("failed", 2)
    assert (tmp_path / "tried").read_text().split() == ["x", "x"]
