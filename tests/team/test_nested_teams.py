"""Teammates that lead teams of their own, where a setting lets them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, all_turns, recorded, use
from shoal.core.events import AgentEnded, AgentStarted, MemberRested
from shoal.core.messages import result_text
from shoal.core.requests import Request
from shoal.core.tools import Site
from shoal.tools.define import tool
from troupe import (
    approve_shutdown,
    config,
    home,
    inbox,
    last_result,
    last_words,
    member,
    opened,
    results,
    tell,
    troupe,
)

DEEP = json.dumps({"shoal": {"team_depth": 2}})
CREW = use("TeamCreate", team_name="crew")
SUB = use("TeamCreate", team_name="sub", description="looks below")


def words(seen: dict[str, list[str]], who: str, then: Any) -> Any:
    def line(request: Request) -> Any:
        seen.setdefault(who, []).append(last_words(request))
        return then

    return line


async def test_a_teammate_leads_a_team_that_works_for_it_and_ends_with_it(tmp_path: Path) -> None:
    gate = Gate()
    seen: dict[str, list[str]] = {}
    rosters: dict[str, Any] = {}

    def at_work(request: Request) -> str:
        rosters.update(crew=config("crew"), sub=config("sub"))
        return "bob is at work"

    model = troupe(
        lead=[
            CREW,
            member("ann"),
            "wait",
            words(seen, "lead", tell("ann", {"type": "shutdown_request"})),
            "asked",
            words(seen, "lead", "end"),
        ],
        ann=[
            SUB,
            member("bob", "Look at the keel."),
            use("Until"),
            at_work,
            words(seen, "ann", tell("team-lead", "the keel is sound", "sound")),
            "told the lead",
            approve_shutdown,
        ],
        bob=[use("Gate"), tell("team-lead", "no cracks", "no cracks"), "bob ends"],
    )
    tools = [gate.tool, gate.until]
    async with opened(tmp_path, model, settings=DEEP, tools=tools) as session:
        rested = asyncio.Event()
        session.watch(lambda event: rested.set() if isinstance(event, MemberRested) else None)
        async for _ in session.run("Begin."):
            pass
        waiting = asyncio.ensure_future(session.next_turn())
        async with asyncio.timeout(10):
            await rested.wait()
        states = {each.name: each.state for each in session.parts.teams.members()}
        assert states == {"ann": "idle", "bob": "running"}
        assert session.parts.teams.working, "a team below that works keeps the one above from being quiet"
        assert not waiting.done()
        gate.opened.set()
        turn = await waiting
        while turn is not None:
            async for _ in turn:
                pass
            turn = await session.next_turn()
        assert not (home() / "teams" / "sub").exists()
    assert [each["name"] for each in rosters["crew"]["members"]] == ["team-lead", "ann"]
    assert [each["name"] for each in rosters["sub"]["members"]] == ["team-lead", "bob"]
    assert rosters["sub"]["leadAgentId"] == "ann@crew"
    # Each hears its own: bob reports to ann, and ann to the lead.
    assert "no cracks" in seen["ann"][0]
    assert "the keel is sound" in seen["lead"][0]
    assert "no cracks" not in "".join(seen["lead"])
    started = {e.agent: e for e in recorded(session) if isinstance(e, AgentStarted)}
    assert (started["bob@sub"].parent, started["bob@sub"].depth) == ("ann@crew", 2)
    ended = [e.agent for e in recorded(session) if isinstance(e, AgentEnded)]
    assert sorted(ended) == ["ann@crew", "bob@sub"]


async def test_it_has_a_board_of_its_own(tmp_path: Path) -> None:
    said: list[str] = []

    def done(request: Request) -> str:
        said.append(last_result(request))
        return "done"

    model = troupe(
        lead=[CREW, member("ann"), "wait", "end"],
        ann=[
            SUB,
            use("TaskCreate", subject="look", description="d", team_name="sub"),
            member("bob"),
            use("TaskList", team_name="crew"),
            lambda r: [done(r), use("TaskList", team_name="other")],
            done,
        ],
        bob=["ready", use("TaskUpdate", taskId="1", status="completed"), "completed it"],
    )
    async with opened(tmp_path, model, settings=DEEP) as session:
        await all_turns(session)
        task = json.loads((home() / "tasks" / "sub" / "1.json").read_text())
        shown = session.agent.tools["TaskList"].schema.input_schema["properties"]
    assert (task["status"], task["owner"]) == ("completed", "bob")
    assert said[0].startswith("There are no tasks.")
    assert "You do not lead a team 'other'." in said[1]
    assert "team_name" in shown


async def test_a_team_below_is_taken_up_again_with_its_lead(tmp_path: Path) -> None:
    model = troupe(
        lead=[CREW, member("ann"), "wait", "end"],
        ann=[SUB, member("bob"), "ready", "idle"],
        bob=["ready"],
    )
    async with opened(tmp_path, model, settings=DEEP) as session:
        await all_turns(session)
    seen: dict[str, list[str]] = {}
    parts: dict[str, list[Any]] = {
        "lead": [tell("ann", "ask bob", "ask"), "end"],
        "ann": [words(seen, "ann", tell("bob", "are you there?", "there?")), "asked"],
        "bob": [words(seen, "bob", tell("team-lead", "yes", "yes")), "told"],
    }

    def said(who: str) -> Any:
        def line(request: Request) -> Any:
            if not parts[who]:
                seen.setdefault(who, []).append(last_words(request))
                return "nothing more"
            step = parts[who].pop(0)
            return step(request) if callable(step) else step

        return line

    again = troupe(lead=[said("lead")], ann=[said("ann")], bob=[said("bob")])
    async with opened(tmp_path, again, settings=DEEP, resume=session.id) as resumed:
        assert sorted(each.agent for each in resumed.parts.teams.members()) == ["ann@crew", "bob@sub"]
        await all_turns(resumed, "Go on.")
    assert "You lead the team sub: looks below." in seen["ann"][0]
    assert "are you there?" in seen["bob"][0]
    assert 'teammate_id="team-lead"' in seen["bob"][0]
    assert any("yes" in text and 'teammate_id="bob"' in text for text in seen["ann"])
    assert [each["from"] for each in inbox("sub", "bob")][-1] == "team-lead"


@pytest.mark.parametrize("depth", [1, 2])
async def test_deeper_than_the_setting_says_nobody_leads(tmp_path: Path, depth: int) -> None:
    offered: list[set[str]] = []
    said: list[str] = []

    @tool(name="Make")
    async def make(*, site: Site) -> str:
        """Make a team, as TeamCreate does."""
        team = await session.parts.teams.create("deeper", description=None, kind=None, site=site)
        return team.name

    def last(request: Request) -> Any:
        offered.append({each.name for each in request.tools})
        return [SUB, use("Make")]

    def told(request: Request) -> str:
        said.extend(result_text(each) for each in results(request.messages)[-2:])
        return "end"

    ann = [last, told] if depth == 1 else [SUB, member("bob"), "wait"]
    model = troupe(lead=[CREW, member("ann"), "wait", "end"], ann=ann, bob=[last, told])
    settings = json.dumps({"shoal": {"team_depth": depth}})
    async with opened(tmp_path, model, settings=settings, tools=[make]) as session:
        await all_turns(session)
    assert "TeamCreate" not in offered[0]
    assert "There is no tool named 'TeamCreate'" in said[0]
    assert "deep here" in said[1]
    assert "shoal.team_depth" in said[1]
    assert not (home() / "teams" / "deeper").exists()
