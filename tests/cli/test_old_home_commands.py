"""Commands show the home of an earlier commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import ShoalProgram

from old_home import AGENTS, CUT_OFF, EVERYTHING, SESSIONS, TEAM, WORK, unpack_home


@pytest.fixture
def old_shoal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShoalProgram:
    """Return the program in the project of the old home."""
    old_home = unpack_home(tmp_path / "old")
    monkeypatch.setenv("SHOAL_HOME", str(old_home.home))
    return ShoalProgram(old_home.project)


async def run_command(old_shoal: ShoalProgram, *words: str) -> str:
    ran = await old_shoal(*words)
    assert ran.code == 0, ran.err
    return ran.text


async def run_json_command(old_shoal: ShoalProgram, *words: str) -> Any:
    return json.loads(await run_command(old_shoal, *words))


async def test_sessions_and_costs_are_listed(old_shoal: ShoalProgram) -> None:
    assert [each["session"] for each in await run_json_command(old_shoal, "sessions", "--json")] == [
        CUT_OFF,
        TEAM,
        AGENTS,
        WORK,
    ]
    cost = await run_json_command(old_shoal, "cost", WORK, "--json")
    assert (cost["total"]["requests"], round(cost["total"]["usd"], 4)) == (17, 0.316)
    assert [lost["reason"] for lost in cost["unsettled"]] == ["the stream was cut"]
    by_task = (await run_json_command(old_shoal, "cost", TEAM, "--json"))["by_task"]
    assert any("Dig" in json.dumps(each) for each in by_task)


@pytest.mark.parametrize("session", SESSIONS)
async def test_a_run_is_watched_and_exported(old_shoal: ShoalProgram, session: str) -> None:
    assert f"session {session}" in await run_command(old_shoal, "watch", session)
    events = (await old_shoal("watch", session, "--json")).lines
    journal = Path(old_shoal.project).parent / "home" / "shoal" / "runs" / session / "journal.jsonl"
    assert [each["type"] for each in events] == [
        json.loads(line)["type"] for line in journal.read_text().splitlines()
    ]
    frames = (await old_shoal("watch", session, "--frames")).lines
    assert any(frame["agents"] for frame in frames)
    exported = await run_json_command(old_shoal, "export", session)
    assert exported["run"]["session"] == session
    assert (session == EVERYTHING) or exported["transcripts"]["lead"]


async def test_the_team_its_board_and_its_mail_are_shown(old_shoal: ShoalProgram) -> None:
    team = await run_json_command(old_shoal, "team", "show", "crew", "--json")
    assert [member["name"] for member in team["members"]] == ["team-lead", "bob", "ann"]
    # A view releases nothing, and says whose work was cut off.
    assert [
        (task["subject"], task["status"], task.get("holderGone", False))
        for task in await run_json_command(old_shoal, "task", "ls", "--json")
    ] == [
        ("Dig", "completed", False),
        ("Fill", "pending", False),
        ("Paint", "in_progress", True),
        ("Sweep", "in_progress", True),
    ]
    listed = (await old_shoal("task", "ls")).text
    assert "in progress (ann is gone)" in listed
    unread = await run_json_command(old_shoal, "inbox", "show", "bob", "--json")
    assert [(mail["from"], mail["text"]) for mail in unread] == [("guest", "Are you there?")]
    all_mail = await run_json_command(old_shoal, "inbox", "show", "bob", "--all", "--json")
    assert [mail["text"] for mail in all_mail] == ["Begin.", "I am digging", "Go on.", "Are you there?"]
    exported = await run_json_command(old_shoal, "team", "export", "crew", "--format", "json")
    assert {person["name"] for person in exported["people"]} >= {"bob", "ann"}


async def test_questions_turns_and_worktrees_are_shown(old_shoal: ShoalProgram) -> None:
    home = Path(old_shoal.project).parent / "home"
    (question,) = (home / "shoal" / "runs" / CUT_OFF / "questions").glob("*.json")
    assert "touch made" in await run_command(old_shoal, "ask", "show", question.stem)
    turns = await run_command(old_shoal, "undo", "--list", "--session", WORK)
    assert "turn 2  Correct the report\n    changed  report.txt\n" in turns
    (worktree,) = await run_json_command(old_shoal, "worktree", "ls", "--json")
    assert worktree["branch"] == f"shoal/{worktree['name']}/work"
    assert "report.txt" in await run_command(old_shoal, "undo", "2", "--yes", "--session", WORK)
    assert (old_shoal.project / "report.txt").read_text() == "first\n"


async def test_watch_and_export_report_unreadable_events(old_shoal: ShoalProgram) -> None:
    journal = Path(old_shoal.project).parent / "home" / "shoal" / "runs" / WORK / "journal.jsonl"
    line = '{"at":"2030-01-01T00:00:00.000Z","type":"teleported","agent":"lead"}\n'
    with journal.open("a") as file:
        file.write(line * 2)
    output = "Cannot read events of type 'teleported'"
    assert (await run_command(old_shoal, "watch", WORK)).count(output) == 1
    exported = await run_json_command(old_shoal, "export", WORK)
    notes = [note for frame in exported["frames"] for note in frame["notes"]]
    assert [note["kind"] for note in notes if output in note["text"]] == ["unknown"]
    assert (await old_shoal("watch", WORK, "--json")).lines[-1]["type"] == "teleported"
