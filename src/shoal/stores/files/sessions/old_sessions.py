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

from shoal.core.errors import StateFileError
from shoal.core.events import SessionStarted
from shoal.core.ids import is_uuid
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.home.home_directories import open_existing_home_subdirectory
from shoal.stores.files.locks.flocks import try_flock
from shoal.wire.journal_codec import parse_journal_line

_JOURNAL, _LOCK = "journal.jsonl", "lock"
_FIRST_LINE = re.compile(
    rb'\{"parentUuid":null,(?:"uuid":"[^"\\]*",)?"isSidechain":false,"userType":"external","cwd":"(?:[^"\\]|\\.)*",'
    rb'"sessionId":"[0-9a-fA-F-]+","version":"([^"\\]+)"'
)
_HEAD_SIZE = 1 << 20
"""Number of bytes searched at the start of a file."""


class _HomeSessionDirectories(Struct, frozen=True):
    runs: DirectoryHandle
    projects: DirectoryHandle | None
    projects_by_session: dict[str, list[str]]
    """Projects that have files of a session."""


class OldSessionRemover:
    """Removes sessions whose last event is older than the Unix time `cutoff`; reports failed removals."""

    def __init__(
        self,
        home: Path,
        cutoff: float,
        should_continue: Callable[[], bool],
        report_problem: Callable[[str], None],
    ) -> None:
        self._home = home
        self._before = cutoff
        self._should_continue = should_continue
        self._report_problem = report_problem

    def remove_old_sessions(self, kept_sessions: set[str]) -> Iterator[str]:
        """Remove old sessions except `kept_sessions` and yield each.

        Raises `StateFileError` if it cannot decide what may be removed.
        """
        runs = open_existing_home_subdirectory(self._home, "shoal", "runs")
        if runs is None:
            return
        with runs:
            old = [name for name in sorted(runs.list_names()) if is_uuid(name) and name not in kept_sessions]
            old = [
                name
                for name in old
                if self._should_continue() and self._is_session_old_or_report_failure(runs, name)
            ]
            if not old:
                return
            projects = open_existing_home_subdirectory(self._home, "projects")
            directories = _HomeSessionDirectories(
                runs, projects, {} if projects is None else _map_sessions_to_projects(projects)
            )
            try:
                for session in old:
                    if self._should_continue() and self._try_remove_session(directories, session):
                        yield session
            finally:
                if projects is not None:
                    projects.close()

    def _is_session_old_or_report_failure(self, runs: DirectoryHandle, session: str) -> bool:
        try:
            return self._is_session_old(runs, session)
        except (StateFileError, OSError) as error:  # for example of another user
            self._report_removal_failure(session, error)
            return False

    def _is_session_old(self, runs: DirectoryHandle, session: str) -> bool:
        run = runs.open_existing(session) if runs.is_directory(session) else None
        if run is None:
            return False
        with run:
            # The journal's time if there is one: removing files changes the time of the directory.
            status = run.get_entry_stat(_JOURNAL) or os.fstat(run.fd)
        return status.st_mtime < self._before

    def _has_new_journal_events(self, run: DirectoryHandle) -> bool:
        """Return True if the journal is new; the directory has changed with the creation of the lock."""
        status = run.get_entry_stat(_JOURNAL)
        return status is not None and status.st_mtime >= self._before

    def _try_remove_session(self, directories: _HomeSessionDirectories, session: str) -> bool:
        try:
            run = directories.runs.open_existing(session)
            if run is None:
                return False
            with run:
                return self._lock_and_remove_session(directories, run, session)
        except (StateFileError, OSError) as error:
            self._report_removal_failure(session, error)
            return False

    def _report_removal_failure(self, session: str, error: Exception) -> None:
        self._report_problem(f"The session {session} was not removed: {error}")

    def _lock_and_remove_session(
        self, directories: _HomeSessionDirectories, run: DirectoryHandle, session: str
    ) -> bool:
        lock = run.open_file(_LOCK, os.O_RDWR | os.O_CREAT)
        try:
            # While locked it cannot be resumed; it may have been resumed since the first check.
            return (
                try_flock(lock)
                and not self._has_new_journal_events(run)
                and self._is_unmodified_shoal_session(directories, run, session)
                and self._remove_session_files(directories, run, session)
            )
        finally:
            os.close(lock)

    def _is_unmodified_shoal_session(
        self, directories: _HomeSessionDirectories, run: DirectoryHandle, session: str
    ) -> bool:
        """Return True if we started the transcript and nobody has continued it since."""
        for project in directories.projects_by_session.get(session, ()):
            assert directories.projects is not None
            if not directories.projects.is_directory(project):
                return False  # behind a link
            with _open_existing_subdirectory(directories.projects, project) as directory:
                status = directory.get_entry_stat(f"{session}.jsonl")
                if status is None:
                    continue
                if status.st_mtime >= self._before:
                    return False
                version = _read_transcript_version(directory, f"{session}.jsonl")
            if version is None or version != _read_run_version(run):
                return False
        return True

    def _remove_session_files(
        self, directories: _HomeSessionDirectories, run: DirectoryHandle, session: str
    ) -> bool:
        for project in directories.projects_by_session.get(session, ()):
            assert directories.projects is not None
            with _open_existing_subdirectory(directories.projects, project) as directory:
                if not self._remove_transcripts(directory, session):
                    return False
        for parts in (("tasks",), ("shoal", "tasks")):
            boards = open_existing_home_subdirectory(self._home, *parts)
            if boards is not None:
                with boards:
                    if not self._remove_directory_entries(boards, session):
                        return False
        remaining = (name for name in run.list_names() if name not in (_JOURNAL, _LOCK))
        return self._remove_directory_entries(
            run, *remaining, _JOURNAL, _LOCK
        ) and self._remove_directory_entries(directories.runs, session)

    def _remove_transcripts(self, project: DirectoryHandle, session: str) -> bool:
        torn_files = [name for name in project.list_names() if name.startswith(f"{session}.jsonl.torn-")]
        if not self._remove_directory_entries(project, f"{session}.jsonl", *torn_files):
            return False
        if not project.is_directory(session):
            return True
        with _open_existing_subdirectory(project, session) as session_directory:
            if not self._remove_directory_entries(session_directory, "subagents"):
                return False
        with suppress(OSError):  # another program has something in it
            os.rmdir(session, dir_fd=project.fd)
        return True

    def _remove_directory_entries(self, directory: DirectoryHandle, *names: str) -> bool:
        """Remove the entries in this order; stop at the first failure."""
        for name in names:
            if not directory.remove_tree(name, should_continue=self._should_continue):
                if self._should_continue():
                    self._report_problem(f"Cannot remove {directory.path / name}.")
                return False
        return True


