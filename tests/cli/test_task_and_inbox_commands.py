"""`shoal team`, `shoal task` and `shoal inbox` as a person or a script uses them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from shoal_process import ShoalProgram

from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TaskId, TeamName
from shoal.core.teams.roster import NewMember


@pytest.fixture
async def team(home: Path) -> str:
    await make_team(home, "roof")
    return "roof"


async def make_team(home: Path, name: str) -> None:
    record = TeamStore(home, clock=SystemClock(), ids=IdGenerator(1))
    someone = NewMember(name="alice", agent_type="general", model="m-1", cwd="/w", prompt="Build.")
    await record.rosters.create_team(name, lead=someone, session="s-1", description="Builds a roof")
    await record.rosters.add_member(name, someone)
    await record.open_mailboxes(name).open_inbox("alice")
    await record.aclose()


@pytest.mark.parametrize("how", ["argument", "input"])
async def test_invalid_text_is_sent_with_replacement_characters(
    shoal: ShoalProgram, team: str, home: Path, how: str
) -> None:
    mail = b"half a \xff word"
    ran = await shoal("inbox", "send", "alice", mail if how == "argument" else "-", stdin=mail)
    assert ran.code == 0, ran.err
    assert "is not valid UTF-8 starting at byte 7" in ran.err
    (entry,) = json.loads((home / "teams" / "roof" / "inboxes" / "alice.json").read_bytes())
    assert entry["text"] == "half a \ufffd word"


async def test_a_task_is_added_listed_changed_and_shown(shoal: ShoalProgram, team: str, home: Path) -> None:
    assert (await shoal("task", "ls")).text == "The board roof has no tasks.\n"
    assert (
        await shoal("task", "add", "Lay the beams", "-d", "All four")
    ).text == "Added task 1 to the board.\n"
    added = await shoal("task", "add", "Lay the tiles", "--blocked-by", "1", "--json")
    assert added.lines[-1]["blockedBy"] == ["1"]
    listed = (await shoal("task", "ls")).text.splitlines()
    assert [line.split() for line in listed] == [
        ["ID", "STATUS", "OWNER", "WAITS", "FOR", "SUBJECT"],
        ["1", "pending", "-", "-", "Lay", "the", "beams"],
        ["2", "pending", "-", "1", "Lay", "the", "tiles"],
    ]
    changed = await shoal("task", "update", "1", "--status", "completed", "--metadata", '{"by": "hand"}')
    assert "completed" in changed.text
    (open_one,) = (await shoal("task", "ls", "--open", "--json")).lines[-1]
    assert open_one["id"] == "2"
    shown = (await shoal("task", "show", "1", "--team", "roof", "--json")).lines[-1]
    assert (shown["description"], shown["metadata"]) == ("All four", {"by": "hand"})
    assert json.loads((home / "tasks" / "roof" / "1.json").read_bytes()) == shown
    assert (await shoal("task", "update", "2", "--status", "deleted")).text == "Deleted task 2.\n"


async def test_internal_task_metadata_is_not_shown(shoal: ShoalProgram, team: str, home: Path) -> None:
    await shoal("task", "add", "Lay the beams")
    await shoal("task", "update", "1", "--metadata", '{"by": "hand"}')
    record = TeamStore(home, clock=SystemClock(), ids=IdGenerator(2))
    assert (await record.open_board(TeamName(team)).claim(TaskId("1"), by=AgentName("alice"))).success
    shown = (await shoal("task", "show", "1")).text
    await record.aclose()
    assert "alice" in shown
    assert '{"by":"hand"}' in shown
    assert "attempt" not in shown


@pytest.mark.spec("TSK-08")
async def test_an_owner_named_by_a_person_gets_the_assignment(shoal: ShoalProgram, team: str) -> None:
    await shoal("task", "add", "Lay the beams")
    await shoal("task", "update", "1", "--owner", "alice")
    (mail,) = (await shoal("inbox", "show", "alice", "--json")).lines[-1]
    assert json.loads(mail["text"])["type"] == "task_assignment"
    assert mail["from"] == "user"


@pytest.mark.spec("TSK-06")
async def test_an_owner_is_notified_when_the_user_completes_a_blocker(shoal: ShoalProgram, team: str) -> None:
    await shoal("task", "add", "Lay the beams")
    await shoal("task", "add", "Lay the tiles", "--blocked-by", "1")
    await shoal("task", "update", "2", "--owner", "alice")
    await shoal("task", "update", "1", "--status", "completed")
    assignment, begins = (await shoal("inbox", "show", "alice", "--json")).lines[-1]
    assert json.loads(assignment["text"])["taskId"] == json.loads(begins["text"])["taskId"] == "2"
    shown = (await shoal("inbox", "show", "alice")).text
    assert "(Task #2 is yours now: Lay the tiles)" in shown
    assert "taskId" not in shown


async def test_showing_an_inbox_does_not_mark_its_mail_as_read(
    shoal: ShoalProgram, team: str, home: Path
) -> None:
    assert (await shoal("inbox", "send", "alice", "Stop at noon.")).text == "Sent to alice.\n"
    assert (await shoal("inbox", "send", "alice", "-", stdin=b"two\nlines\n")).code == 0
    shown = (await shoal("inbox", "show", "alice")).text
    assert "    Stop at noon.\n" in shown
    assert "    two\n    lines\n" in shown
    entries = json.loads((home / "teams" / "roof" / "inboxes" / "alice.json").read_bytes())
    assert [(entry["from"], entry["read"]) for entry in entries] == [("user", False)] * 2
    record = TeamStore(home, clock=SystemClock(), ids=IdGenerator(1))
    boxes = record.open_mailboxes("roof")
    await boxes.mark_read("alice", [mail.id for mail in await boxes.take_unread("alice")])
    await record.aclose()
    assert "no unread mail" in (await shoal("inbox", "show", "alice")).text
    assert len((await shoal("inbox", "show", "alice", "--all", "--json")).lines[-1]) == 2


async def test_teams_are_listed_shown_and_removed(shoal: ShoalProgram, team: str, home: Path) -> None:
    assert "roof  died  0        1     0 open" in (await shoal("team", "ls")).text
    assert (await shoal("team", "ls", "--json")).lines[-1][0]["members"][1]["name"] == "alice"
    shown = (await shoal("team", "show")).text
    assert "Builds a roof" in shown
    assert "● alice  cut off\n" in shown
    busy = await shoal("team", "rm", "roof", "--yes")
    assert (busy.code, "alice" in busy.err, "--force" in busy.err) == (1, True, True)
    assert (await shoal("team", "rm", "roof")).code == 2  # nobody to ask
    assert (await shoal("team", "rm", "roof", "--yes", "--force")).text == "Removed the team roof.\n"
    assert not (home / "teams" / "roof").exists()
    assert not (home / "tasks" / "roof").exists()
    assert (await shoal("team", "ls")).text == "There are no teams.\n"


async def test_impossible_requests_are_reported_in_a_sentence(
    shoal: ShoalProgram, team: str, home: Path
) -> None:
    cases = {
        ("task", "show", "9"): (1, "no task 9"),
        ("task", "show", "../x"): (1, "not a task id"),
        ("task", "add", "x", "--blocked-by", "9"): (1, "no task 9"),
        ("task", "update", "9", "--status", "completed"): (1, "no task 9"),
        ("task", "add", " "): (2, "The subject is empty"),
        ("task", "update", "9", "--subject", ""): (2, "The subject is empty"),
        ("task", "update", "9"): (2, "nothing to change"),
        ("task", "update", "9", "--metadata", "[1]"): (2, "JSON object"),
        ("task", "ls", "--team", "wall"): (2, "Existing teams: roof."),
        ("task", "ls", "--team", "../up"): (2, "There is no team ../up."),
        ("inbox", "show", "bob"): (1, "bob"),
        ("inbox", "send", "bob", "hi"): (1, "bob"),
        ("team", "show", "wall"): (2, "Existing teams: roof."),
    }
    every = await asyncio.gather(*(shoal(*arguments) for arguments in cases))
    for ran, (arguments, (code, words)) in zip(every, cases.items(), strict=True):
        assert ran.code == code, (arguments, ran.err)
        assert words in ran.err, arguments
        assert ran.err.startswith("shoal: ")
    assert not list((home / "tasks" / "roof").glob("*.json"))


async def test_a_team_must_be_named_when_there_are_several(
    shoal: ShoalProgram, team: str, home: Path
) -> None:
    await make_team(home, "wall")
    ran = await shoal("task", "ls")
    assert ran.code == 2
    assert "roof, wall" in ran.err
    assert (await shoal("task", "ls", "--team", "wall")).code == 0


@pytest.mark.parametrize("command", ["team", "task", "inbox"])
async def test_help_of_each_team_command_has_examples_and_subcommands(
    shoal: ShoalProgram, command: str
) -> None:
    help_text = (await shoal(command, "--help")).text
    assert f"shoal {command} " in help_text.partition("Examples:")[2]
    assert "show" in help_text
