"""Code deep inside a tool knows which agent it serves, however many run in the process."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, agent, all_turns, cast, use
from crew_rig import drain, opened, starts
from shoal.core.ids import AgentId, SessionId
from shoal.core.requests import Request
from troupe import member, troupe

AGENTS = 100


def whoami() -> tuple[str, str | None, str]:
    me = shoal.current_identity()
    return me.agent, me.team, str(shoal.current_cwd())


@pytest.mark.spec("RUN-10", "RUN-13")
async def test_a_hundred_agents_at_once_are_not_taken_for_each_other(tmp_path: Path) -> None:
    for n in range(AGENTS):
        (tmp_path / f"d{n}").mkdir()
    told: dict[str, set[tuple[str, str | None, str]]] = {}
    # No more than there are threads for, on the smallest machine.
    met = threading.Barrier(4)
    here = 0
    all_here = asyncio.Event()

    @shoal.tool(name="Deep", deadline=None)
    async def deep(site: shoal.Site) -> str:
        """Say who one is: at once, in a task, in a thread, and in a task after all others came."""
        nonlocal here
        seen = told.setdefault(site.agent.agent, set())
        seen.add(whoami())
        here += 1
        if here == AGENTS:
            all_here.set()

        async def later() -> None:
            async with asyncio.timeout(30):
                await all_here.wait()
            seen.add(whoami())
            seen.add(await asyncio.to_thread(whoami))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(later())
        return "said"

    @shoal.tool(name="Plain", deadline=None)
    def plain(site: shoal.Site) -> str:
        """Say who one is from a thread, while others are in theirs."""
        if int(Path(whoami()[2]).name[1:]) < met.parties:
            met.wait(timeout=30)
        told[site.agent.agent].add(whoami())
        return "said"

    calls = [agent(f"child {n}", f"c{n}", cwd=f"d{n}") for n in range(AGENTS)]
    model = cast(lead=[calls, "end"], child=[use("Deep"), use("Plain"), "done"])
    own = {"max_concurrent": AGENTS}
    options: dict[str, Any] = {"own": own, "tools": [deep, plain], "team": "roof"}
    async with opened(tmp_path, model, **options) as session:
        async with asyncio.timeout(60):
            await drain(session.run("lead"))
    began = {each.agent: {(each.agent, "roof", each.cwd)} for each in starts(session)}
    assert len(began) == AGENTS
    assert told == began


@pytest.mark.spec("RUN-13")
def test_whose_work_it_is_and_which_run_does_it_are_two_things() -> None:
    with pytest.raises(LookupError):
        shoal.current_identity()
    lead = shoal.Identity(session=SessionId("s"), team="roof")
    mate = shoal.Identity(
        session=SessionId("s"),
        agent=AgentId("ann@roof"),
        name="ann",
        team="roof",
        color="blue",
        teammate="in-process",
        parent_session=SessionId("s"),
        plan_required=True,
    )
    helper = shoal.Identity(session=SessionId("s"), agent=AgentId("a1"), team="roof", kind="Explore", depth=2)
    with shoal.acting_as(lead):
        assert shoal.current_identity().is_lead
        with shoal.acting_as(mate):
            me = shoal.current_identity()
            assert (me.is_lead, me.is_teammate, me.is_in_process) == (False, True, True)
            assert (me.name, me.team, me.color, me.plan_required) == ("ann", "roof", "blue", True)
            with shoal.acting_as(helper):
                assert shoal.current_identity() is helper
                assert shoal.current_member() is mate
                assert not helper.is_teammate
                assert not helper.is_lead
            assert shoal.current_identity() is mate
        assert shoal.current_member() is lead
    with pytest.raises(LookupError):
        shoal.current_member()


@pytest.mark.spec("RUN-13", "RUN-10")
async def test_a_teammate_and_the_agent_it_starts_know_whose_work_it_is(tmp_path: Path) -> None:
    seen: dict[str, tuple[shoal.Identity, shoal.Identity]] = {}

    @shoal.tool(name="Who", reads_only=True)
    async def who() -> str:
        """Say who one is, and for whom."""
        me = shoal.current_identity()
        seen[me.kind if me.teammate is None else me.name] = (me, shoal.current_member())
        return "said"

    def lead(request: Request) -> Any:
        said = sum(message.role == "assistant" for message in request.messages)
        if request.messages[0].text == "Help ann.":
            return [use("Who"), "helped"][min(said, 1)]
        both = [member("ann"), member("bob", mode="plan")]
        return [use("TeamCreate", team_name="crew"), both, "wait"][min(said, 2)]

    helper = use("Agent", "c1", description="helps", prompt="Help ann.")
    model = troupe(lead=[lead], ann=[use("Who"), helper, "done"], bob=[use("Who"), "done"])
    async with opened(tmp_path, model, tools=[who], allowed_tools=["Who"]) as session:
        await all_turns(session, "Begin.")
    ann, whose = seen["ann"]
    assert whose is ann
    assert (ann.agent, ann.name, ann.team, ann.color) == ("ann@crew", "ann", "crew", "blue")
    assert (ann.is_teammate, ann.is_in_process, ann.is_lead, ann.plan_required) == (True, True, False, False)
    assert (ann.parent_session, session.agent.identity.parent_session) == (session.id, None)
    bob, _ = seen["bob"]
    assert (bob.color, bob.plan_required) == ("green", True)
    helping, whose = seen["general-purpose"]
    assert whose is ann
    assert (helping.team, helping.parent, helping.is_teammate) == ("crew", "ann@crew", False)
    assert helping.parent_session is None


@pytest.mark.spec("RUN-13")
async def test_teammates_count_among_those_that_work_and_those_that_are_alive(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), "wait"], ann=[use("Gate"), "done"]
    )
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        await drain(session.run("Begin."))
        await gate.wait()
        assert session.any_working
        idle = asyncio.create_task(session.agents_idle())
        await asyncio.sleep(0)
        assert not idle.done()
        gate.opened.set()
        async with asyncio.timeout(10):
            await idle
        assert not session.any_working
        assert session.any_alive, "an idle teammate is there to be woken"


@pytest.mark.spec("RUN-13")
async def test_a_session_tells_whether_agents_work_and_when_they_are_idle(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(lead=[agent("child", "c1", run_in_background=True), "end"], child=[use("Gate"), "done"])
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        assert not session.any_alive
        await drain(session.run("lead"))
        await gate.wait()
        assert session.any_working
        assert session.any_alive
        idle = asyncio.create_task(session.agents_idle())
        await asyncio.sleep(0)
        assert not idle.done()
        gate.opened.set()
        async with asyncio.timeout(10):
            await idle
        assert not session.any_working
        assert not session.any_alive
