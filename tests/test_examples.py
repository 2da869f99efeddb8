"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.spec("SRF-03")
def test_the_team_example_creates_spawns_collaborates_and_shuts_down() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "team.py")], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0] == "created greeters"
    assert "  #2 Check the greeting (after 1)" in lines
    assert {"spawned anna@greeters (blue)", "spawned ben@greeters (green)"} <= set(lines)
    reports = [line.partition(": ")[2] for line in lines if line.startswith(("anna", "ben"))]
    assert reports == ["#1 Write the greeting: Write is done.", "#2 Check the greeting: Read is done."]
    assert "board: {'1': 'completed', '2': 'completed'}" in lines
    assert lines[-2:] == ["teams left: 0", "shut down; left in the project: hello"]


def test_the_agents_example_starts_two_reads_their_reports_and_resumes_one() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "agents.py")], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    *first, goes_on, again = ran.stdout.splitlines()
    assert sorted(first) == [
        "list completed: list.txt has 3 lines. (1 tool calls)",
        "list starts",
        "poem completed: poem.txt has 2 lines. (1 tool calls)",
        "poem starts",
    ]
    assert goes_on == "list goes on"
    assert again == "list completed: list.txt begins with 'bread'. (0 tool calls)"


@pytest.mark.spec("SRF-03")
def test_the_process_example_starts_collaborates_and_shuts_down() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "team_of_processes.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    *work, said, left = ran.stdout.splitlines()
    assert {"anna starts", "ben starts", "anna ends: completed", "ben ends: completed"} <= set(work)
    assert work.index("anna@greeters: Write") < work.index("ben@greeters: Read")
    assert said == "lead: The greeting is written and checked."
    assert left == "in the project: hello"
