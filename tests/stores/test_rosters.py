"""Teams on files: shapes, names, colours, many at once, and the end of a team."""

from __future__ import annotations

import json
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from board_kit import other
from store_kit import StandingClock

from shoal.core.clock import SystemClock
from shoal.core.errors import BadName, NoSuchTeam, RecordError, StoreError, TeamBusy
from shoal.core.roster import COLORS, Newcomer, Team
from shoal.stores.files import rosters as rosters_module
from shoal.stores.files.handles import Directory
from shoal.stores.files.rosters import FileRosters


def newcomer(name: str = "alice", **how: Any) -> Newcomer:
    return Newcomer(
        **{"agent_type": "general", "model": "m", "cwd": "/w", "prompt": "Do it.", **how}, name=name
    )


async def made(rosters: FileRosters, name: str = "roof") -> Team:
    return await rosters.create(name, lead=newcomer("x"), session="s-1", description="A roof")


@pytest.fixture
def rosters(home: Path, clock: StandingClock) -> FileRosters:
    return FileRosters(home, clock=clock)


def config(home: Path, team: str = "roof") -> Any:
    return json.loads((home / "teams" / team / "config.json").read_bytes())


@pytest.mark.spec("TEAM-01", "TEAM-02", "TEAM-03", "TEAM-09", "HOM-02")
async def test_a_new_team_has_the_known_files(home: Path, rosters: FileRosters, clock: StandingClock):
    await made(rosters)
    assert config(home) == {
        "name": "roof",
        "description": "A roof",
        "createdAt": clock.time,
        "leadAgentId": "team-lead@roof",
        "leadSessionId": "s-1",
        "members": [
            {
                "agentId": "team-lead@roof",
                "name": "team-lead",
                "agentType": "general",
                "model": "m",
                "joinedAt": clock.time,
                "tmuxPaneId": "",
                "cwd": "/w",
                "subscriptions": [],
            }
        ],
    }
    assert (home / "tasks" / "roof" / ".lock").read_bytes() == b""
    assert (home / "teams" / "roof" / "inboxes").is_dir()


@pytest.mark.spec("TEAM-02", "TEAM-09")
async def test_a_teammate_has_all_its_fields(home: Path, rosters: FileRosters, clock: StandingClock):
    await made(rosters)
    await rosters.join("roof", newcomer(prompt="long " * 1000, plan_mode_required=True))
    assert config(home)["members"][1] == {
        "agentId": "alice@roof",
        "name": "alice",
        "agentType": "general",
        "model": "m",
        "prompt": "long " * 1000,
        "color": "blue",
        "planModeRequired": True,
        "joinedAt": clock.time,
        "tmuxPaneId": "in-process",
        "cwd": "/w",
        "subscriptions": [],
        "backendType": "in-process",
        "isActive": True,
    }


@pytest.mark.spec("TEAM-01", "TEAM-03")
async def test_a_taken_name_gets_a_number(home: Path, rosters: FileRosters):
    assert [(await made(rosters)).name for _ in range(3)] == ["roof", "roof-2", "roof-3"]
    assert [(await rosters.join("roof", newcomer())).name for _ in range(2)] == ["alice", "alice-2"]
    assert (await rosters.join("roof", newcomer("team-lead"))).name == "team-lead-2"
    assert list(await rosters.list()) == ["roof", "roof-2", "roof-3"]


@pytest.mark.spec("TEAM-04")
async def test_colours_follow_the_order_of_spawning_whoever_has_left(home: Path, rosters: FileRosters):
    await made(rosters)
    given = []
    for number in range(10):
        member = await rosters.join("roof", newcomer(f"a{number}"))
        given.append(member.color)
        if number % 2:
            await rosters.leave("roof", member.name)
    assert given == [*COLORS, "blue", "green"]
    assert "color" not in config(home)["members"][0]


@pytest.mark.spec("TEAM-06", "USR-15")
async def test_a_thousand_joins_from_twenty_processes_lose_nobody(home: Path):
    await made(FileRosters(home, clock=SystemClock()))
    async with AsyncExitStack() as leave:
        others = [await leave.enter_async_context(other("join", home, f"p{n}", 50)) for n in range(20)]
        for each in others:
            assert await each.heard() == "ready"
        for each in others:
            each.go()
        names = [name for each in others for name in await each.heard()]
    assert len(set(names)) == 1000
    assert {member["name"] for member in config(home)["members"]} == {*names, "team-lead"}


