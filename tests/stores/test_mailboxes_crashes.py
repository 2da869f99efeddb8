"""Mail under kill -9: at every disk change of a scenario, and at random among many processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CRASH_SCRIPT = Path(__file__).with_name("mail_crashes.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("BOX-04", "USR-04", "USR-15")
def test_a_kill_at_any_disk_change_loses_and_duplicates_no_mail(tmp_path):
    done = subprocess.run(
        [sys.executable, CRASH_SCRIPT, tmp_path], capture_output=True, text=True, timeout=560, check=True
    )
    outcome = json.loads(done.stdout)
    assert outcome["wrong"] == {}
    assert outcome["deaths"] > 100, "the scenario changes the disk that often"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("BOX-04", "USR-15")
def test_random_kills_lose_and_duplicate_no_mail_and_no_reader_sees_half_a_file():
    """Short run; `make chaos ARGS="--only records"` does it with 50 processes and 1,000 operations each."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos", "--only", "records"),
            *("--processes", "8", "--operations", "50", "--pause", "0.02"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 kills" not in done.stdout
