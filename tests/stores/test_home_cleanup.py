"""Cleanup of old files: running sessions, sessions of teams, and files of other programs are kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_helpers import FixedClock, TranscriptWriter, make_member

from shoal.core.clock import SystemClock
from shoal.core.events import NoteAdded, SessionStarted
from shoal.core.ids import LEAD_ID, SessionId
from shoal.core.names import LEAD_NAME
from shoal.core.teams.tasks import TaskDraft
from shoal.stores.files.board.file_task_board import FileTaskBoard
from shoal.stores.files.home.home_cleanup import (
    HomeCleanupResult,
    is_home_cleanup_due,
    mark_home_cleanup_done,
    remove_old_home_files,
)
from shoal.stores.files.home.home_paths import get_journal_path, get_run_directory
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.debug_log import DebugLog
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.files.sessions.result_files import FileResultStore
from shoal.stores.files.sessions.session_files import fork_session, list_sessions
from shoal.stores.files.teams.file_roster_store import FileRosterStore
from shoal.tools.shell_snapshot import lock_shell_snapshot

DAY = 86_400
NOBODY = 65_534
NOW = 1_900_000_000
OLD, YOUNG = NOW - 31 * DAY, NOW - 29 * DAY


_CLEAN_AS_NOBODY = f"""
import os, sys
from pathlib import Path
from shoal.stores.files.home.home_cleanup import remove_old_home_files

