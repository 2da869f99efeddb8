"""Commands over long histories: their cost does not grow with the journal, the transcript or the board."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.plugins.large_home import SESSION, LargeHome, write_large_home
from tests.plugins.measured_program import COMMAND, RESUME, WEB, ProgramCost, run_measured

from shoal.app.session.snapshot_update import update_run_snapshots
from shoal.core.events import TaskChanged
from shoal.stores.files.sessions.file_journal import read_journal

MAX_SECONDS, MAX_BYTES = 3.0, 200 << 20
PROGRAMS: dict[str, tuple[str, ...]] = {
    "cost": (COMMAND, "cost"),
    "ps": (COMMAND, "ps", SESSION),
    "show": (COMMAND, "team", "show", "crew"),
    "tasks": (COMMAND, "task", "ls", "--team", "crew"),
    "watch": (COMMAND, "watch", SESSION),
    "frames": (COMMAND, "watch", SESSION, "--frames"),
    "view": (COMMAND, "view", SESSION, "m000003"),
    "undo": (COMMAND, "undo", "--list", "--session", SESSION),
    "workflow": (COMMAND, "workflow", "show", SESSION),
    "results": (COMMAND, "doctor", "result-not-seen", "--session", SESSION),
    "refusals": (COMMAND, "doctor", "permission-unexpected", "--session", SESSION),
    "web": (WEB,),
    "resume": (RESUME, SESSION),
}
READS_JOURNAL = [name for name in PROGRAMS if name != "tasks"]


def run_program(large: LargeHome, name: str) -> ProgramCost:
    code, *arguments = PROGRAMS[name]
    if name == "web":
        arguments += [str(large.home), SESSION]
    return run_measured(code, *arguments, cwd=large.project, home=large.home)


@pytest.mark.slow
@pytest.mark.parametrize("name", READS_JOURNAL)
@pytest.mark.sampled(3)
def test_a_command_reads_a_long_history_once(tmp_path: Path, name: str) -> None:
    size = 6 << 20
    large = write_large_home(tmp_path, tasks=200, journal_size=size, transcript_size=2 * size)
    first, second = run_program(large, name), run_program(large, name)
    # The interpreter and the modules are read both times.
    saved = size if name != "resume" else 2 * size
    assert first.bytes_read - second.bytes_read > saved * 0.6
    if name not in ("resume", "ps", "show"):  # those print times or turns, which pass
        assert first.out == second.out


def test_a_resumed_run_does_not_journal_its_board_again(tmp_path: Path) -> None:
    large = write_large_home(tmp_path, tasks=100, journal_size=100_000)
    end = large.journal.stat().st_size
    (large.home / "tasks/crew/7.json").write_bytes(
        (large.home / "tasks/crew/7.json").read_bytes().replace(b"number 7 ", b"number seven ")
    )
    run_program(large, "resume")
    events = [record.event for record in read_journal(large.journal, end)]
    assert [event.task for event in events if isinstance(event, TaskChanged)] in ([], ["7"])


def test_watch_shows_the_end_of_a_long_run_and_all_of_it_on_request(tmp_path: Path) -> None:
    large = write_large_home(tmp_path, tasks=100, journal_size=3 << 20)
    shown = run_program(large, "watch").out
    complete = run_measured(COMMAND, "watch", SESSION, "--all", cwd=large.project, home=large.home).out
    assert "MB of earlier events are not shown" in shown
    assert "number 100 " in shown
    assert "number 1 " not in shown
    assert "number 1 " in complete
    # The totals are those of the whole run.
    assert shown.splitlines()[-1] == complete.splitlines()[-1]


@pytest.mark.slow
def test_a_first_reading_of_a_long_journal_reports_its_progress(tmp_path: Path) -> None:
    large = write_large_home(tmp_path, tasks=400, journal_size=72 << 20)
    first = run_program(large, "frames")
    assert f"Reading the journal of session {SESSION[:8]} (needed only once): " in first.err


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> LargeHome:
    """A journal and a transcript of a gigabyte, and a board of 50,000 tasks, with their snapshots."""
    large = write_large_home(
        tmp_path_factory.mktemp("huge"), tasks=50_000, journal_size=10**9, transcript_size=10**9
    )
    update_run_snapshots(large.journal.parent, large.transcript)
    return large


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gigabyte_of_history_costs_three_seconds_and_200_megabytes(huge: LargeHome, name: str) -> None:
    cost = run_program(huge, name)
    assert cost.cpu_seconds <= MAX_SECONDS
    assert cost.peak_bytes <= MAX_BYTES
