"""A team killed at any moment and resumed loses and duplicates nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


# On a loaded machine the restarts take minutes.
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.needs("git")
@pytest.mark.parametrize(
    ("backend", "rounds"),
    [
        ("in-process", 2),
        pytest.param("in-process", 10, marks=pytest.mark.exhaustive),
        pytest.param("process", 2, marks=pytest.mark.exhaustive),
        pytest.param("tmux", 1, marks=[pytest.mark.exhaustive, pytest.mark.needs("tmux")]),
    ],
)
@pytest.mark.spec("USR-12", "USR-03", "USR-04", "USR-23", "USR-25", "LIF-05", "TRN-02")
def test_a_repeatedly_killed_team_does_all_its_work_once(backend: str, rounds: int) -> None:
    """Short version of `make chaos ARGS="--only teams"`."""
    played = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos", "--only", "teams", "--seconds", "14"),
            *("--backend", backend, "--rounds", str(rounds)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert " 0 faults" in played.stdout
