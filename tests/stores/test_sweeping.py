"""What is removed for its age, and all that stays: what runs, what teams need, what other programs keep."""

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
from store_kit import StandingClock, Writer

from shoal.core.clock import SystemClock
from shoal.core.events import Noted, SessionStarted
from shoal.core.ids import LEAD, SessionId
from shoal.core.names import LEAD_NAME
from shoal.core.roster import Newcomer
from shoal.core.tasks import Draft
from shoal.stores.files.board import FileTaskBoard
from shoal.stores.files.debug import DebugLog
from shoal.stores.files.journal import FileJournal
from shoal.stores.files.locks import SessionLock
from shoal.stores.files.places import journal_path, run_directory
from shoal.stores.files.results import FileResults
from shoal.stores.files.rosters import FileRosters
from shoal.stores.files.sessions import fork_session, list_sessions
from shoal.stores.files.sweeping import Swept, sweep
from shoal.tools.snapshot import hold

DAY = 86_400
NOBODY = 65_534
NOW = 1_900_000_000
OLD, YOUNG = NOW - 31 * DAY, NOW - 29 * DAY


_AS_NOBODY = f"""
import os, sys
from pathlib import Path
from shoal.stores.files.sweeping import sweep

if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
done = sweep(Path(sys.argv[1]), days=30, now=int(sys.argv[2]))
print(*done.sessions, *done.troubles, sep="\\n")
"""


def swept(home: Path, *, days: int = 30, **how: Any) -> Swept:
    return sweep(home, days=days, now=NOW * 1000, **how)


def aged(place: Path, at: float) -> None:
    """The place and all below it were touched last then; links as themselves."""
    for path in (*place.rglob("*"), place):
        os.utime(path, (at, at), follow_symlinks=False)


@pytest.fixture
def session(home: Path, writer: Callable[..., Writer], clock: StandingClock) -> Callable[..., SessionId]:
    """A session of ours that has ended, with all it may leave behind, last touched at that time."""

    def made(at: float = OLD, *, version: str = "0.1.0", cwd: str = "/project") -> SessionId:
        name = SessionId(str(uuid.uuid4()))
        pen = writer(session=name, cwd=cwd)
        pen.prompt("Mend the roof.")
        pen.transcript.close()
        (pen.path.with_suffix("") / "subagents").mkdir(parents=True)
        (pen.path.with_suffix("") / "subagents" / "agent-a1.jsonl").write_text("{}\n")
        pen.path.with_name(f"{pen.path.name}.torn-2026").write_text("half")
        journal = FileJournal(journal_path(home, name), clock)
        journal.append(Noted(agent=LEAD, text="before"))
        journal.append(
            SessionStarted(
                agent=LEAD, session=name, cwd=cwd, model="m", mode="default", tools=(), version=version
            )
        )
        journal.close()
        FileResults(run_directory(home, name) / "results").keep("long", b"x" * 1000)
        SessionLock(home, name).release()
        for directory in (home / "tasks" / name, home / "shoal" / "tasks" / name):
            directory.mkdir(parents=True)
            (directory / "1.json").write_text("{}")
        log = DebugLog(home / "debug", name, clock)
        log.note(Noted(agent=LEAD, text="said"))
        log.close()
        for place in (*home.glob(f"*/*/{name}*"), *home.glob(f"*/{name}*"), *home.glob(f"*/*/*/{name}*")):
            aged(place, at)
        return name

    return made


def test_a_run_that_never_said_a_word_goes_at_the_first_sweep(home: Path):
    name = SessionId(str(uuid.uuid4()))
    FileResults(run_directory(home, name) / "results").keep("long", b"x")
    # By the clock of the machine: to look at a run must not make it young.
    now = time.time()
    aged(run_directory(home, name), now - 40 * 24 * 3600)
    assert sweep(home, days=30, now=int(now * 1000)).sessions == (name,)
    assert left_of(home, name) == set()


def left_of(home: Path, session: str) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if session in str(path)}


@pytest.mark.spec("HOM-02")
def test_a_session_that_ended_long_ago_goes_with_all_that_is_its(
    home: Path, session: Callable[..., SessionId]
):
    old, young = session(), session(YOUNG)
    before = left_of(home, young)
    assert len(left_of(home, old)) > 12
    done = swept(home)
    assert done == Swept(sessions=(old,), logs=1, snapshots=0, troubles=(), finished=True)
    assert left_of(home, old) == set()
    assert left_of(home, young) == before
    assert [glance.session for glance in list_sessions(home)] == [young]
    assert swept(home).sessions == ()


def test_0_days_remove_all_that_has_ended_but_for_the_last_hour(
    home: Path, session: Callable[..., SessionId]
):
    ended, just_now = session(NOW - 3601), session(NOW - 3599)
    assert swept(home, days=0).sessions == (ended,)
    assert left_of(home, just_now)
    assert swept(home, days=10**9).sessions == ()


