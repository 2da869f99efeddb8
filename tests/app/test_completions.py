"""Nobody's end is lost or told twice, however often the lead dies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spec("USR-03", "QUE-05")
def test_every_end_is_told_once_though_the_lead_is_killed_again_and_again() -> None:
    """Short; `make chaos ARGS="--only ends"` does it with 10,000 agents."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--only", "ends", "--agents", "200", "--kills", "12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"(\d+) agents, (\d+) ends, (\d+) told, the lead killed (\d+) times", done.stdout)
    assert told is not None, done.stdout
    agents, ends, heard, kills = map(int, told.groups())
    assert agents >= 200
    assert ends == heard
    assert kills >= 3
