"""What keeps a teammate from its work for a while costs neither it nor what it was to hear."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, agent, all_turns, use
from crew_rig import drain
from shoal.core.events import Event, Noted, ToolReturned, ToolStarted
from shoal.core.requests import Request
from troupe import member, opened, troupe


def children(request: Request, **parts: list[Any]) -> Any:
    """The line of an agent that a member started, whose job begins with its name."""
    name = request.messages[0].text.split()[0]
    spoken = sum(message.role == "assistant" for message in request.messages)
    return parts[name][min(spoken, len(parts[name]) - 1)]


@pytest.mark.spec("USR-02", "USR-03")
async def test_a_member_that_is_interrupted_hears_of_the_agent_that_had_ended(tmp_path: Path) -> None:
    gate, quick = Gate(), Gate("Quick")
    made = [use("TeamCreate", team_name="crew"), member("ann"), "wait"]

    def lead(request: Request) -> Any:
        if request.messages[0].text.startswith(("slow", "quick")):
            return children(request, slow=[use("Gate"), "never"], quick=[use("Quick"), "quickly found"])
        spoken = sum(message.role == "assistant" for message in request.messages)
        return made[min(spoken, 2)]

    both = [agent(who, f"c-{who}") for who in ("slow", "quick")]
    heard = list[str]()

    def again(request: Request) -> str:
        heard.append(request.messages[-1].text)
        return "heard"

    model = troupe(lead=[lead], ann=[both, again])
    async with opened(tmp_path, model, tools=[gate.tool, quick.tool]) as session:
        over = asyncio.Event()

        def hear(event: Event) -> None:
            if isinstance(event, ToolStarted) and event.call == "c-quick":
                quick.opened.set()
            if isinstance(event, ToolReturned) and event.call == "c-quick":
                over.set()

        session.watch(hear)
        await drain(session.run("Go."))
        async with asyncio.timeout(30):
            await gate.wait()
            await over.wait()
            assert session.parts.teams.interrupt("ann")
            while not any("quickly found" in text for text in heard):
                await session.parts.teams.quiet()
    assert sum("<result>quickly found</result>" in text for text in heard) == 1


@pytest.mark.spec("TSK-07")
async def test_a_member_outlives_a_board_that_cannot_be_written_for_a_while(tmp_path: Path) -> None:
    def lead(request: Request) -> Any:
        made = [use("TeamCreate", team_name="crew"), member("ann"), "wait"]
        return made[min(sum(message.role == "assistant" for message in request.messages), 2)]

    model = troupe(lead=[lead], ann=["I rest.", lambda request: request.messages[-1].text])
    async with opened(tmp_path, model) as session, asyncio.timeout(30):
        told = asyncio.Event()

        def hear(event: Event) -> None:
            if isinstance(event, Noted) and "ann cannot take tasks now" in event.text:
                told.set()

        session.watch(hear)
        await all_turns(session, "Go.")
        home = Path(session.parts.settings.home)
        board = home / "tasks" / "crew"
        task = {"id": "1", "subject": "Dig", "description": "a hole", "status": "pending"}
        staging = home / "shoal" / "tasks" / "crew" / "staging"
        shutil.rmtree(staging, ignore_errors=True)
        staging.parent.mkdir(parents=True, exist_ok=True)
        staging.write_text("in the way")
        (board / "1.json").write_text(json.dumps(task))
        await told.wait()
        staging.unlink()
        while json.loads((board / "1.json").read_text()).get("owner") != "ann":
            await session.parts.teams.quiet()
        assert [each.name for each in session.parts.teams.members()] == ["ann"]
