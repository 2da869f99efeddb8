"""No agent result is lost or delivered twice when the lead is killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.spec("USR-03", "QUE-05")
@pytest.mark.parametrize(("count", "most"), [(40, 3), pytest.param(200, 12, marks=pytest.mark.exhaustive)])
def test_every_result_is_delivered_once_although_the_lead_is_killed_repeatedly(count: int, most: int) -> None:
    """Short version; `make chaos ARGS="--only ends"` runs it with 10,000 agents."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--only", "ends", "--agents", str(count), "--kills", str(most)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"(\d+) agents, (\d+) ends, (\d+) told, the lead killed (\d+) times", done.stdout)
    assert counts is not None, done.stdout
    agents, ends, delivered, kills = map(int, counts.groups())
    assert agents >= count
    assert ends == delivered
    assert kills >= (3 if most > 3 else 1)
