"""Activity of members in the roster, with few writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_scripts import ToolGate, call_tool, run_all_turns
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.teams.roster import NewMember
from shoal.stores.files.teams.file_roster_store import FileRosterStore
from shoal.team.roster_activity import RosterActivityWriter
from shoal.testing import FakeClock
from team_scripts import open_session, read_team_config, script_team, spawn_member

TEAM = TeamName("crew")
NAMES = [AgentName(f"m{n}") for n in range(20)]


class CountingRosterStore(FileRosterStore):
    """Counts activity writes."""

    writes = 0

    async def set_active_members(self, team: TeamName, active: Mapping[AgentName, bool]) -> None:
        self.writes += 1
        await super().set_active_members(team, active)


async def create_rosters(home: Path, clock: FakeClock) -> CountingRosterStore:
    rosters = CountingRosterStore(home, clock=clock)
    lead = NewMember(name=LEAD_NAME, agent_type="lead", model="m", cwd="/", prompt="")
    await rosters.create_team(TEAM, lead=lead, session="s", description=None)
    for name in NAMES:
        await rosters.add_member(TEAM, NewMember(name=name, agent_type="x", model="m", cwd="/", prompt="p"))
    return rosters


async def read_active_flags(rosters: FileRosterStore) -> list[bool | None]:
    team = await rosters.read_team_roster(TEAM)
    assert team is not None
    return [each.is_active for each in team.members[1:]]


@pytest.mark.spec("TEAM-05")
async def test_activity_changes_are_written_together_within_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    rosters = await create_rosters(tmp_path, clock)
    reports: list[str] = []
    shown = RosterActivityWriter(rosters, TEAM, clock, reports.append)
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(shown.flush_continuously())
        for _ in range(10):
            for name in NAMES:
                shown.set_member_active(name, active=True)
                shown.set_member_active(name, active=name == NAMES[0])
        await clock.advance(0.3)
        assert rosters.writes == 0
        shown.set_member_active(NAMES[1], active=True)
        await clock.advance(0.7)
        assert rosters.writes == 1
        assert await read_active_flags(rosters) == [True, True] + [False] * 18
        shown.set_member_active(NAMES[1], active=False)
        await clock.advance(1.0)
        assert await read_active_flags(rosters) == [True] + [False] * 19
        await clock.advance(60)
        assert rosters.writes == 2, "nothing is written while nothing changes"
        keeping.cancel()
    assert reports == []


@pytest.mark.spec("TEAM-05")
async def test_a_failed_activity_write_is_reported_and_retried(tmp_path: Path) -> None:
    clock = FakeClock()
    rosters = await create_rosters(tmp_path, clock)
    reports: list[str] = []
    shown = RosterActivityWriter(rosters, TEAM, clock, reports.append)
    staged = tmp_path / "shoal" / "teams" / TEAM / "roster.staged"
    staged.unlink(missing_ok=True)
    staged.mkdir()
    shown.set_member_active(NAMES[0], active=False)
    await shown.flush()
    assert "record the activity of m0 in the roster" in reports[0]
    staged.rmdir()
    await shown.flush()
    assert await read_active_flags(rosters) == [False] + [True] * 19


async def test_activity_of_removed_members_is_skipped(tmp_path: Path) -> None:
    clock = FakeClock()
    rosters = await create_rosters(tmp_path, clock)
    reports: list[str] = []
    shown = RosterActivityWriter(rosters, TEAM, clock, reports.append)
    shown.set_member_active(NAMES[0], active=False)
    shown.set_member_active(NAMES[1], active=False)
    await rosters.remove_member(TEAM, NAMES[0])
    await shown.flush()
    await rosters.set_active_members(TEAM, dict.fromkeys(NAMES, False))
    await rosters.delete_team(TEAM)
    shown.set_member_active(NAMES[1], active=True)
    await shown.flush()
    assert reports == []


@pytest.mark.spec("TEAM-05")
async def test_the_roster_shows_idle_members_and_all_as_idle_after_the_session(
    tmp_path: Path,
) -> None:
    gate, clock = ToolGate(), FakeClock()
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            [spawn_member("ann"), spawn_member("bob")],
            call_tool("Until"),
            "end",
        ],
        ann=[call_tool("Gate"), "ann ends"],
        bob=["bob ends"],
    )

    def read_activity() -> dict[str, bool | None]:
        return {each["name"]: each.get("isActive") for each in read_team_config("crew")["members"]}

    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool], clock=clock) as session:
        async with asyncio.timeout(20):
            async for _ in session.run("Begin."):
                pass
            while [each.state for each in session.teams.list_members()] != ["running", "idle"]:
                await asyncio.sleep(0)
        await clock.advance(1)
        assert read_activity() == {"team-lead": None, "ann": True, "bob": False}
        gate.is_open.set()
        async with asyncio.timeout(20):
            while session.teams.is_working:
                await asyncio.sleep(0)
        # Nobody moves the clock any more: what is due is written on leaving.
    assert read_activity() == {"team-lead": None, "ann": False, "bob": False}


async def test_a_team_can_be_deleted_as_soon_as_its_last_member_is_idle(tmp_path: Path) -> None:
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann"),
            "wait",
            call_tool("TeamDelete"),
            "gone",
        ],
        ann=["ann ends"],
    )
    async with open_session(tmp_path, model) as session:
        assert await run_all_turns(session) == "gone"
        assert session.teams.list_members() == ()
