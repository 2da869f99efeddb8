"""Code inside a tool knows its agent, however many agents run in the process."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import ToolGate, call_tool, run_all_turns, script_agents, spawn_agent
from session_helpers import collect_events, list_agent_starts, open_session
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.ids import AgentId, SessionId
from team_scripts import script_team, spawn_member

AGENTS = 100


def describe_identity() -> tuple[str, str | None, str]:
    me = shoal.current_identity()
    return me.agent, me.team, str(shoal.current_cwd())


@pytest.mark.spec("RUN-10", "RUN-13")
async def test_a_hundred_concurrent_agents_keep_their_own_identity(tmp_path: Path) -> None:
    for n in range(AGENTS):
        (tmp_path / f"d{n}").mkdir()
    identities: dict[str, set[tuple[str, str | None, str]]] = {}
    # No more than there are threads for, on the smallest machine.
    met = threading.Barrier(4)
    here = 0
    all_here = asyncio.Event()

    @shoal.tool(name="Deep", deadline=None)
    async def deep(context: shoal.ToolContext) -> str:
        """Record the identity: at once, in a task, in a thread, and in a task once all agents run."""
        nonlocal here
        own_identities = identities.setdefault(context.agent.agent, set())
        own_identities.add(describe_identity())
        here += 1
        if here == AGENTS:
            all_here.set()

        async def later() -> None:
            async with asyncio.timeout(30):
                await all_here.wait()
            own_identities.add(describe_identity())
            own_identities.add(await asyncio.to_thread(describe_identity))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(later())
        return "said"

    @shoal.tool(name="Plain", deadline=None)
    def plain(context: shoal.ToolContext) -> str:
        """Say who one is from a thread, while others are in theirs."""
        if int(Path(describe_identity()[2]).name[1:]) < met.parties:
            met.wait(timeout=30)
        identities[context.agent.agent].add(describe_identity())
        return "said"

    calls = [spawn_agent(f"child {n}", f"c{n}", cwd=f"d{n}") for n in range(AGENTS)]
    model = script_agents(lead=[calls, "end"], child=[call_tool("Deep"), call_tool("Plain"), "done"])
    limits = {"max_concurrent": AGENTS}
    options: dict[str, Any] = {"shoal_settings": limits, "tools": [deep, plain], "team": "roof"}
    async with open_session(tmp_path, model, **options) as session:
        async with asyncio.timeout(60):
            await collect_events(session.run("lead"))
    began = {each.agent: {(each.agent, "roof", each.cwd)} for each in list_agent_starts(session)}
    assert len(began) == AGENTS
    assert identities == began


@pytest.mark.spec("RUN-13")
def test_the_current_identity_and_the_current_member_are_separate() -> None:
    with pytest.raises(LookupError):
        shoal.current_identity()
    lead = shoal.AgentIdentity(session=SessionId("s"), team="roof")
    member = shoal.AgentIdentity(
        session=SessionId("s"),
        agent=AgentId("ann@roof"),
        name="ann",
        team="roof",
        color="blue",
        teammate="in-process",
        parent_session=SessionId("s"),
        plan_required=True,
    )
    helper = shoal.AgentIdentity(
        session=SessionId("s"), agent=AgentId("a1"), team="roof", kind="Explore", depth=2
    )
    with shoal.acting_as(lead):
        assert shoal.current_identity().is_lead
        with shoal.acting_as(member):
            me = shoal.current_identity()
            assert (me.is_lead, me.is_teammate, me.is_in_process) == (False, True, True)
            assert (me.name, me.team, me.color, me.plan_required) == ("ann", "roof", "blue", True)
            with shoal.acting_as(helper):
                assert shoal.current_identity() is helper
                assert shoal.current_member() is member
                assert not helper.is_teammate
                assert not helper.is_lead
            assert shoal.current_identity() is member
        assert shoal.current_member() is lead
    with pytest.raises(LookupError):
        shoal.current_member()


@pytest.mark.spec("RUN-13", "RUN-10")
async def test_a_member_and_its_sub_agent_know_the_current_member(tmp_path: Path) -> None:
    identities: dict[str, tuple[shoal.AgentIdentity, shoal.AgentIdentity]] = {}

    @shoal.tool(name="Who", reads_only=True)
    async def who() -> str:
        """Say who one is, and for whom."""
        me = shoal.current_identity()
        identities[me.kind if me.teammate is None else me.name] = (me, shoal.current_member())
        return "said"

    def lead(request: ModelRequest) -> Any:
        reply_count = sum(message.role == "assistant" for message in request.messages)
        if request.messages[0].text == "Help ann.":
            return [call_tool("Who"), "helped"][min(reply_count, 1)]
        both = [spawn_member("ann"), spawn_member("bob", mode="plan")]
        return [call_tool("TeamCreate", team_name="crew"), both, "wait"][min(reply_count, 2)]

    helper = call_tool("Agent", "c1", description="helps", prompt="Help ann.")
    model = script_team(lead=[lead], ann=[call_tool("Who"), helper, "done"], bob=[call_tool("Who"), "done"])
    async with open_session(tmp_path, model, tools=[who], allowed_tools=["Who"]) as session:
        await run_all_turns(session, "Begin.")
    ann, current_member = identities["ann"]
    assert current_member is ann
    assert (ann.agent, ann.name, ann.team, ann.color) == ("ann@crew", "ann", "crew", "blue")
    assert (ann.is_teammate, ann.is_in_process, ann.is_lead, ann.plan_required) == (True, True, False, False)
    assert (ann.parent_session, session.agent.identity.parent_session) == (session.id, None)
    bob, _ = identities["bob"]
    assert (bob.color, bob.plan_required) == ("green", True)
    helping, current_member = identities["general-purpose"]
    assert current_member is ann
    assert (helping.team, helping.parent, helping.is_teammate) == ("crew", "ann@crew", False)
    assert helping.parent_session is None


@pytest.mark.spec("RUN-13")
async def test_members_are_counted_as_working_and_as_live_agents(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait"],
        ann=[call_tool("Gate"), "done"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        await collect_events(session.run("Begin."))
        await gate.wait_until_reached()
        assert session.has_working_agents
        idle = asyncio.create_task(session.wait_agents_idle())
        await asyncio.sleep(0)
        assert not idle.done()
        gate.is_open.set()
        async with asyncio.timeout(10):
            await idle
        assert not session.has_working_agents
        assert session.has_live_agents, "an idle teammate is there to be woken"


@pytest.mark.spec("RUN-13")
async def test_a_session_reports_whether_agents_work_and_waits_until_they_are_idle(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("child", "c1", run_in_background=True), "end"], child=[call_tool("Gate"), "done"]
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        assert not session.has_live_agents
        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        assert session.has_working_agents
        assert session.has_live_agents
        idle = asyncio.create_task(session.wait_agents_idle())
        await asyncio.sleep(0)
        assert not idle.done()
        gate.is_open.set()
        async with asyncio.timeout(10):
            await idle
        assert not session.has_working_agents
        assert not session.has_live_agents
