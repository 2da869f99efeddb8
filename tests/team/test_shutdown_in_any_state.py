"""Shutdown of members in every state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("USR-08", "LIF-03", "USR-07", "TEAM-07")
@pytest.mark.parametrize(("backend", "each"), [("in-process", 10), ("process", 2)])
def test_members_in_every_state_exit_within_the_grace_and_five_seconds(backend: str, each: int) -> None:
    """Short version of `make chaos ARGS="--only endings"`, which uses a hundred members per state."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos", "--only", "endings"),
            *("--backend", backend, "--rounds", str(each)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{6 * each} members were shut down" in done.stdout
