"""Cleanup of old files in a home: ended sessions, debug logs and shell snapshots.

Only files of Shoal are removed: other programs share the home. Sessions that are running or that lead an
existing team are not touched, and no link is followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId, is_uuid
from shoal.core.names import TeamName
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.home.home_directories import open_existing_home_subdirectory
from shoal.stores.files.home.home_paths import make_private_directory
from shoal.stores.files.locks.flocks import try_flock
from shoal.stores.files.locks.pid_locks import is_session_running
from shoal.stores.files.sessions.old_sessions import OldSessionRemover
from shoal.stores.files.teams.file_roster_store import ROSTER_FILE
from shoal.wire.foreign_json import InvalidFileContent
from shoal.wire.roster_codec import parse_team_roster

MIN_AGE = 3600.0
"""Minimum age in seconds of removed files, whatever the setting: a session may be just starting."""
_DAY = 24 * 3600.0
_CLEANUP_MARKER = "shoal/swept"
"""Its modification time is the time of the last complete cleanup."""
_SNAPSHOT = re.compile(r"snapshot-(?:bash|zsh)-[0-9]+-[0-9a-f]{8}(?:-[0-9a-f]{8})?\.sh(\.part)?")
_SNAPSHOT_END = b"# whole\n"
_LOG_LINE = re.compile(rb'[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z \{"type":"')


class HomeCleanupResult(Struct, frozen=True, kw_only=True):
    sessions: tuple[SessionId, ...]
    logs: int
    snapshots: int
    problems: tuple[str, ...]
    """Failed removals, as sentences."""
    finished: bool
    """False if it was stopped before everything was checked."""


def is_home_cleanup_due(home: Path, *, now: int) -> bool:
    """Return True if a day has passed since the last complete cleanup, because a scan can take long."""
    try:
        age = now / 1000 - (home / _CLEANUP_MARKER).stat().st_mtime
    except OSError:
        return True
    return not 0 <= age < _DAY


def mark_home_cleanup_done(home: Path, *, now: int) -> None:
    """Record that a cleanup completed. If that fails, the next session cleans up again, which is harmless."""
    with suppress(OSError, StateFileError):
        make_private_directory(home / "shoal")
        (home / _CLEANUP_MARKER).touch(mode=0o600)
        os.utime(home / _CLEANUP_MARKER, (now / 1000, now / 1000), follow_symlinks=False)


def remove_old_home_files(
    home: Path, *, days: int, now: int, should_continue: Callable[[], bool] = lambda: True
) -> HomeCleanupResult:
    """Remove files that have been unchanged for this many days; `now` is in Unix milliseconds.

    `should_continue` is called before each removal. With 0 days, files unchanged for an hour are removed.
    """
    cutoff = now / 1000 - max(days * _DAY, MIN_AGE)
    problems: list[str] = []

    def collect_removed(remove: Callable[[], Iterator[str]]) -> list[str]:
        removed: list[str] = []
        try:
            removed.extend(remove())
        except (StateFileError, OSError) as error:
            problems.append(str(error))
        return removed

    files = _OldLogAndSnapshotRemover(home, cutoff, should_continue)
    sessions = collect_removed(
        lambda: OldSessionRemover(home, cutoff, should_continue, problems.append).remove_old_sessions(
            _find_team_names_and_lead_sessions(home)
        )
    )
    logs, snapshots = (
        collect_removed(lambda: files.remove_debug_logs(_find_team_names_and_lead_sessions(home))),
        collect_removed(files.remove_shell_snapshots),
    )
    return HomeCleanupResult(
        sessions=tuple(map(SessionId, sessions)),
        logs=len(logs),
        snapshots=len(snapshots),
        problems=tuple(dict.fromkeys(problems)),
        finished=should_continue(),
    )


def _find_team_names_and_lead_sessions(home: Path) -> set[str]:
    """Return the sessions that lead existing teams, and the team names, which boards may have too.

    Raises `StateFileError` if a roster cannot be read.
    """
    found: set[str] = set()
    teams = open_existing_home_subdirectory(home, "teams")
    if teams is None:
        return found
    with teams:
        for name in teams.list_names():
            content = _read_roster_bytes(teams, name)
            roster = None if content is None else parse_team_roster(content, TeamName(name))
            if isinstance(roster, InvalidFileContent):
                message = (
                    f"No session is removed because the roster of team {name} cannot be read: "
                    f"{roster.reason}."
                )
                raise StateFileError(message, path=teams.path / name)
            if roster is not None:
                found |= {name, roster.team.lead_session_id}
    return found


def _read_roster_bytes(teams: DirectoryHandle, name: str) -> bytes | None:
    team = teams.open_existing(name) if teams.is_directory(name) else None
    if team is None:
        return None
    with team:
        return team.read_file(ROSTER_FILE)


class _OldLogAndSnapshotRemover:
    """Removes old files that do not depend on a stored session."""

    def __init__(self, home: Path, cutoff: float, should_continue: Callable[[], bool]) -> None:
        self._home = home
        self._before = cutoff
        self._should_continue = should_continue

    def remove_debug_logs(self, kept_sessions: set[str]) -> Iterator[str]:
        """Remove old debug logs, except those of kept or running sessions."""
        directory = open_existing_home_subdirectory(self._home, "debug")
        if directory is None:
            return
        with directory:
            for name in sorted(directory.list_names()):
                session = name.removesuffix(".txt")
                if session == name or not is_uuid(session) or session in kept_sessions:
                    continue
                if not is_session_running(self._home, SessionId(session)) and self._remove_file_if_old(
                    directory, name, _is_debug_log
                ):
                    yield name
                    _remove_latest_log_link(directory, name)

    def remove_shell_snapshots(self) -> Iterator[str]:
        directory = open_existing_home_subdirectory(self._home, "shell-snapshots")
        if directory is None:
            return
        with directory:
            for name in sorted(directory.list_names()):
                found = _SNAPSHOT.fullmatch(name)
                if found is None:
                    continue
                if self._remove_file_if_old(
                    directory,
                    name,
                    _accept_partial_shell_snapshot if found[1] else _is_complete_shell_snapshot,
                ):
                    yield name

    def _remove_file_if_old(
        self, directory: DirectoryHandle, name: str, is_ours: Callable[[int], bool]
    ) -> bool:
        """Remove the file if it is old, ours and unlocked; return True if it was removed."""
        status = directory.get_entry_stat(name)
        if status is None or status.st_mtime >= self._before or not self._should_continue():
            return False
        try:
            fd = directory.open_file(name, os.O_RDONLY)
        except (FileNotFoundError, StateFileError):
            return False  # removed meanwhile; or a link or a directory, so not ours
        try:
            return is_ours(fd) and try_flock(fd) and directory.remove_file(name)
        finally:
            os.close(fd)


def _is_debug_log(fd: int) -> bool:
    return _LOG_LINE.match(os.pread(fd, 64, 0)) is not None


def _is_complete_shell_snapshot(fd: int) -> bool:
    size = os.fstat(fd).st_size
    return os.pread(fd, len(_SNAPSHOT_END), max(0, size - len(_SNAPSHOT_END))) == _SNAPSHOT_END


def _accept_partial_shell_snapshot(_: int) -> bool:
    """Return True: only Shoal uses this file name."""
    return True


def _remove_latest_log_link(directory: DirectoryHandle, name: str) -> None:
    """Remove the link to the newest log if it points to this one."""
    try:
        if os.readlink("latest", dir_fd=directory.fd) == name:
            directory.remove_file("latest")
    except OSError:
        return