def _map_sessions_to_projects(projects: DirectoryHandle) -> dict[str, list[str]]:
    """Return the projects of each session, including linked projects, which are not removed."""
    found: dict[str, list[str]] = {}
    for project in projects.list_names():
        try:
            names = os.listdir(projects.path / project)  # noqa: PTH208 - thousands of names
        except (NotADirectoryError, FileNotFoundError):
            continue
        except OSError as error:
            message = (
                f"No session is removed because {projects.path / project} cannot be read: {error.strerror}."
            )
            raise StateFileError(message, path=projects.path / project) from error
        for session in {name.partition(".jsonl")[0] for name in names}:
            if is_uuid(session):
                found.setdefault(session, []).append(project)
    return found


def _open_existing_subdirectory(parent: DirectoryHandle, name: str) -> DirectoryHandle:
    """Open a directory that existed a moment ago; raise `StateFileError` if it is gone."""
    found = parent.open_existing(name)
    if found is None:
        raise StateFileError(f"{parent.path / name} has already been removed.", path=parent.path / name)
    return found


def _read_transcript_version(directory: DirectoryHandle, transcript: str) -> str | None:
    """Return the version that wrote the first line; None if the line is not in our format."""
    found = _FIRST_LINE.match(_read_file_head(directory, transcript))
    return None if found is None else found[1].decode(errors="replace")


def _read_run_version(run: DirectoryHandle) -> str | None:
    """Return the version of Shoal that started the run."""
    for line in _read_file_head(run, _JOURNAL).split(b"\n"):
        try:
            _, event = parse_journal_line(line)
        except ValueError:
            continue
        if isinstance(event, SessionStarted):
            return event.version
    return None


def _read_file_head(directory: DirectoryHandle, name: str) -> bytes:
    try:
        fd = directory.open_file(name, os.O_RDONLY)
    except (FileNotFoundError, StateFileError):
        return b""
    try:
        return os.pread(fd, _HEAD_SIZE, 0)
    finally:
        os.close(fd)
