"""Teams that a live program other than Shoal leads."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from shoal_process import ShoalProgram

SESSION = "6f1c0f0a-0000-4000-8000-000000000001"
HOUR = 3600.0


def write_foreign_team(home: Path, **fields: Any) -> Path:
    """Write the team as another program does, an hour ago; return its directory."""
    directory = home / "teams" / "theirs"
    (directory / "inboxes").mkdir(parents=True)
    (home / "tasks" / "theirs").mkdir(parents=True)
    about = {"agentType": "worker", "model": "m", "joinedAt": 1, "cwd": "/", "subscriptions": []}
    members = [
        {"agentId": f"{name}@theirs", "name": name, **about, "tmuxPaneId": ""}
        for name in ("team-lead", "ann")
    ]
    roster = {
        "name": "theirs",
        "createdAt": 1,
        "leadAgentId": "team-lead@theirs",
        "leadSessionId": SESSION,
        "members": members,
        **fields,
    }
    (directory / "config.json").write_text(json.dumps(roster))
    set_age(directory / "config.json", HOUR)
    return directory


def set_age(path: Path, seconds: float) -> None:
    changed = path.stat().st_mtime - seconds
    os.utime(path, (changed, changed))


@pytest.fixture
def exit_stack() -> Iterator[ExitStack]:
    with ExitStack() as exit_stack:
        yield exit_stack


def give_sign(directory: Path, sign: str, exit_stack: ExitStack) -> str:
    """Let the other program show that it is alive; return what Shoal should say about it."""
    if sign == "lock":
        lock = directory / "inboxes" / "ann.json.lock"
        lock.mkdir()
        # A program that lives renews its lock, here for longer than slow commands take.
        set_age(lock, -HOUR)
        return "it holds the lock"
    if sign == "flock":
        # The public MCP server for teams locks this file while it writes; the test process holds it.
        path = directory.parent.parent / "tasks" / "theirs" / ".lock"
        held = exit_stack.enter_context(path.open("w"))
        fcntl.flock(held, fcntl.LOCK_EX)
        return f"it holds the lock {path}"
    if sign == "write":
        (directory / "inboxes" / "ann.json").write_text("[]")
        return "its files changed"
    return f"process {os.getpid()} leads it"


@pytest.mark.spec("LIM-13")
@pytest.mark.parametrize("sign", ["process", "lock", "flock", "write"])
async def test_a_live_foreign_lead_is_shown_and_its_team_is_not_changed_without_force(
    shoal: ShoalProgram, home: Path, sign: str, exit_stack: ExitStack
) -> None:
    process = (
        {"leadProcess": {"pid": os.getpid(), "claimedAt": time.time() * 1000}} if sign == "process" else {}
    )
    directory = write_foreign_team(home, **process)
    expected = give_sign(directory, sign, exit_stack)
    before = (directory / "config.json").read_bytes()
    shown = await shoal("team", "show", "theirs")
    assert "alive, but in another program: " in shown.text
    assert expected in shown.text
    listed = json.loads((await shoal("team", "ls", "--json")).text)
    assert [team["lead"] for team in listed if team["name"] == "theirs"] == ["foreign"]
    refused = await shoal("team", "rm", "theirs", "--yes")
    assert refused.code != 0
    assert "another program leads it" in refused.err
    refused = await shoal("team", "resume", "theirs", "-p", "go")
    assert refused.code != 0
    assert "another program leads it" in refused.err
    assert (directory / "config.json").read_bytes() == before
    for command in ("stop", "attach", "restart"):
        refused = await shoal("team", command, "theirs")
        assert refused.code != 0
        assert "Shoal does not run the team theirs: another program leads it" in refused.err
    if sign == "process":
        sent = await shoal("team", "send", "theirs", "ann", "Hello.")
        assert "Another program leads the team: " in sent.text
        assert "shoal team resume" not in sent.text
    exit_stack.close()
    assert (await shoal("team", "rm", "theirs", "--yes", "--force")).code == 0
    assert not directory.exists()


@pytest.mark.spec("LIM-13")
@pytest.mark.parametrize("process", [{"pid": 2**22 + 1}, {"pid": os.getpid(), "claimedAt": 1000}])
async def test_a_foreign_team_without_a_sign_of_life_can_be_removed(
    shoal: ShoalProgram, home: Path, process: dict[str, int]
) -> None:
    # The second process started after the team was claimed, so its id was used again.
    directory = write_foreign_team(home, leadProcess=process)
    assert (await shoal("team", "rm", "theirs", "--yes")).code == 0
    assert not directory.exists()


def snapshot_files(home: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(home)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in home.rglob("*")
        if path.is_file()
    }


@pytest.mark.spec("LIM-13")
async def test_an_export_of_a_live_foreign_team_changes_nothing(shoal: ShoalProgram, home: Path) -> None:
    directory = write_foreign_team(home, leadProcess={"pid": os.getpid()})
    (directory / "inboxes" / "ann.json").write_text(json.dumps([{"from": "team-lead", "text": "Hello."}]))
    before = snapshot_files(home / "teams") | snapshot_files(home / "tasks")
    exported = json.loads((await shoal("team", "export", "theirs")).text)
    assert [mail["text"] for mail in exported["mail"]] == ["Hello."]
    assert snapshot_files(home / "teams") | snapshot_files(home / "tasks") == before
    assert not (home / "shoal" / "teams").exists()


@pytest.mark.spec("LIM-13", "TSK-09")
async def test_a_long_task_of_a_live_foreign_team_stays_with_its_owner(
    shoal: ShoalProgram, home: Path
) -> None:
    lead = await asyncio.create_subprocess_exec("sleep", "600")
    write_foreign_team(home, leadProcess={"pid": lead.pid})
    path = home / "tasks" / "theirs" / "1.json"
    task = {"id": "1", "subject": "Dig", "description": "", "status": "in_progress", "owner": "ann"}
    path.write_text(json.dumps({**task, "blocks": [], "blockedBy": []}))
    set_age(path, 3 * HOUR)
    assert "ann is gone" not in (await shoal("task", "ls", "--team", "theirs")).text
    assert (await shoal("task", "add", "Sow", "--team", "theirs")).code == 0
    assert json.loads(path.read_text())["owner"] == "ann"
    lead.kill()
    await lead.wait()
    assert "ann is gone" in (await shoal("task", "ls", "--team", "theirs")).text


@pytest.mark.spec("LIM-13")
async def test_mail_of_a_person_to_a_team_without_a_lead_is_no_sign_of_another_program(
    shoal: ShoalProgram, home: Path
) -> None:
    directory = write_foreign_team(home)
    (directory / "inboxes" / "ann.json").write_text("[]")
    set_age(directory / "inboxes" / "ann.json", HOUR)
    assert (await shoal("inbox", "send", "ann", "Are you there?")).code == 0
    assert (await shoal("task", "add", "Dig")).code == 0
    (listed,) = json.loads((await shoal("team", "ls", "--json")).text)
    assert (listed["lead"], listed["foreign_lead"]) == ("died", "")
    (home / "tasks" / "theirs" / "2.json").write_text("{}")
    (listed,) = json.loads((await shoal("team", "ls", "--json")).text)
    assert listed["lead"] == "foreign"


@pytest.mark.slow
@pytest.mark.spec("LIM-14")
async def test_teams_and_members_are_found_by_the_names_that_other_programs_give_them(
    shoal: ShoalProgram, home: Path
) -> None:
    given, member = "My Team ✓ v1.0", "Code Reviewer!"
    write_foreign_team(home).rename(home / "teams" / "my-team---v1-0")
    (home / "tasks" / "theirs").rename(home / "tasks" / "my-team---v1-0")
    config = home / "teams" / "my-team---v1-0" / "config.json"
    inboxes = home / "teams" / "My-Team---v1-0" / "inboxes"
    inboxes.mkdir(parents=True)
    (home / "teams" / "my-team---v1-0" / "inboxes").rmdir()
    roster = json.loads(config.read_text())
    roster["name"], roster["members"][1]["name"] = given, member
    config.write_text(json.dumps(roster))
    set_age(config, HOUR)
    path = inboxes / "Code-Reviewer-.json"
    path.write_text(json.dumps([{"from": "team-lead", "text": "Read it."}]))
    for team, name in ((given, member), ("my-team---v1-0", "Code-Reviewer-"), ("My-Team---v1-0", member)):
        assert (await shoal("inbox", "send", name, f"To {name}.", "--team", team)).code == 0
        shown = await shoal("inbox", "show", name, "--team", team)
        assert "Read it." in shown.text, shown.err
        assert f"To {name}." in shown.text
    assert (await shoal("team", "send", given, member, "From the user.")).code == 0
    assert "From the user." in path.read_text()
    assert given in (await shoal("team", "ls")).text
    shown = await shoal("team", "show", given)
    assert given in shown.text
    assert f"{member}" in shown.text
    assert "5 unread" in shown.text
    assert (await shoal("task", "add", "Dig", "--team", given)).code == 0
    assert (await shoal("task", "update", "1", "--owner", "Code-Reviewer-", "--team", given)).code == 0
    assert json.loads((home / "tasks" / "my-team---v1-0" / "1.json").read_text())["owner"] == member
    assert "task_assignment" in path.read_text()
    exported = json.loads((await shoal("team", "export", given)).text)
    assert {mail["to"] for mail in exported["mail"]} == {member}
    assert (await shoal("team", "rm", given, "--yes", "--force")).code == 0
    assert list((home / "teams").iterdir()) == []


@pytest.mark.spec("LIM-14")
async def test_mail_from_the_command_line_never_leaves_the_inbox_of_another_programs_member(
    shoal: ShoalProgram, home: Path
) -> None:
    directory = write_foreign_team(home)
    path = directory / "inboxes" / "ann.json"
    old_mail = [
        {"from": "bob", "text": f"{number} " + "x" * 2000, "timestamp": str(number), "read": number % 2 == 0}
        for number in range(1500)
    ]
    path.write_text(json.dumps(old_mail))
    assert (await shoal("inbox", "send", "ann", "One more.")).code == 0
    texts = [entry["text"] for entry in json.loads(path.read_text())]
    assert texts == [*(entry["text"] for entry in old_mail), "One more."]


@pytest.mark.spec("LIM-13", "LIM-14")
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "fields",
    [
        {"leadSessionId": ""},
        {"leadSessionId": None},
        {"leadSessionId": ".."},
        {"leadSessionId": "a/b c"},
        {"leadSessionId": "x" * 300},
        {"leadSessionId": 5, "createdAt": "today", "description": ["d"], "leadAgentId": {}},
    ],
    ids=lambda fields: repr(fields)[:30],
)
async def test_a_roster_with_other_ids_and_types_hides_no_team_and_is_kept(
    shoal: ShoalProgram, home: Path, fields: dict[str, Any]
) -> None:
    directory = write_foreign_team(home, **fields)
    roster = json.loads((directory / "config.json").read_text())
    roster["members"][1] |= {"joinedAt": "today", "isActive": 1, "subscriptions": None, "cwd": 3}
    (directory / "config.json").write_text(json.dumps(roster))
    (directory / "inboxes" / "ann.json").write_text("[]")
    for path in (directory / "config.json", directory / "inboxes" / "ann.json"):
        set_age(path, HOUR)
    before = (directory / "config.json").read_bytes()
    listed = await shoal("team", "ls", "--json")
    assert listed.err == ""
    assert [team["name"] for team in json.loads(listed.text)] == ["theirs"]
    shown = await shoal("team", "show", "theirs")
    assert (shown.code, "ann" in shown.text, shown.err) == (0, True, "")
    assert (await shoal("team", "send", "theirs", "ann", "Hello.")).code == 0
    (mail,) = json.loads((directory / "inboxes" / "ann.json").read_text())
    assert mail["text"] == "Hello."
    assert (directory / "config.json").read_bytes() == before
    refused = await shoal("team", "resume", "theirs", "-p", "go")
    assert "cannot be resumed" in refused.err
    assert (await shoal("team", "rm", "theirs", "--yes", "--force")).code == 0
    assert not directory.exists()


@pytest.mark.spec("LIM-14")
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
async def test_texts_with_half_a_surrogate_pair_are_shown_as_escapes(
    shoal: ShoalProgram, home: Path, locale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    directory = write_foreign_team(home, name="half \ud800", description="half \ud800")
    mail = {"from": "bob \ud800", "text": "half \ud800", "summary": "half \ud800", "timestamp": "\ud800"}
    (directory / "inboxes" / "ann.json").write_text(json.dumps([mail]))
    task = {"id": "1", "subject": "half \ud800", "description": "half \ud800", "status": "pending"}
    path = home / "tasks" / "theirs" / "1.json"
    path.write_text(json.dumps({**task, "owner": "\ud800", "blocks": [], "blockedBy": []}))
    for words in (
        ("team", "show", "theirs"),
        ("inbox", "show", "ann", "--team", "theirs"),
        ("task", "ls", "--team", "theirs"),
    ):
        shown = await shoal(*words)
        assert (shown.code, "half \\ud800" in shown.text) == (0, True), (words, shown.text, shown.err)
