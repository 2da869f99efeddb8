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
        # 64 processes that look for changes themselves take minutes on a busy machine.
        "test_sixty_four_agents_complete_a_thousand_tasks_once_each",
        # Each process watches its files with more memory.
        "test_a_completed_task_uses_few_bytes_in_each_process",
    ),
    "team": (
        # There is no sandbox, and no worktree for a member without one.
        "test_no_sandboxed_command_can_read_the_team_key_by_any_path",
        "test_no_file_tool_or_command_can_read_the_team_key",
        "test_the_work_of_a_member_in_a_worktree_is_kept_and_reported_to_the_lead",
        "test_every_stored_file_is_of_a_known_kind",
    ),
    "cli": (
        # There is no sandbox.
        "test_doctor_reports_the_sandbox_or_why_there_is_none",
        "test_a_run_shows_how_to_merge_the_worktrees_of_its_agents",
        # The names are removed by code that imports asyncio.
        "test_help_and_version_load_nothing_heavy",
        # Their MCP server is a program of another library, which chose names of Linux when it was imported.
        "test_an_mcp_tool_answers_permission_questions",
        "test_a_missing_prompt_tool_is_reported_before_the_first_request",
    ),
}
"""Directories of tests, and the tests in them that need Linux."""


def run_without_linux_names(room: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "linux_only_names"]
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
