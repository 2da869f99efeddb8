"""Mail between many members under constant load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("USR-04")
@pytest.mark.parametrize(
    ("backend", "members"),
    [
        ("in-process", 20),
        pytest.param("in-process", 100, marks=pytest.mark.exhaustive),
        pytest.param("process", 6, marks=pytest.mark.exhaustive),
    ],
)
def test_no_message_is_lost_or_duplicated_under_constant_load(backend: str, members: int) -> None:
    """Short version of `make load`, which runs a thousand members for ten minutes and checks memory."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.load", "--minutes", "0.06", "--growth", "1000"),
            *("--members", str(members), "--rate", str(members / 5), "--backend", backend),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 came twice" in done.stdout
    assert " 0 posted" not in done.stdout.splitlines()[-1]
