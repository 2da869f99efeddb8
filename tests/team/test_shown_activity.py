"""That a member works or is idle is in the roster before long, and costs few writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from cast import Gate, all_turns, use
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.roster import Newcomer
from shoal.stores.files.rosters import FileRosters
from shoal.team.activity import Activity
from shoal.testing import FakeClock
from troupe import config, member, opened, troupe

TEAM = TeamName("crew")
NAMES = [AgentName(f"m{n}") for n in range(20)]


class Counted(FileRosters):
    """Counts what is written of activity."""

    writes = 0

    async def show_active(self, team: TeamName, active: Mapping[AgentName, bool]) -> None:
        self.writes += 1
        await super().show_active(team, active)


async def filled(home: Path, clock: FakeClock) -> Counted:
    rosters = Counted(home, clock=clock)
    lead = Newcomer(name=LEAD_NAME, agent_type="lead", model="m", cwd="/", prompt="")
    await rosters.create(TEAM, lead=lead, session="s", description=None)
    for name in NAMES:
        await rosters.join(TEAM, Newcomer(name=name, agent_type="x", model="m", cwd="/", prompt="p"))
    return rosters


async def active(rosters: FileRosters) -> list[bool | None]:
    team = await rosters.read(TEAM)
    assert team is not None
    return [each.is_active for each in team.members[1:]]


@pytest.mark.spec("TEAM-05")
async def test_changes_are_gathered_and_in_the_file_within_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    rosters = await filled(tmp_path, clock)
    reports: list[str] = []
    shown = Activity(rosters, TEAM, clock, reports.append)
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(shown.keep())
        for _ in range(10):
            for name in NAMES:
                shown.show(name, active=True)
                shown.show(name, active=name == NAMES[0])
        await clock.advance(0.3)
        assert rosters.writes == 0
        shown.show(NAMES[1], active=True)
        await clock.advance(0.7)
        assert rosters.writes == 1
        assert await active(rosters) == [True, True] + [False] * 18
        shown.show(NAMES[1], active=False)
        await clock.advance(1.0)
        assert await active(rosters) == [True] + [False] * 19
        await clock.advance(60)
        assert rosters.writes == 2, "nothing is written while nothing changes"
        keeping.cancel()
    assert reports == []


@pytest.mark.spec("TEAM-05")
async def test_what_could_not_be_written_is_told_and_written_later(tmp_path: Path) -> None:
    clock = FakeClock()
    rosters = await filled(tmp_path, clock)
    reports: list[str] = []
    shown = Activity(rosters, TEAM, clock, reports.append)
    file = tmp_path / "teams" / TEAM / "config.json"
    aside = file.rename(file.with_name("elsewhere"))
    file.mkdir()
    shown.show(NAMES[0], active=False)
    await shown.flush()
    assert "does not show who is at work (m0)" in reports[0]
    file.rmdir()
    aside.rename(file)
    await shown.flush()
    assert await active(rosters) == [False] + [True] * 19


async def test_who_left_meanwhile_is_passed_over(tmp_path: Path) -> None:
    clock = FakeClock()
    rosters = await filled(tmp_path, clock)
    reports: list[str] = []
    shown = Activity(rosters, TEAM, clock, reports.append)
    shown.show(NAMES[0], active=False)
    shown.show(NAMES[1], active=False)
    await rosters.leave(TEAM, NAMES[0])
    await shown.flush()
    await rosters.show_active(TEAM, dict.fromkeys(NAMES, False))
    await rosters.delete(TEAM)
    shown.show(NAMES[1], active=True)
    await shown.flush()
    assert reports == []


@pytest.mark.spec("TEAM-05")
async def test_one_is_shown_idle_while_another_works_and_all_are_when_the_session_ends(
    tmp_path: Path,
) -> None:
    gate, clock = Gate(), FakeClock()
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), [member("ann"), member("bob")], use("Until"), "end"],
        ann=[use("Gate"), "ann ends"],
        bob=["bob ends"],
    )

    def shown() -> dict[str, bool | None]:
        return {each["name"]: each.get("isActive") for each in config("crew")["members"]}

    async with opened(tmp_path, model, tools=[gate.tool, gate.until], clock=clock) as session:
        async with asyncio.timeout(20):
            async for _ in session.run("Begin."):
                pass
            while [each.state for each in session.parts.teams.members()] != ["running", "idle"]:
                await asyncio.sleep(0)
        await clock.advance(1)
        assert shown() == {"team-lead": None, "ann": True, "bob": False}
        gate.opened.set()
        async with asyncio.timeout(20):
            while session.parts.teams.working:
                await asyncio.sleep(0)
        # Nobody moves the clock any more: what is due is written on leaving.
    assert shown() == {"team-lead": None, "ann": False, "bob": False}


async def test_a_team_can_be_deleted_at_once_when_its_last_member_has_rested(tmp_path: Path) -> None:
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), "wait", use("TeamDelete"), "gone"],
        ann=["ann ends"],
    )
    async with opened(tmp_path, model) as session:
        assert await all_turns(session) == "gone"
        assert session.parts.teams.members() == ()
