"""Mail and kill -9: at every point of a short story, and at random among many processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CRASHES = Path(__file__).with_name("mail_crashes.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.spec("BOX-04", "USR-04", "USR-15")
def test_a_death_at_any_point_loses_and_doubles_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, CRASHES, tmp_path], capture_output=True, text=True, timeout=120, check=True
    )
    outcome = json.loads(done.stdout)
    assert outcome["wrong"] == {}
    assert outcome["deaths"] > 100, "the story changes the disk that often"


@pytest.mark.spec("BOX-04", "USR-15")
def test_processes_killed_at_random_lose_and_double_nothing_and_no_reader_sees_half_a_file():
    """Short; `make chaos ARGS="--only records"` does it with 50 processes and 1,000 operations each."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos", "--only", "records"),
            *("--processes", "8", "--operations", "50", "--pause", "0.02"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 kills" not in done.stdout
