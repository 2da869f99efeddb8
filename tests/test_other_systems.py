"""Stores, teams and the command line work without the names that Python has only on Linux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import linux_only_names

ROOT = Path(__file__).parents[1]
# Without events of the kernel every waiter looks for itself, so more than one wakes up.
NEEDS_FILE_EVENTS = "one_waiter_wakes_per_unblocked_task"
STORES = (
    "tests/stores/test_durable_writes.py",
    "tests/stores/test_store_contracts.py",
    "tests/stores/test_transcripts.py",
)
TEAMS = ("tests/team/test_team_messages.py", "tests/team/test_team_lifecycle.py")
COMMANDS = ("tests/cli/test_cli_headless.py", "tests/cli/test_task_and_inbox_commands.py")


def run_without_linux_names(*files: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "linux_only_names"]
    select = ("-k", f"not {NEEDS_FILE_EVENTS}")
    done = subprocess.run([*command, *select, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr


def test_the_names_are_missing_in_a_program_that_a_test_starts() -> None:
    """Otherwise the tests below would show nothing."""
    script = "import os, sys; print(hasattr(os, 'fdatasync'), sys.platform)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(linux_only_names.SITE_DIRECTORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False posix\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize("files", [STORES, TEAMS, COMMANDS], ids=["stores", "teams", "commands"])
def test_packages_work_without_the_names_of_linux(files: tuple[str, ...]) -> None:
    run_without_linux_names(*files)