if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
done = remove_old_home_files(Path(sys.argv[1]), days=30, now=int(sys.argv[2]))
print(*done.sessions, *done.problems, sep="\\n")
"""


def run_cleanup(home: Path, *, days: int = 30, **options: Any) -> HomeCleanupResult:
    return remove_old_home_files(home, days=days, now=NOW * 1000, **options)


def set_age(place: Path, at: float) -> None:
    """Set the times of a directory and everything below it, without following links."""
    for path in (*place.rglob("*"), place):
        os.utime(path, (at, at), follow_symlinks=False)


@pytest.fixture
def create_session(
    home: Path, writer: Callable[..., TranscriptWriter], clock: FixedClock
) -> Callable[..., SessionId]:
    """Creates an ended session with all its files, last changed at the given time."""

    def create(at: float = OLD, *, version: str = "0.1.0", cwd: str = "/project") -> SessionId:
        name = SessionId(str(uuid.uuid4()))
        transcript_writer = writer(session=name, cwd=cwd)
        transcript_writer.append_prompt("Mend the roof.")
        transcript_writer.transcript.close()
        (transcript_writer.path.with_suffix("") / "subagents").mkdir(parents=True)
        (transcript_writer.path.with_suffix("") / "subagents" / "agent-a1.jsonl").write_text("{}\n")
        transcript_writer.path.with_name(f"{transcript_writer.path.name}.torn-2026").write_text("half")
        journal = FileJournal(get_journal_path(home, name), clock)
        journal.append(NoteAdded(agent=LEAD_ID, text="before"))
        journal.append(
            SessionStarted(
                agent=LEAD_ID,
                session=name,
                cwd=cwd,
                model="m",
                mode="default",
                tools=(),
                version=version,
            )
        )
        journal.close()
        FileResultStore(get_run_directory(home, name) / "results").save_result("long", b"x" * 1000)
        SessionLock(home, name).release()
        for directory in (home / "tasks" / name, home / "shoal" / "tasks" / name):
            directory.mkdir(parents=True)
            (directory / "1.json").write_text("{}")
        log = DebugLog(home / "debug", name, clock)
        log.write_event(NoteAdded(agent=LEAD_ID, text="said"))
        log.close()
        for place in (*home.glob(f"*/*/{name}*"), *home.glob(f"*/{name}*"), *home.glob(f"*/*/*/{name}*")):
            set_age(place, at)
        return name

    return create


def test_a_run_without_a_journal_is_removed(home: Path):
    name = SessionId(str(uuid.uuid4()))
    FileResultStore(get_run_directory(home, name) / "results").save_result("long", b"x")
    # Uses the real clock: reading a run must not make it look recent.
    now = time.time()
    set_age(get_run_directory(home, name), now - 40 * 24 * 3600)
    assert remove_old_home_files(home, days=30, now=int(now * 1000)).sessions == (name,)
    assert list_left_files(home, name) == set()


def list_left_files(home: Path, session: str) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if session in str(path)}


@pytest.mark.spec("HOM-02")
def test_an_old_session_is_removed_with_all_its_files(home: Path, create_session: Callable[..., SessionId]):
    old, young = create_session(), create_session(YOUNG)
    before = list_left_files(home, young)
    assert len(list_left_files(home, old)) > 12
    done = run_cleanup(home)
    assert done == HomeCleanupResult(sessions=(old,), logs=1, snapshots=0, problems=(), finished=True)
    assert list_left_files(home, old) == set()
    assert list_left_files(home, young) == before
    assert [summary.session for summary in list_sessions(home)] == [young]
    assert run_cleanup(home).sessions == ()


def test_zero_days_removes_every_session_that_ended_more_than_an_hour_ago(
    home: Path, create_session: Callable[..., SessionId]
):
    ended, just_now = create_session(NOW - 3601), create_session(NOW - 3599)
    assert run_cleanup(home, days=0).sessions == (ended,)
    assert list_left_files(home, just_now)
    assert run_cleanup(home, days=10**9).sessions == ()


LOCK_SCRIPT = """
import sys
from pathlib import Path
from shoal.stores.files.locks.pid_locks import SessionLock
lock = SessionLock(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.spec("HOM-06")
def test_a_running_session_is_not_touched(home: Path, create_session: Callable[..., SessionId]):
    running = create_session()
    before = list_left_files(home, running)
    holder = subprocess.Popen(
        [sys.executable, "-c", LOCK_SCRIPT, str(home), running],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert run_cleanup(home) == HomeCleanupResult(
        sessions=(), logs=0, snapshots=0, problems=(), finished=True
    )
    assert list_left_files(home, running) == before
    holder.kill()
    holder.communicate()
    assert run_cleanup(home).sessions == (running,)


async def test_the_session_of_an_existing_team_is_not_touched(
    home: Path, create_session: Callable[..., SessionId]
):
    lead, named = create_session(), create_session()
    rosters = FileRosterStore(home, clock=SystemClock())
    lead_member = make_member(LEAD_NAME)
    team = await rosters.create_team("roof", lead=lead_member, session=lead, description=None)
    (home / "tasks" / named).rename(home / "tasks" / "aside")
    await rosters.create_team(named, lead=lead_member, session="another", description=None)
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=None)
    await board.create(TaskDraft(subject="s", description=""))
    await board.aclose()
    for place in (home / "teams", home / "tasks", home / "shoal" / "teams", home / "shoal" / "tasks"):
        set_age(place, OLD)
    before = sorted(home.rglob("*"))
    done = run_cleanup(home)
    assert (done.sessions, done.logs, done.problems) == ((), 0, ())
    assert sorted(home.rglob("*")) == before
    await rosters.delete_team(team.name)
    assert run_cleanup(home).sessions == (lead,)


def test_no_session_is_removed_if_a_roster_cannot_be_read(
    home: Path, create_session: Callable[..., SessionId]
):
    old = create_session()
    (home / "teams" / "broken").mkdir(parents=True)
    (home / "teams" / "broken" / "config.json").write_text("{half")
    done = run_cleanup(home)
    assert done.sessions == ()
    assert "No session is removed because the roster of team broken cannot be read" in done.problems[0]
    assert list_left_files(home, old)


@pytest.mark.spec("HOM-06")
def test_files_of_other_programs_are_kept(
    home: Path, create_session: Callable[..., SessionId], writer: Callable[..., TranscriptWriter]
):
    ours = create_session()
    theirs = str(uuid.uuid4())
    project = home / "projects" / "-project"
    (project / f"{theirs}.jsonl").write_text('{"type":"user","version":"2.1.0"}\n')
    (project / theirs / "tool-results").mkdir(parents=True)
    (project / ours / "tool-results").mkdir()
    (home / "debug" / f"{theirs}.txt").write_text("2026-01-01T00:00:00.000Z [DEBUG] theirs\n")
    (home / "debug" / "notes.txt").write_text("a person's")
    snapshots = home / "shell-snapshots"
    snapshots.mkdir()
    (snapshots / "snapshot-zsh-1760000000000-x7k2p9.sh").write_text("theirs")
    (snapshots / "snapshot-zsh-1760000000000-0123abcd.sh").write_text("theirs too")
    for place in (project, home / "debug", snapshots):
        set_age(place, OLD)
    before = list_left_files(home, theirs)
    done = run_cleanup(home)
    assert (done.sessions, done.logs, done.snapshots) == ((ours,), 1, 0)
    assert list_left_files(home, theirs) == before
    assert list_left_files(home, ours) == {
        f"projects/-project/{ours}",
        f"projects/-project/{ours}/tool-results",
    }
    assert len(list(snapshots.iterdir())) == 2
    assert (home / "debug" / "notes.txt").exists()


@pytest.mark.spec("HOM-06")
@pytest.mark.parametrize("state", ["begun by another program", "gone on with since", "behind a link"])
def test_a_session_with_a_foreign_recent_or_linked_transcript_is_kept(
    home: Path, create_session: Callable[..., SessionId], state: str, tmp_path: Path
):
    old = create_session()
    (transcript,) = home.glob(f"projects/*/{old}.jsonl")
    if state == "begun by another program":
        transcript.write_bytes(transcript.read_bytes().replace(b'"version":"0.1.0"', b'"version":"2.1.0"'))
        os.utime(transcript, (OLD, OLD))
    elif state == "gone on with since":
        os.utime(transcript, (YOUNG, YOUNG))
    else:
        transcript.parent.rename(tmp_path / "elsewhere")
        transcript.parent.symlink_to(tmp_path / "elsewhere")
    before = list_left_files(home, old) - {f"debug/{old}.txt"}
    assert run_cleanup(home).sessions == ()
    assert list_left_files(home, old) == before


def test_a_forked_session_is_removed_like_any_other(
    home: Path, create_session: Callable[..., SessionId], clock: FixedClock
):
    parent = create_session()
    (path,) = home.glob(f"projects/*/{parent}.jsonl")
    fork = create_session()
    (target,) = home.glob(f"projects/*/{fork}.jsonl")
    target.unlink()
    fork_session(path, fork, home=home, cwd="/project")
    set_age(target, OLD)
    assert set(run_cleanup(home).sessions) == {parent, fork}


def test_cleanup_follows_no_link(home: Path, create_session: Callable[..., SessionId], tmp_path: Path):
    old = create_session()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "dear.txt").write_text("dear")
    (get_run_directory(home, old) / "results" / "link").symlink_to(outside)
    (get_run_directory(home, old) / "linked.txt").symlink_to(outside / "dear.txt")
    linked = str(uuid.uuid4())
    (home / "shoal" / "runs" / linked).symlink_to(outside)
    (home / "debug" / f"{linked}.txt").symlink_to(outside / "dear.txt")
    for path in home.rglob("*"):
        os.utime(path, (OLD, OLD), follow_symlinks=False)
    os.utime(outside / "dear.txt", (OLD, OLD))
    assert run_cleanup(home).sessions == (old,)
    assert (outside / "dear.txt").read_text() == "dear"
    assert (home / "shoal" / "runs" / linked).is_symlink()
    assert (home / "debug" / f"{linked}.txt").is_symlink()


