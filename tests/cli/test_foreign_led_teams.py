"""Teams that a live program other than Shoal leads."""

from __future__ import annotations

import json
import os
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


def give_sign(directory: Path, sign: str) -> str:
    """Let the other program show that it is alive; return what Shoal should say about it."""
    if sign == "lock":
        (directory / "inboxes" / "ann.json.lock").mkdir()
        return "it holds the lock"
    if sign == "write":
        (directory / "inboxes" / "ann.json").write_text("[]")
        return "its files changed"
    return f"process {os.getpid()} leads it"


@pytest.mark.spec("LIM-13")
@pytest.mark.parametrize("sign", ["process", "lock", "write"])
async def test_a_live_foreign_lead_is_shown_and_its_team_is_not_changed_without_force(
    shoal: ShoalProgram, home: Path, sign: str
) -> None:
    process = {"leadProcess": {"pid": os.getpid(), "claimedAt": 1}} if sign == "process" else {}
    directory = write_foreign_team(home, **process)
    expected = give_sign(directory, sign)
    before = (directory / "config.json").read_bytes()
    shown = await shoal("team", "show", "theirs")
    assert "alive, another program: " in shown.text
    assert expected in shown.text
    listed = json.loads((await shoal("team", "ls", "--json")).text)
    assert [team["lead"] for team in listed if team["name"] == "theirs"] == ["foreign"]
    if sign == "lock":
        (directory / "inboxes" / "ann.json.lock").rmdir()
        (directory / "inboxes" / "ann.json.lock").mkdir()
    refused = await shoal("team", "rm", "theirs", "--yes")
    assert refused.code != 0
    assert "another program leads it" in refused.err
    refused = await shoal("team", "resume", "theirs", "-p", "go")
    assert refused.code != 0
    assert "another program leads it" in refused.err
    assert (directory / "config.json").read_bytes() == before
    assert (await shoal("team", "rm", "theirs", "--yes", "--force")).code == 0
    assert not directory.exists()


@pytest.mark.spec("LIM-13")
async def test_a_foreign_team_without_a_sign_of_life_can_be_removed(shoal: ShoalProgram, home: Path) -> None:
    directory = write_foreign_team(home, leadProcess={"pid": 2**22 + 1})
    assert (await shoal("team", "rm", "theirs", "--yes")).code == 0
    assert not directory.exists()
