"""Agents that end while those above them wait, are cut short, or have nothing left to spend."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, agent, all_turns, cast, recorded, use
from shoal.core.agents import Completion
from shoal.core.events import AgentEnded, Event
from shoal.core.messages import Message, ToolResult, result_text
from shoal.core.requests import Request
from shoal.tools.define import tool


def opened(place: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=place, model=model, **{"skip_permissions": True, **options})


def results(messages: list[Message]) -> list[str]:
    blocks = [block for message in messages for block in message.content]
    return [result_text(block) for block in blocks if isinstance(block, ToolResult)]


def started_id(request: Request) -> str:
    told = next(text for text in results(list(request.messages)) if "agentId: " in text)
    return told.partition("agentId: ")[2].split()[0].rstrip(",")


def ends(session: shoal.Session) -> dict[str, Completion]:
    found = [event.completion for event in recorded(session) if isinstance(event, AgentEnded)]
    return {completion.description: completion for completion in found}


@pytest.mark.spec("CTL-05", "RUN-11")
async def test_who_has_seen_an_end_does_not_wait_to_be_told_of_it(tmp_path: Path) -> None:
    """What the ended agent was given is still being taken back when the one above it is done."""
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

    model = cast(
        lead=[agent("middle", "c1"), "end"],
        middle=[
            agent("leaf", "c2", run_in_background=True),
            lambda request: use("TaskOutput", "t1", task_id=started_id(request)),
            "seen",
        ],
        leaf=[agent("below", "c3", run_in_background=True), use("Until"), RuntimeError("it breaks")],
        below=[use("Linger"), "never"],
    )
    async with opened(tmp_path, model, tools=[linger, until]) as session:
        session.watch(look)
        assert await all_turns(session) == "end"
    assert (ends(session)["middle"].status, ends(session)["middle"].text) == ("completed", "seen")


@pytest.mark.spec("RUN-11", "USR-04")
async def test_a_report_that_waits_for_its_place_is_told_though_time_is_up(tmp_path: Path) -> None:
    """Results enter in the order of the calls; the first one did not come before the limit."""
    gate = Gate()
    model = cast(
        lead=[[agent("slow", "c1"), agent("fast", "c2")], "end"],
        slow=[use("Gate"), "never"],
        fast=["the report of the fast one"],
    )
    settings = json.dumps({"shoal": {"agent_type_limits": {"lead": {"seconds": 1.5}}}})
    async with opened(tmp_path, model, tools=[gate.tool], settings=settings) as session:
        finished = [event async for event in session.run("lead")][-1]
        assert finished.limit == "seconds"  # type: ignore[attr-defined]
        assert ends(session)["fast"].status == "completed"
        assert session.parts.queue.size(session.agent.identity.agent) == 1


@pytest.mark.spec("DEF-09")
async def test_the_turn_limit_of_an_agent_holds_for_all_it_does_and_not_from_message_to_message(
    tmp_path: Path,
) -> None:
    """Each end of an agent that it started would else give it as many requests again."""
    short = {"description": "d", "prompt": "p", "maxTurns": 3}
    model = cast(
        lead=[agent("middle", "c1", subagent_type="short"), "end"],
        middle=[
            agent("leaf", "c2", run_in_background=True),
            "I wait.",
            agent("leaf", "c3", run_in_background=True),
            "too much",
        ],
        leaf=["done"],
    )
    async with opened(tmp_path, model, agents={"short": short}) as session:
        await all_turns(session)
    middle = ends(session)["middle"]
    assert (middle.requests, middle.text) == (3, "I wait.")
    assert "it reached its turn limit of 3" in middle.detail


@pytest.mark.spec("DEF-09")
async def test_work_that_is_not_accepted_gives_no_more_turns_than_the_limit(tmp_path: Path) -> None:
    short = {"description": "d", "prompt": "p", "maxTurns": 2, "acceptance": "echo x >> tried; false"}
    model = cast(lead=[agent("child", "c1", subagent_type="short"), "end"], child=["one", "two", "three"])
    async with opened(tmp_path, model, agents={"short": short}) as session:
        await all_turns(session)
    child = ends(session)["child"]
    assert (child.status, child.requests) == ("failed", 2)
    assert (tmp_path / "tried").read_text().split() == ["x", "x"]