@pytest.mark.parametrize("place", ["shoal/runs", "projects", "debug", "shell-snapshots", "teams"])
def test_a_linked_directory_is_reported_and_skipped(
    home: Path, create_session: Callable[..., SessionId], place: str, tmp_path: Path
):
    old = create_session()
    where = home / place
    where.mkdir(exist_ok=True)
    where.rename(tmp_path / "elsewhere")
    where.symlink_to(tmp_path / "elsewhere")
    done = run_cleanup(home)
    assert any(f"{where} is a link" in problem for problem in done.problems)
    if place in ("shoal/runs", "projects", "teams"):
        assert done.sessions == ()
        assert (tmp_path / "elsewhere").is_dir()
        assert get_run_directory(home, old).exists()


@pytest.mark.spec("USR-12")
def test_a_cleanup_interrupted_at_any_step_is_finished_by_the_next(
    home: Path, create_session: Callable[..., SessionId]
):
    """Stopped before each removal in turn, as by a kill: a partial session is never listed."""
    steps = 0
    while True:
        old = create_session()
        left = steps

        def should_continue() -> bool:
            nonlocal left
            left -= 1
            return left >= 0

        done = run_cleanup(home, should_continue=should_continue)
        listed = [summary.session for summary in list_sessions(home)]
        if done.finished:
            break
        assert old not in done.sessions or not get_run_directory(home, old).exists()
        whole = (home / "projects" / "-project" / old / "subagents" / "agent-a1.jsonl").exists()
        assert whole or old not in listed
        assert run_cleanup(home).problems == ()
        assert list_left_files(home, old) == set()
        steps += 1
    assert steps > 10


