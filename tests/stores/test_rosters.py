"""Rosters on disk: files, names, colors, concurrent joins, and deletion."""

from __future__ import annotations

import json
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from board_helpers import start_board_process
from store_helpers import FixedClock, make_member

from shoal.core.clock import SystemClock
from shoal.core.errors import InvalidName, StateFileError, TeamHasActiveMembers, TeamNotFound, TeamStoreError
from shoal.core.names import TeamName
from shoal.core.teams.roster import MEMBER_COLORS, TeamRoster
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.teams import file_roster_store as rosters_module
from shoal.stores.files.teams.file_roster_store import FileRosterStore


async def create_team(rosters: FileRosterStore, name: str = "roof") -> TeamRoster:
    return await rosters.create_team(name, lead=make_member("x"), session="s-1", description="A roof")


@pytest.fixture
def rosters(home: Path, clock: FixedClock) -> FileRosterStore:
    return FileRosterStore(home, clock=clock)


def read_config(home: Path, team: str = "roof") -> Any:
    return json.loads((home / "teams" / team / "config.json").read_bytes())


@pytest.mark.spec("TEAM-01", "TEAM-02", "TEAM-03", "TEAM-09", "HOM-02")
async def test_a_new_team_has_the_documented_files(home: Path, rosters: FileRosterStore, clock: FixedClock):
    await create_team(rosters)
    assert read_config(home) == {
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
async def test_a_member_has_all_its_fields(home: Path, rosters: FileRosterStore, clock: FixedClock):
    await create_team(rosters)
    await rosters.add_member("roof", make_member(prompt="long " * 1000, plan_mode_required=True))
    assert read_config(home)["members"][1] == {
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
async def test_a_taken_name_gets_a_number(home: Path, rosters: FileRosterStore):
    assert [(await create_team(rosters)).name for _ in range(3)] == ["roof", "roof-2", "roof-3"]
    assert [(await rosters.add_member("roof", make_member())).name for _ in range(2)] == ["alice", "alice-2"]
    assert (await rosters.add_member("roof", make_member("team-lead"))).name == "team-lead-2"
    assert list(await rosters.list_teams()) == ["roof", "roof-2", "roof-3"]


@pytest.mark.spec("TEAM-04")
async def test_colors_follow_the_order_of_joining_even_after_members_leave(
    home: Path, rosters: FileRosterStore
):
    await create_team(rosters)
    colors = []
    for number in range(10):
        member = await rosters.add_member("roof", make_member(f"a{number}"))
        colors.append(member.color)
        if number % 2:
            await rosters.remove_member("roof", member.name)
    assert colors == [*MEMBER_COLORS, "blue", "green"]
    assert "color" not in read_config(home)["members"][0]


@pytest.mark.spec("TEAM-06", "USR-15")
@pytest.mark.parametrize(("count", "joins"), [(4, 25), pytest.param(20, 50, marks=pytest.mark.exhaustive)])
async def test_a_thousand_joins_from_twenty_processes_lose_no_member(home: Path, count: int, joins: int):
    await create_team(FileRosterStore(home, clock=SystemClock()))
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(start_board_process("join", home, f"p{n}", joins))
            for n in range(count)
        ]
        for each in processes:
            assert await each.read_reply() == "ready"
        for each in processes:
            each.send_go()
        names = [name for each in processes for name in await each.read_reply()]
    assert len(set(names)) == count * joins
    assert {member["name"] for member in read_config(home)["members"]} == {*names, "team-lead"}


@pytest.mark.spec("HOM-05", "TEAM-02")
async def test_fields_of_other_programs_survive(home: Path, rosters: FileRosterStore):
    await create_team(rosters)
    raw = read_config(home) | {"leadProcess": {"pid": 7}}
    raw["members"][0]["theirs"] = [1]
    (home / "teams" / "roof" / "config.json").write_text(json.dumps(raw))
    await rosters.add_member("roof", make_member())
    await rosters.update_member("roof", "alice", is_active=False)
    after = read_config(home)
    assert (after["leadProcess"], after["members"][0]["theirs"]) == ({"pid": 7}, [1])
    assert after["members"][1]["isActive"] is False


async def test_updating_a_fixed_field_or_an_unknown_member_is_refused(rosters: FileRosterStore):
    await create_team(rosters)
    with pytest.raises(TeamStoreError, match="joined_at"):
        await rosters.update_member("roof", "team-lead", joined_at=1)
    with pytest.raises(TeamStoreError, match="nobody"):
        await rosters.update_member("roof", "nobody", is_active=True)
    with pytest.raises(TeamNotFound):
        await rosters.add_member("none", make_member())
    assert await rosters.read_team_roster("none") is None


async def test_a_corrupt_roster_is_moved_aside_and_reported(home: Path, clock: FixedClock):
    reports: list[str] = []
    rosters = FileRosterStore(home, clock=clock, report_problem=reports.append)
    await create_team(rosters)
    (home / "teams" / "roof" / "config.json").write_text('{"members": [')
    restored = await rosters.read_team_roster("roof")
    assert restored is not None
    assert [member.name for member in restored.members] == ["team-lead"]
    assert len(reports) == 1
    moved = home / "teams" / "roof" / f"config.json.corrupt-{clock.time}"
    assert moved.read_text() == '{"members": ['
    assert moved.name in reports[0]


@pytest.mark.parametrize("kind", ["directory", "link"])
async def test_a_roster_replaced_by_something_else_is_restored(
    home: Path, clock: FixedClock, tmp_path: Path, kind: str
):
    reports: list[str] = []
    rosters = FileRosterStore(home, clock=clock, report_problem=reports.append)
    await create_team(rosters)
    await rosters.add_member("roof", make_member())
    config, outside = home / "teams" / "roof" / "config.json", tmp_path / "outside.json"
    outside.write_text("{}")
    config.unlink()
    if kind == "directory":
        config.mkdir()
    else:
        config.symlink_to(outside)
    await rosters.add_member("roof", make_member("bob"))
    assert [each["name"] for each in read_config(home)["members"]] == ["team-lead", "alice", "bob"]
    assert outside.read_text() == "{}"
    (report,) = reports
    assert f"it is a {kind}" in report


async def test_a_damaged_roster_without_a_good_copy_is_reported_as_lost(home: Path, clock: FixedClock):
    reports: list[str] = []
    rosters = FileRosterStore(home, clock=clock, report_problem=reports.append)
    await create_team(rosters)
    (home / "shoal" / "teams" / "roof" / "roster.copy").write_bytes(b"")
    (home / "teams" / "roof" / "config.json").write_bytes(b"\0" * 100)
    assert await rosters.read_team_roster("roof") is None
    (report,) = reports
    assert "the list of members is lost" in report


async def test_a_damaged_roster_of_another_program_has_no_copy(home: Path, clock: FixedClock):
    reports: list[str] = []
    rosters = FileRosterStore(home, clock=clock, report_problem=reports.append)
    (home / "teams" / "roof").mkdir(parents=True)
    (home / "teams" / "roof" / "config.json").write_bytes(b"{")
    assert await rosters.read_team_roster("roof") is None
    assert (
        await FileRosterStore(home, clock=clock, report_problem=reports.append).read_team_roster("roof")
        is None
    )
    assert "config.json" in reports[0]


async def test_an_invalid_member_is_reported_once(home: Path, clock: FixedClock):
    reports: list[str] = []
    rosters = FileRosterStore(home, clock=clock, report_problem=reports.append)
    await create_team(rosters)
    whole = read_config(home)
    whole["members"].append({"name": 1})
    (home / "teams" / "roof" / "config.json").write_text(json.dumps(whole))
    for name in ("ann", "bob", "cid"):
        await rosters.add_member("roof", make_member(name))
    assert len(reports) == 1
    assert read_config(home)["members"][-1] == {"name": 1}


@pytest.mark.slow
async def test_two_rosters_moved_aside_in_one_millisecond_are_both_kept(home: Path, clock: FixedClock):
    rosters = FileRosterStore(home, clock=clock)
    await create_team(rosters)
    config = home / "teams" / "roof" / "config.json"
    for broken in ('{"members": [', '{"name": '):
        config.write_text(broken)
        assert await rosters.read_team_roster("roof") is not None
    stored = [path.read_text() for path in sorted(config.parent.glob("config.json.corrupt-*"))]
    assert stored == ['{"members": [', '{"name": ']


async def test_a_team_with_an_active_member_is_not_deleted(home: Path, rosters: FileRosterStore):
    await create_team(rosters)
    await rosters.add_member("roof", make_member())
    with pytest.raises(TeamHasActiveMembers, match="alice"):
        await rosters.delete_team("roof")
    assert (await rosters.read_team_roster("roof")).find_member("alice") is not None
    await rosters.update_member("roof", "alice", is_active=False)
    await rosters.delete_team("roof")
    for place in ("teams", "tasks", "shoal/teams", "shoal/tasks"):
        assert not (home / place / "roof").exists()
    assert (await create_team(rosters)).name == "roof"


@pytest.mark.spec("USR-15")
async def test_an_interrupted_deletion_does_not_block_a_new_team(
    home: Path, rosters: FileRosterStore, monkeypatch: pytest.MonkeyPatch
):
    await create_team(rosters)
    with monkeypatch.context() as patched:
        patched.setattr(DirectoryHandle, "remove_tree", _die)
        with pytest.raises(SystemExit):
            await rosters.delete_team("roof")
    assert (home / "teams" / "roof" / "config.json").exists()
    assert await rosters.read_team_roster("roof") is None
    assert list(await rosters.list_teams()) == []
    assert (await create_team(rosters)).name == "roof"
    assert len((await rosters.read_team_roster("roof")).members) == 1


@pytest.mark.spec("USR-12")
async def test_an_interrupted_creation_does_not_reserve_the_name(
    home: Path, rosters: FileRosterStore, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr(rosters_module, "encode_new_team_roster", _die)
        with pytest.raises(SystemExit):
            await create_team(rosters)
    assert (home / "teams" / "roof").exists()
    assert (await create_team(rosters)).name == "roof"
    assert (await create_team(rosters)).name == "roof-2"


@pytest.mark.spec("USR-15")
@pytest.mark.parametrize("stuck", ["teams", "tasks"])
async def test_a_deleted_team_stays_deleted_if_files_cannot_be_removed(
    home: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch, stuck: str
):
    reports: list[str] = []
    rosters = FileRosterStore(home, clock=clock, report_problem=reports.append)
    await create_team(rosters)
    real = DirectoryHandle.remove_tree
    with monkeypatch.context() as patched:
        patched.setattr(
            DirectoryHandle, "remove_tree", lambda self, name: self.path.name != stuck and real(self, name)
        )
        await rosters.delete_team("roof")
        assert await rosters.read_team_roster("roof") is None
        assert str(home / stuck / "roof") in reports[0]
        assert (await create_team(rosters)).name == "roof-2"
    assert (await create_team(rosters)).name == "roof"
    assert len((await rosters.read_team_roster("roof")).members) == 1


async def test_a_new_team_does_not_inherit_overflow_mail_of_a_removed_team(
    home: Path, rosters: FileRosterStore
):
    await create_team(rosters)
    waiting = home / "shoal" / "teams" / "roof" / "overflow" / "ann.jsonl"
    waiting.parent.mkdir()
    waiting.write_text('{"from":"bob","text":"of old","timestamp":"2026-02-13T10:11:35.247Z"}\n')
    shutil.rmtree(home / "teams" / "roof")
    shutil.rmtree(home / "tasks" / "roof")
    assert (await create_team(rosters)).name == "roof"
    assert not waiting.exists()


@pytest.mark.spec("USR-12", "USR-15")
async def test_a_complete_team_with_a_leftover_marker_is_not_removed_when_its_roster_breaks(
    home: Path, rosters: FileRosterStore
):
    await create_team(rosters)
    (
        home / "shoal" / "teams" / "roof" / "making"
    ).touch()  # as left by a process that dies right before the end
    await create_team(rosters, "house")
    (home / "teams" / "roof" / "config.json").write_text("broken")
    (home / "shoal" / "teams" / "roof" / "roster.copy").unlink()
    assert await rosters.read_team_roster("roof") is None
    await create_team(rosters, "barn")
    (stored,) = (home / "teams" / "roof").glob("config.json.corrupt-*")
    assert stored.read_text() == "broken"


def _die(*_):
    raise SystemExit


@pytest.mark.spec("HOM-06")
async def test_a_new_team_does_not_take_over_the_tasks_of_a_session(home: Path, rosters: FileRosterStore):
    (home / "tasks" / "roof").mkdir(parents=True)
    (home / "tasks" / "roof" / "1.json").write_text("{}")
    assert (await create_team(rosters)).name == "roof-2"
    assert (home / "tasks" / "roof" / "1.json").exists()


@pytest.mark.spec("TEAM-09")
async def test_a_team_whose_name_is_a_uuid_is_read(home: Path, rosters: FileRosterStore):
    name = "0b9d2f5c-3e0b-4a66-9d7a-6f0f5d1f4c11"
    (home / "teams" / name).mkdir(parents=True)
    (home / "teams" / name / "config.json").write_text('{"name": "x", "members": [{"name": "team-lead"}]}')
    assert list(await rosters.list_teams()) == [name]
    assert (await rosters.read_team_roster(name)).members[0].agent_id == f"team-lead@{name}"


@pytest.mark.spec("HOM-04", "USR-29")
async def test_hostile_team_names_create_no_file(home: Path, rosters: FileRosterStore, tmp_path: Path):
    for name in ("../up", "a/b", "", "..", "a\0b", "-x", "x" * 65, "~", "$(id)", "a;b"):
        with pytest.raises(InvalidName):
            await create_team(rosters, name)
        with pytest.raises(InvalidName):
            await rosters.read_team_roster(name)
    assert list(await rosters.list_teams()) == []
    assert {path.name for path in tmp_path.rglob("*")} <= {"home", "shoal", "teams.lock"}


@pytest.mark.spec("USR-29", "HOM-04")
async def test_a_link_in_place_of_a_team_is_not_followed(
    home: Path, rosters: FileRosterStore, tmp_path: Path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_text('{"name": "x", "members": []}')
    (home / "teams").mkdir(parents=True)
    (home / "teams" / "roof").symlink_to(outside)
    with pytest.raises(StateFileError, match="link"):
        await rosters.read_team_roster("roof")
    with pytest.raises(StateFileError, match="link"):
        await rosters.add_member("roof", make_member())
    assert (await create_team(rosters)).name == "roof-2"
    assert [path.name for path in outside.iterdir()] == ["config.json"]


async def test_names_in_the_roster_of_another_program_are_read_and_kept_unchanged(
    home: Path, rosters: FileRosterStore
) -> None:
    await create_team(rosters)
    foreign = ["user", "Bash", "Ann", "ann", "Zoë ✨ / ../x", "ＡＮＮ", "a\u202eb", ""]
    path = home / "teams/roof/config.json"
    document = read_config(home)
    entry = document["members"][0]
    document["members"] += [{**entry, "name": name, "agentId": f"{name}@roof"} for name in foreign]
    path.write_text(json.dumps(document))
    team = await rosters.read_team_roster(TeamName("roof"))
    assert team is not None
    assert [member.name for member in team.members] == ["team-lead", *foreign]
    assert (await rosters.add_member(TeamName("roof"), make_member("ANN"))).name == "ANN-2"
    assert [member["name"] for member in read_config(home)["members"]][1:-1] == foreign