@pytest.mark.spec("HOM-05", "TEAM-02")
async def test_fields_of_other_programs_survive(home: Path, rosters: FileRosters):
    await made(rosters)
    raw = config(home) | {"leadProcess": {"pid": 7}}
    raw["members"][0]["theirs"] = [1]
    (home / "teams" / "roof" / "config.json").write_text(json.dumps(raw))
    await rosters.join("roof", newcomer())
    await rosters.change("roof", "alice", is_active=False)
    after = config(home)
    assert (after["leadProcess"], after["members"][0]["theirs"]) == ({"pid": 7}, [1])
    assert after["members"][1]["isActive"] is False


async def test_an_identity_cannot_be_changed_and_an_unknown_member_is_named(rosters: FileRosters):
    await made(rosters)
    with pytest.raises(RecordError, match="joined_at"):
        await rosters.change("roof", "team-lead", joined_at=1)
    with pytest.raises(RecordError, match="nobody"):
        await rosters.change("roof", "nobody", is_active=True)
    with pytest.raises(NoSuchTeam):
        await rosters.join("none", newcomer())
    assert await rosters.read("none") is None


async def test_a_broken_roster_is_set_aside_and_told(home: Path, clock: StandingClock):
    told: list[str] = []
    rosters = FileRosters(home, clock=clock, report=told.append)
    await made(rosters)
    (home / "teams" / "roof" / "config.json").write_text('{"members": [')
    assert await rosters.read("roof") is None
    assert len(told) == 1
    aside = home / "teams" / "roof" / f"config.json.corrupt-{clock.time}"
    assert aside.read_text() == '{"members": ['
    assert aside.name in told[0]


async def test_what_is_wrong_with_a_member_is_told_once_however_often_the_roster_changes(
    home: Path, clock: StandingClock
):
    reports: list[str] = []
    rosters = FileRosters(home, clock=clock, report=reports.append)
    await made(rosters)
    whole = config(home)
    whole["members"].append({"name": 1})
    (home / "teams" / "roof" / "config.json").write_text(json.dumps(whole))
    for name in ("ann", "bob", "cid"):
        await rosters.join("roof", newcomer(name))
    assert len(reports) == 1
    assert config(home)["members"][-1] == {"name": 1}


async def test_two_rosters_set_aside_in_one_millisecond_are_both_kept(home: Path, clock: StandingClock):
    rosters = FileRosters(home, clock=clock)
    await made(rosters)
    config = home / "teams" / "roof" / "config.json"
    for broken in ('{"members": [', '{"name": '):
        config.write_text(broken)
        assert await rosters.read("roof") is None
    kept = [path.read_text() for path in sorted(config.parent.glob("config.json.corrupt-*"))]
    assert kept == ['{"members": [', '{"name": ']


async def test_a_team_with_an_active_member_is_not_deleted(home: Path, rosters: FileRosters):
    await made(rosters)
    await rosters.join("roof", newcomer())
    with pytest.raises(TeamBusy, match="alice"):
        await rosters.delete("roof")
    assert (await rosters.read("roof")).member("alice") is not None
    await rosters.change("roof", "alice", is_active=False)
    await rosters.delete("roof")
    for place in ("teams", "tasks", "shoal/teams", "shoal/tasks"):
        assert not (home / place / "roof").exists()
    assert (await made(rosters)).name == "roof"


@pytest.mark.spec("USR-15")
async def test_a_deletion_that_was_cut_short_does_not_stand_in_the_way(
    home: Path, rosters: FileRosters, monkeypatch: pytest.MonkeyPatch
):
    await made(rosters)
    with monkeypatch.context() as cut:
        cut.setattr(Directory, "remove_tree", _die)
        with pytest.raises(SystemExit):
            await rosters.delete("roof")
    assert (home / "teams" / "roof" / "config.json").exists()
    assert await rosters.read("roof") is None
    assert list(await rosters.list()) == []
    assert (await made(rosters)).name == "roof"
    assert len((await rosters.read("roof")).members) == 1


