"""Removal of old sessions with all their files.

A session is ours if it has a run and we started its transcript: another program may have started it in the
same home. The transcript is removed first and the journal last, so that a session disappears from lists at
once, and the next cleanup finds the leftovers of one that died.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import StoreError
from shoal.core.events import SessionStarted
from shoal.core.ids import is_uuid
from shoal.stores.files.below_home import found_inside
from shoal.stores.files.flocks import try_flock
from shoal.stores.files.handles import Directory
from shoal.wire.journal import read_event

_JOURNAL, _LOCK = "journal.jsonl", "lock"
_FIRST_LINE = re.compile(
    rb'\{"parentUuid":null,"isSidechain":false,"userType":"external","cwd":"(?:[^"\\]|\\.)*",'
    rb'"sessionId":"[0-9a-fA-F-]+","version":"([^"\\]+)"'
)
_BEGINNING = 1 << 20
"""Bytes at the start of a file that are searched."""


class _Places(Struct, frozen=True):
    runs: Directory
    projects: Directory | None
    of_session: dict[str, list[str]]
    """Projects that have files of a session."""


class OldSessions:
    """Removes sessions whose last event is older than the Unix time `before`; reports failed removals."""

    def __init__(
        self, home: Path, before: float, go_on: Callable[[], bool], tell: Callable[[str], None]
    ) -> None:
        self._home = home
        self._before = before
        self._go_on = go_on
        self._tell = tell

    def removed(self, kept: set[str]) -> Iterator[str]:
        """Remove old sessions except `kept_sessions` and yield each.

        Raises `StoreError` if it cannot decide what may be removed.
        """
        runs = found_inside(self._home, "shoal", "runs")
        if runs is None:
            return
        with runs:
            old = [name for name in sorted(runs.names()) if is_uuid(name) and name not in kept]
            old = [name for name in old if self._go_on() and self._seems_old(runs, name)]
            if not old:
                return
            projects = found_inside(self._home, "projects")
            places = _Places(runs, projects, {} if projects is None else _projects_of(projects))
            try:
                for session in old:
                    if self._go_on() and self._is_removed(places, session):
                        yield session
            finally:
                if projects is not None:
                    projects.close()

    def _seems_old(self, runs: Directory, session: str) -> bool:
        try:
            return self._is_old(runs, session)
        except (StoreError, OSError) as error:  # for example of another user
            self._tell_that_it_stays(session, error)
            return False

    def _is_old(self, runs: Directory, session: str) -> bool:
        run = runs.existing(session) if runs.is_directory(session) else None
        if run is None:
            return False
        with run:
            # The journal's time if there is one: removing files changes the time of the directory.
            status = run.status(_JOURNAL) or os.fstat(run.fd)
        return status.st_mtime < self._before

    def _has_new_words(self, run: Directory) -> bool:
        """Return True if the journal is new; the directory has changed with the creation of the lock."""
        status = run.status(_JOURNAL)
        return status is not None and status.st_mtime >= self._before

    def _is_removed(self, places: _Places, session: str) -> bool:
        try:
            run = places.runs.existing(session)
            if run is None:
                return False
            with run:
                return self._remove_held(places, run, session)
        except (StoreError, OSError) as error:
            self._tell_that_it_stays(session, error)
            return False

    def _tell_that_it_stays(self, session: str, why: Exception) -> None:
        self._tell(f"The session {session} is not removed: {why}")

    def _remove_held(self, places: _Places, run: Directory, session: str) -> bool:
        lock = run.open(_LOCK, os.O_RDWR | os.O_CREAT)
        try:
            # While locked it cannot be resumed; it may have been resumed since the first check.
            return (
                try_flock(lock)
                and not self._has_new_words(run)
                and self._is_ours(places, run, session)
                and self._remove(places, run, session)
            )
        finally:
            os.close(lock)

    def _is_ours(self, places: _Places, run: Directory, session: str) -> bool:
        """Return True if we started the transcript and nobody has continued it since."""
        for project in places.of_session.get(session, ()):
            assert places.projects is not None
            if not places.projects.is_directory(project):
                return False  # behind a link
            with _opened(places.projects, project) as directory:
                status = directory.status(f"{session}.jsonl")
                if status is None:
                    continue
                if status.st_mtime >= self._before:
                    return False
                version = _written_by(directory, f"{session}.jsonl")
            if version is None or version != _begun_by(run):
                return False
        return True

    def _remove(self, places: _Places, run: Directory, session: str) -> bool:
        for project in places.of_session.get(session, ()):
            assert places.projects is not None
            with _opened(places.projects, project) as directory:
                if not self._remove_transcripts(directory, session):
                    return False
        for steps in (("tasks",), ("shoal", "tasks")):
            boards = found_inside(self._home, *steps)
            if boards is not None:
                with boards:
                    if not self._gone(boards, session):
                        return False
        rest = (name for name in run.names() if name not in (_JOURNAL, _LOCK))
        return self._gone(run, *rest, _JOURNAL, _LOCK) and self._gone(places.runs, session)

    def _remove_transcripts(self, project: Directory, session: str) -> bool:
        torn = [name for name in project.names() if name.startswith(f"{session}.jsonl.torn-")]
        if not self._gone(project, f"{session}.jsonl", *torn):
            return False
        if not project.is_directory(session):
            return True
        with _opened(project, session) as own:
            if not self._gone(own, "subagents"):
                return False
        with suppress(OSError):  # another program has something in it
            os.rmdir(session, dir_fd=project.fd)
        return True

    def _gone(self, directory: Directory, *names: str) -> bool:
        """Remove the entries in this order; stop at the first failure."""
        for name in names:
            if not directory.remove_tree(name, go_on=self._go_on):
                if self._go_on():
                    self._tell(f"{directory.path / name} cannot be removed.")
                return False
        return True


def _projects_of(projects: Directory) -> dict[str, list[str]]:
    """Return the projects of each session, including linked projects, which are not removed."""
    found: dict[str, list[str]] = {}
    for project in projects.names():
        try:
            names = os.listdir(projects.path / project)  # noqa: PTH208 - thousands of names
        except (NotADirectoryError, FileNotFoundError):
            continue
        except OSError as error:
            told = f"No session is removed: {projects.path / project} cannot be read: {error.strerror}."
            raise StoreError(told, path=projects.path / project) from error
        for session in {name.partition(".jsonl")[0] for name in names}:
            if is_uuid(session):
                found.setdefault(session, []).append(project)
    return found


def _opened(above: Directory, name: str) -> Directory:
    """Open a directory that existed a moment ago; raise `StoreError` if it is gone."""
    found = above.existing(name)
    if found is None:
        raise StoreError(f"{above.path / name} was removed meanwhile.", path=above.path / name)
    return found


def _written_by(directory: Directory, transcript: str) -> str | None:
    """Return the version that wrote the first line; None if the line is not in our format."""
    found = _FIRST_LINE.match(_beginning(directory, transcript))
    return None if found is None else found[1].decode(errors="replace")


def _begun_by(run: Directory) -> str | None:
    """Return the version of Shoal that started the run."""
    for line in _beginning(run, _JOURNAL).split(b"\n"):
        try:
            _, event = read_event(line)
        except ValueError:
            continue
        if isinstance(event, SessionStarted):
            return event.version
    return None


def _beginning(directory: Directory, name: str) -> bytes:
    try:
        fd = directory.open(name, os.O_RDONLY)
    except (FileNotFoundError, StoreError):
        return b""
    try:
        return os.pread(fd, _BEGINNING, 0)
    finally:
        os.close(fd)
