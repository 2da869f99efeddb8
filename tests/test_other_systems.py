"""Stores, teams and the command line work without the names that Python has only on Linux."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import linux_only_names
import tier_marks

ROOT = Path(__file__).parents[1]
ROOMS = {
    "stores": (
        # Without events of the kernel every waiter looks for itself, so more than one wakes up.
        "one_waiter_wakes_per_unblocked_task",
        "test_checking_whether_a_session_runs_wakes_no_watcher",
        # These replace a call that only Linux has, or look at a file that only Linux needs.
        "test_an_event_that_is_written_and_not_flushed_is_not_written_twice",
        "test_mail_in_the_overflow_counts_as_queued_when_it_cannot_move_to_the_inbox",
        # The database uses none of the names.
        "postgres",
    ),
    "team": (),
    "cli": (
        # The names are removed by code that imports asyncio.
        "test_help_and_version_load_nothing_heavy",
        # The team's tests of damaged files show the same.
        "test_damaged_homes",
    ),
}
"""Directories of tests, and the tests in them that need Linux."""
WORKERS = ("-n", "2", "--dist", "worksteal")
"""Tests wait for other processes half of their time."""


def run_without_linux_names(room: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "linux_only_names",
        *WORKERS,
    ]
    select = ("-m", "not slow", "-k", " and ".join(f"not {name}" for name in ROOMS[room]))
    env = {name: value for name, value in os.environ.items() if name not in tier_marks.VARIABLES}
    done = subprocess.run(
        [*command, *select, f"tests/{room}"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    assert " passed" in done.stdout


SHOW_NAMES = "import os, sys, zoneinfo; print(hasattr(os, 'fdatasync'), sys.platform)"
START_LIKE_A_MEMBER = """
import subprocess, sys
import linux_only_names
from shoal.backends.process_backend import build_interpreter_environment
linux_only_names.pytest_configure()
subprocess.run([sys.executable, "-c", sys.argv[1]], env=build_interpreter_environment(), check=True)
"""


@pytest.mark.parametrize(
    ("script", "path"),
    [
        pytest.param(SHOW_NAMES, [linux_only_names.SITE_DIRECTORY], id="program"),
        pytest.param(START_LIKE_A_MEMBER, [ROOT / "src", ROOT / "tests" / "plugins"], id="member"),
    ],
)
def test_the_names_are_missing_in_a_program_that_a_test_starts(script: str, path: list[Path]) -> None:
    """Otherwise the tests below would show nothing."""
    done = subprocess.run(
        [sys.executable, "-c", script, SHOW_NAMES],
        env={"PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False posix\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize("room", ROOMS)
def test_tests_of_a_room_pass_without_the_names_of_linux(room: str) -> None:
    run_without_linux_names(room)
