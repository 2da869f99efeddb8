"""Agents and teams that are killed, stopped, without room on the disk, without a clock or a provider."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.needs("git")
@pytest.mark.spec("USR-03", "USR-04", "USR-12", "USR-15", "USR-23", "USR-25")
def test_nothing_is_lost_doubled_or_left_over_whatever_befalls_a_run() -> None:
    """Each kind of trouble over sub-agents, then over teams as time allows; `make chaos` goes on with it.

    The time box ends the loop, however far it came: a busy machine plays fewer rounds.
    """
    played = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos", "--only", "rounds"),
            *("--seed", "12", "--rounds", "14", "--seconds", "30"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert "the first seed is 12" in played.stdout
    assert "seed 12: kill over agents" in played.stdout