HOLDS = """
import sys
from pathlib import Path
from shoal.stores.files.locks import SessionLock
lock = SessionLock(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.spec("HOM-06")
def test_nothing_of_a_session_that_runs_is_touched(home: Path, session: Callable[..., SessionId]):
    running = session()
    before = left_of(home, running)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(home), running],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert swept(home) == Swept(sessions=(), logs=0, snapshots=0, troubles=(), finished=True)
    assert left_of(home, running) == before
    holder.kill()
    holder.communicate()
    assert swept(home).sessions == (running,)


async def test_nothing_of_a_session_whose_team_exists_is_touched(
    home: Path, session: Callable[..., SessionId]
):
    lead, named = session(), session()
    rosters = FileRosters(home, clock=SystemClock())
    newcomer = Newcomer(name=LEAD_NAME, agent_type="team-lead", model="m", cwd="/", prompt="")
    team = await rosters.create("roof", lead=newcomer, session=lead, description=None)
    (home / "tasks" / named).rename(home / "tasks" / "aside")
    await rosters.create(named, lead=newcomer, session="another", description=None)
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=None)
    await board.create(Draft(subject="s", description=""))
    await board.aclose()
    for place in (home / "teams", home / "tasks", home / "shoal" / "teams", home / "shoal" / "tasks"):
        aged(place, OLD)
    before = sorted(home.rglob("*"))
    done = swept(home)
    assert (done.sessions, done.logs, done.troubles) == ((), 0, ())
    assert sorted(home.rglob("*")) == before
    await rosters.delete(team.name)
    assert swept(home).sessions == (lead,)


def test_where_a_roster_cannot_be_read_no_session_goes(home: Path, session: Callable[..., SessionId]):
    old = session()
    (home / "teams" / "broken").mkdir(parents=True)
    (home / "teams" / "broken" / "config.json").write_text("{half")
    done = swept(home)
    assert done.sessions == ()
    assert "No session is removed: the roster of team broken cannot be read" in done.troubles[0]
    assert left_of(home, old)


@pytest.mark.spec("HOM-06")
def test_what_other_programs_keep_stays(
    home: Path, session: Callable[..., SessionId], writer: Callable[..., Writer]
):
    ours = session()
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
        aged(place, OLD)
    before = left_of(home, theirs)
    done = swept(home)
    assert (done.sessions, done.logs, done.snapshots) == ((ours,), 1, 0)
    assert left_of(home, theirs) == before
    assert left_of(home, ours) == {f"projects/-project/{ours}", f"projects/-project/{ours}/tool-results"}
    assert len(list(snapshots.iterdir())) == 2
    assert (home / "debug" / "notes.txt").exists()


@pytest.mark.spec("HOM-06")
@pytest.mark.parametrize("how", ["begun by another program", "gone on with since", "behind a link"])
def test_a_transcript_that_is_not_ours_alone_keeps_its_session(
    home: Path, session: Callable[..., SessionId], how: str, tmp_path: Path
):
    old = session()
    (transcript,) = home.glob(f"projects/*/{old}.jsonl")
    if how == "begun by another program":
        transcript.write_bytes(transcript.read_bytes().replace(b'"version":"0.1.0"', b'"version":"2.1.0"'))
        os.utime(transcript, (OLD, OLD))
    elif how == "gone on with since":
        os.utime(transcript, (YOUNG, YOUNG))
    else:
        transcript.parent.rename(tmp_path / "elsewhere")
        transcript.parent.symlink_to(tmp_path / "elsewhere")
    before = left_of(home, old) - {f"debug/{old}.txt"}
    assert swept(home).sessions == ()
    assert left_of(home, old) == before


def test_a_fork_is_ours_too(home: Path, session: Callable[..., SessionId], clock: StandingClock):
    parent = session()
    (path,) = home.glob(f"projects/*/{parent}.jsonl")
    fork = session()
    (target,) = home.glob(f"projects/*/{fork}.jsonl")
    target.unlink()
    fork_session(path, fork, home=home, cwd="/project")
    aged(target, OLD)
    assert set(swept(home).sessions) == {parent, fork}


def test_no_link_is_followed(home: Path, session: Callable[..., SessionId], tmp_path: Path):
    old = session()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "dear.txt").write_text("dear")
    (run_directory(home, old) / "results" / "link").symlink_to(outside)
    (run_directory(home, old) / "linked.txt").symlink_to(outside / "dear.txt")
    linked = str(uuid.uuid4())
    (home / "shoal" / "runs" / linked).symlink_to(outside)
    (home / "debug" / f"{linked}.txt").symlink_to(outside / "dear.txt")
    for path in home.rglob("*"):
        os.utime(path, (OLD, OLD), follow_symlinks=False)
    os.utime(outside / "dear.txt", (OLD, OLD))
    assert swept(home).sessions == (old,)
    assert (outside / "dear.txt").read_text() == "dear"
    assert (home / "shoal" / "runs" / linked).is_symlink()
    assert (home / "debug" / f"{linked}.txt").is_symlink()


@pytest.mark.parametrize("place", ["shoal/runs", "projects", "debug", "shell-snapshots", "teams"])
def test_a_place_that_is_a_link_is_told_of_and_left(
    home: Path, session: Callable[..., SessionId], place: str, tmp_path: Path
):
    old = session()
    where = home / place
    where.mkdir(exist_ok=True)
    where.rename(tmp_path / "elsewhere")
    where.symlink_to(tmp_path / "elsewhere")
    done = swept(home)
    assert any(f"{where} is a link" in trouble for trouble in done.troubles)
    if place in ("shoal/runs", "projects", "teams"):
        assert done.sessions == ()
        assert (tmp_path / "elsewhere").is_dir()
        assert run_directory(home, old).exists()


@pytest.mark.spec("USR-12")
def test_a_sweep_that_dies_anywhere_is_finished_by_the_next(home: Path, session: Callable[..., SessionId]):
    """Stopped before each of its removals in turn, as a kill would: half a session is never on a list."""
    steps = 0
    while True:
        old = session()
        left = steps

        def go_on() -> bool:
            nonlocal left
            left -= 1
            return left >= 0

        done = swept(home, go_on=go_on)
        listed = [glance.session for glance in list_sessions(home)]
        if done.finished:
            break
        whole = (home / "projects" / "-project" / old / "subagents" / "agent-a1.jsonl").exists()
        assert whole or old not in listed
        assert swept(home).troubles == ()
        assert left_of(home, old) == set()
        steps += 1
    assert steps > 10


def test_what_cannot_be_removed_is_told_and_costs_nothing_else(home: Path, session: Callable[..., SessionId]):
    stuck, other = sorted((session(), session()))
    directory = run_directory(home, stuck)
    (directory / "lock").unlink()
    (directory / "lock").mkdir()
    os.utime(directory / "journal.jsonl", (OLD, OLD))
    done = swept(home)
    assert done.sessions == (other,)
    assert f"The session {stuck} is not removed" in done.troubles[0]


@pytest.mark.spec("HOM-02")
def test_a_run_that_cannot_be_looked_into_keeps_no_other(
    session: Callable[..., SessionId], home: Path, request: pytest.FixtureRequest
):
    closed, other = sorted((session(), session()))
    # Where pytest keeps its files only root may look.
    place = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(place))
    shutil.copytree(home, place, dirs_exist_ok=True)
    run_directory(place, closed).chmod(0)
    if os.geteuid() == 0:
        for path in (place, *place.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    words = [sys.executable, "-c", _AS_NOBODY, str(place), str(NOW * 1000)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    run_directory(place, closed).chmod(0o700)
    gone, *troubles = done.stdout.splitlines()
    assert gone == other
    assert [f"The session {closed} is not removed" in each for each in troubles] == [True]
    assert left_of(place, other) == set()


def test_directories_without_end_keep_their_session_and_no_other(
    home: Path, session: Callable[..., SessionId], request: pytest.FixtureRequest
):
    deep, other = session(), session()
    place = os.open(run_directory(home, deep), os.O_RDONLY)
    for _ in range(sys.getrecursionlimit()):
        os.mkdir("d", dir_fd=place)
        place, above = os.open("d", os.O_RDONLY, dir_fd=place), place
        os.close(above)
    os.close(place)
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", run_directory(home, deep)], check=True))
    done = swept(home)
    assert done.sessions == (other,)
    assert done.troubles == (f"{run_directory(home, deep) / 'd'} cannot be removed.",)


def test_old_logs_go_without_their_session_but_for_one_that_is_written(home: Path, clock: StandingClock):
    debug = home / "debug"
    names = [str(uuid.uuid4()) for _ in range(2)]
    logs = [DebugLog(debug, SessionId(name), clock) for name in names]
    for log in logs:
        log.note(Noted(agent=LEAD, text="said"))
    logs[0].close()
    aged(debug, OLD)
    assert swept(home).logs == 1
    assert {path.name for path in debug.iterdir()} == {f"{names[1]}.txt", "latest"}
    logs[1].close()
    assert swept(home).logs == 1
    assert not list(debug.iterdir())


def test_old_snapshots_go_whole_or_half_but_for_one_that_is_in_use(home: Path):
    directory = home / "shell-snapshots"
    directory.mkdir(parents=True)
    used, free, half = (
        directory / f"snapshot-bash-1-0123abc{number}.sh{end}"
        for number, end in ((0, ""), (1, ""), (2, ".part"))
    )
    for snapshot in (used, free):
        snapshot.write_text("alias x=y\n# whole\n")
    half.write_text("alias")
    aged(directory, OLD)
    held = hold(used)
    assert swept(home).snapshots == 2
    assert list(directory.iterdir()) == [used]
    os.close(held)
    assert swept(home).snapshots == 1


def test_an_empty_home_has_nothing_to_remove(home: Path):
    assert swept(home) == Swept(sessions=(), logs=0, snapshots=0, troubles=(), finished=True)
    assert not home.exists()