def test_a_session_that_cannot_be_removed_is_reported_and_the_others_are_removed(
    home: Path, create_session: Callable[..., SessionId]
):
    stuck, other = sorted((create_session(), create_session()))
    directory = get_run_directory(home, stuck)
    (directory / "lock").unlink()
    (directory / "lock").mkdir()
    os.utime(directory / "journal.jsonl", (OLD, OLD))
    done = run_cleanup(home)
    assert done.sessions == (other,)
    assert f"The session {stuck} was not removed" in done.problems[0]


@pytest.mark.spec("HOM-02")
def test_an_unreadable_run_directory_does_not_stop_the_cleanup(
    create_session: Callable[..., SessionId], home: Path, request: pytest.FixtureRequest
):
    closed, other = sorted((create_session(), create_session()))
    # Only root may read the temporary directories of pytest, and perhaps the directory that TMPDIR names.
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    request.addfinalizer(lambda: shutil.rmtree(place))
    shutil.copytree(home, place, dirs_exist_ok=True)
    get_run_directory(place, closed).chmod(0)
    if os.geteuid() == 0:
        for path in (place, *place.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    command = [sys.executable, "-c", _CLEAN_AS_NOBODY, str(place), str(NOW * 1000)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    get_run_directory(place, closed).chmod(0o700)
    gone, *problems = done.stdout.splitlines()
    assert gone == other
    assert [f"The session {closed} was not removed" in each for each in problems] == [True]
    assert list_left_files(place, other) == set()


def test_very_deep_directories_do_not_stop_the_cleanup(
    home: Path, create_session: Callable[..., SessionId], request: pytest.FixtureRequest
):
    deep, other = create_session(), create_session()
    place = os.open(get_run_directory(home, deep), os.O_RDONLY)
    for _ in range(sys.getrecursionlimit()):
        os.mkdir("d", dir_fd=place)
        place, above = os.open("d", os.O_RDONLY, dir_fd=place), place
        os.close(above)
    os.close(place)
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", get_run_directory(home, deep)], check=True))
    done = run_cleanup(home)
    assert done.sessions == (other,)
    assert done.problems == (f"Cannot remove {get_run_directory(home, deep) / 'd'}.",)


def test_old_logs_without_a_session_are_removed_unless_they_are_open(home: Path, clock: FixedClock):
    debug = home / "debug"
    names = [str(uuid.uuid4()) for _ in range(2)]
    logs = [DebugLog(debug, SessionId(name), clock) for name in names]
    for log in logs:
        log.write_event(NoteAdded(agent=LEAD_ID, text="said"))
    logs[0].close()
    set_age(debug, OLD)
    assert run_cleanup(home).logs == 1
    assert {path.name for path in debug.iterdir()} == {f"{names[1]}.txt", "latest"}
    logs[1].close()
    assert run_cleanup(home).logs == 1
    assert not list(debug.iterdir())


def test_old_snapshots_are_removed_unless_they_are_in_use(home: Path):
    directory = home / "shell-snapshots"
    directory.mkdir(parents=True)
    used, free, of_teammate, half = (
        directory / f"snapshot-bash-1-0123abc{end}" for end in ("0.sh", "1.sh", "1-0123abcd.sh", "2.sh.part")
    )
    for snapshot in (used, free, of_teammate):
        snapshot.write_text("alias x=y\n# whole\n")
    half.write_text("alias")
    set_age(directory, OLD)
    held = lock_shell_snapshot(used)
    assert run_cleanup(home).snapshots == 3
    assert list(directory.iterdir()) == [used]
    os.close(held)
    assert run_cleanup(home).snapshots == 1


def test_an_empty_home_has_nothing_to_remove(home: Path):
    assert run_cleanup(home) == HomeCleanupResult(
        sessions=(), logs=0, snapshots=0, problems=(), finished=True
    )
    assert not home.exists()


def test_a_cleanup_is_due_a_day_after_the_last_complete_one_and_if_the_clock_was_set_back(home: Path):
    done, day = NOW * 1000, DAY * 1000
    assert is_home_cleanup_due(home, now=done)
    mark_home_cleanup_done(home, now=done)
    times = (done - 1, done, done + day - 1, done + day)
    assert [is_home_cleanup_due(home, now=now) for now in times] == [True, False, False, True]