@pytest.mark.spec("USR-12")
async def test_a_team_that_was_being_made_does_not_hold_its_name(
    home: Path, rosters: FileRosters, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as cut:
        cut.setattr(rosters_module, "team_bytes", _die)
        with pytest.raises(SystemExit):
            await made(rosters)
    assert (home / "teams" / "roof").exists()
    assert (await made(rosters)).name == "roof"
    assert (await made(rosters)).name == "roof-2"


@pytest.mark.spec("USR-15")
@pytest.mark.parametrize("stuck", ["teams", "tasks"])
async def test_a_team_of_which_something_cannot_be_removed_stays_gone(
    home: Path, clock: StandingClock, monkeypatch: pytest.MonkeyPatch, stuck: str
):
    reports: list[str] = []
    rosters = FileRosters(home, clock=clock, report=reports.append)
    await made(rosters)
    real = Directory.remove_tree
    with monkeypatch.context() as held:
        held.setattr(
            Directory, "remove_tree", lambda self, name: self.path.name != stuck and real(self, name)
        )
        await rosters.delete("roof")
        assert await rosters.read("roof") is None
        assert str(home / stuck / "roof") in reports[0]
        assert (await made(rosters)).name == "roof-2"
    assert (await made(rosters)).name == "roof"
    assert len((await rosters.read("roof")).members) == 1


async def test_mail_that_waited_in_a_team_that_another_program_removed_is_not_for_the_next_one(
    home: Path, rosters: FileRosters
):
    await made(rosters)
    waiting = home / "shoal" / "teams" / "roof" / "overflow" / "ann.jsonl"
    waiting.parent.mkdir()
    waiting.write_text('{"from":"bob","text":"of old","timestamp":"2026-02-13T10:11:35.247Z"}\n')
    shutil.rmtree(home / "teams" / "roof")
    shutil.rmtree(home / "tasks" / "roof")
    assert (await made(rosters)).name == "roof"
    assert not waiting.exists()


@pytest.mark.spec("USR-12", "USR-15")
async def test_a_team_that_was_made_whole_is_not_taken_for_half_of_one_when_its_roster_breaks(
    home: Path, rosters: FileRosters
):
    await made(rosters)
    (home / "shoal" / "teams" / "roof" / "making").touch()  # as one leaves it who dies right before the end
    await made(rosters, "house")
    (home / "teams" / "roof" / "config.json").write_text("broken")
    assert await rosters.read("roof") is None
    await made(rosters, "barn")
    (kept,) = (home / "teams" / "roof").glob("config.json.corrupt-*")
    assert kept.read_text() == "broken"


def _die(*_):
    raise SystemExit


@pytest.mark.spec("HOM-06")
async def test_tasks_of_a_session_are_not_taken_for_a_new_team(home: Path, rosters: FileRosters):
    (home / "tasks" / "roof").mkdir(parents=True)
    (home / "tasks" / "roof" / "1.json").write_text("{}")
    assert (await made(rosters)).name == "roof-2"
    assert (home / "tasks" / "roof" / "1.json").exists()


@pytest.mark.spec("TEAM-09")
async def test_a_team_whose_name_is_a_uuid_is_read(home: Path, rosters: FileRosters):
    name = "0b9d2f5c-3e0b-4a66-9d7a-6f0f5d1f4c11"
    (home / "teams" / name).mkdir(parents=True)
    (home / "teams" / name / "config.json").write_text('{"name": "x", "members": [{"name": "team-lead"}]}')
    assert list(await rosters.list()) == [name]
    assert (await rosters.read(name)).members[0].agent_id == f"team-lead@{name}"


@pytest.mark.spec("HOM-04", "USR-29")
async def test_hostile_names_make_nothing(home: Path, rosters: FileRosters, tmp_path: Path):
    for name in ("../up", "a/b", "", "..", "a\0b", "-x", "x" * 65, "~", "$(id)", "a;b"):
        with pytest.raises(BadName):
            await made(rosters, name)
        with pytest.raises(BadName):
            await rosters.read(name)
    assert list(await rosters.list()) == []
    assert {path.name for path in tmp_path.rglob("*")} <= {"home", "shoal", "teams.lock"}


@pytest.mark.spec("USR-29", "HOM-04")
async def test_a_link_in_place_of_a_team_leads_nowhere(home: Path, rosters: FileRosters, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_text('{"name": "x", "members": []}')
    (home / "teams").mkdir(parents=True)
    (home / "teams" / "roof").symlink_to(outside)
    with pytest.raises(StoreError, match="link"):
        await rosters.read("roof")
    with pytest.raises(StoreError, match="link"):
        await rosters.join("roof", newcomer())
    assert (await made(rosters)).name == "roof-2"
    assert [path.name for path in outside.iterdir()] == ["config.json"]
