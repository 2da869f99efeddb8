"""The process that leads a team of another program, as the roster names it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from shoal.stores.files.teams.foreign_lead_process import find_live_lead_process

NOW = time.time() * 1000
OWN = os.getpid()
UNUSED = 2**22 + 1


def write_roster(home: Path, content: Any) -> None:
    path = home / "teams" / "theirs" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.spec("LIM-13")
@pytest.mark.parametrize(
    "process",
    [
        {"pid": OWN},
        {"pid": OWN, "claimedAt": NOW},
        {"pid": OWN, "claimedAt": "an unknown format"},
        {"pid": OWN, "claimedAt": None},
        # The clock may have been set by less than a minute since then.
        {"pid": 1, "claimedAt": (time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - 30) * 1000},
    ],
)
def test_a_living_process_leads_the_team(home: Path, process: dict[str, Any]) -> None:
    write_roster(home, {"leadProcess": process})
    assert find_live_lead_process(home, "theirs") == process["pid"]


@pytest.mark.spec("LIM-13")
@pytest.mark.parametrize(
    "content",
    [
        {"leadProcess": {"pid": UNUSED}},
        {"leadProcess": {"pid": 10**30}},
        {"leadProcess": {"pid": 0}},
        {"leadProcess": {"pid": -OWN}},
        {"leadProcess": {"pid": True}},
        {"leadProcess": {"pid": str(OWN)}},
        {"leadProcess": {"claimedAt": NOW}},
        {"leadProcess": OWN},
        {"leadProcess": None},
        {},
        [],
        "{damaged",
        # Started after the team was claimed: the id was used again.
        {"leadProcess": {"pid": OWN, "claimedAt": NOW - 3e9}},
        {"leadProcess": {"pid": OWN, "claimedAt": 1000}},
    ],
)
def test_a_team_without_a_living_process_has_no_lead(home: Path, content: Any) -> None:
    write_roster(home, content)
    assert find_live_lead_process(home, "theirs") is None


def test_a_team_without_a_roster_has_no_lead(home: Path) -> None:
    assert find_live_lead_process(home, "theirs") is None
