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

from shoal.core.errors import StoreError
from shoal.core.ids import SessionId, is_uuid
from shoal.core.names import TeamName
from shoal.stores.files.below_home import found_inside
from shoal.stores.files.flocks import try_flock
from shoal.stores.files.handles import Directory
from shoal.stores.files.locks import is_held
from shoal.stores.files.old_sessions import OldSessions
from shoal.stores.files.places import make_private
from shoal.stores.files.rosters import CONFIG
from shoal.wire.foreign import Invalid
from shoal.wire.roster import read_team

YOUNG = 3600.0
"""Minimum age in seconds of removed files, whatever the setting: a session may be just starting."""
_DAY = 24 * 3600.0
_MARK = "shoal/swept"
"""Its modification time is the time of the last complete cleanup."""
_SNAPSHOT = re.compile(r"snapshot-(?:bash|zsh)-[0-9]+-[0-9a-f]{8}\.sh(\.part)?")
_SNAPSHOT_END = b"# whole\n"
_LOG_LINE = re.compile(rb'[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z \{"type":"')


class Swept(Struct, frozen=True, kw_only=True):
    sessions: tuple[SessionId, ...]
    logs: int
    snapshots: int
    troubles: tuple[str, ...]
    """Failed removals, as sentences."""
    finished: bool
    """False if it was stopped before everything was checked."""


def is_due(home: Path, *, now: int) -> bool:
    """Return True if a day has passed since the last complete cleanup, because a scan can take long."""
    try:
        since = now / 1000 - (home / _MARK).stat().st_mtime
    except OSError:
        return True
    return not 0 <= since < _DAY


def mark(home: Path, *, now: int) -> None:
    """Record that a cleanup completed. If that fails, the next session cleans up again, which is harmless."""
    with suppress(OSError, StoreError):
        make_private(home / "shoal")
        (home / _MARK).touch(mode=0o600)
        os.utime(home / _MARK, (now / 1000, now / 1000), follow_symlinks=False)


def sweep(home: Path, *, days: int, now: int, go_on: Callable[[], bool] = lambda: True) -> Swept:
    """Remove files that are unchanged for this many days; `now` is in Unix milliseconds.

    `should_continue` is called before each removal. With 0 days, files unchanged for an hour are removed.
    """
    before = now / 1000 - max(days * _DAY, YOUNG)
    troubles: list[str] = []

    def counted(part: Callable[[], Iterator[str]]) -> list[str]:
        gone: list[str] = []
        try:
            gone.extend(part())
        except (StoreError, OSError) as error:
            troubles.append(str(error))
        return gone

    files = _OldFiles(home, before, go_on)
    sessions = counted(lambda: OldSessions(home, before, go_on, troubles.append).removed(_leading(home)))
    logs, snapshots = counted(lambda: files.logs(_leading(home))), counted(files.snapshots)
    return Swept(
        sessions=tuple(map(SessionId, sessions)),
        logs=len(logs),
        snapshots=len(snapshots),
        troubles=tuple(dict.fromkeys(troubles)),
        finished=go_on(),
    )


def _leading(home: Path) -> set[str]:
    """Return the sessions that lead existing teams, and the team names, which boards may have too.

    Raises `StoreError` if a roster cannot be read.
    """
    found: set[str] = set()
    teams = found_inside(home, "teams")
    if teams is None:
        return found
    with teams:
        for name in teams.names():
            content = _roster(teams, name)
            roster = None if content is None else read_team(content, TeamName(name))
            if isinstance(roster, Invalid):
                told = f"No session is removed: the roster of team {name} cannot be read: {roster.reason}."
                raise StoreError(told, path=teams.path / name)
            if roster is not None:
                found |= {name, roster.team.lead_session_id}
    return found


def _roster(teams: Directory, name: str) -> bytes | None:
    team = teams.existing(name) if teams.is_directory(name) else None
    if team is None:
        return None
    with team:
        return team.read(CONFIG)


class _OldFiles:
    """Removes old files that do not depend on a stored session."""

    def __init__(self, home: Path, before: float, go_on: Callable[[], bool]) -> None:
        self._home = home
        self._before = before
        self._go_on = go_on

    def logs(self, kept: set[str]) -> Iterator[str]:
        """Remove old debug logs, except those of kept or running sessions."""
        directory = found_inside(self._home, "debug")
        if directory is None:
            return
        with directory:
            for name in sorted(directory.names()):
                session = name.removesuffix(".txt")
                if session == name or not is_uuid(session) or session in kept:
                    continue
                if not is_held(self._home, SessionId(session)) and self._removed(directory, name, _is_log):
                    yield name
                    _forget_latest(directory, name)

    def snapshots(self) -> Iterator[str]:
        directory = found_inside(self._home, "shell-snapshots")
        if directory is None:
            return
        with directory:
            for name in sorted(directory.names()):
                found = _SNAPSHOT.fullmatch(name)
                if found is None:
                    continue
                if self._removed(directory, name, _is_half if found[1] else _is_snapshot):
                    yield name

    def _removed(self, directory: Directory, name: str, is_ours: Callable[[int], bool]) -> bool:
        """Remove the file if it is old, ours and unlocked; return True if it was removed."""
        status = directory.status(name)
        if status is None or status.st_mtime >= self._before or not self._go_on():
            return False
        try:
            fd = directory.open(name, os.O_RDONLY)
        except (FileNotFoundError, StoreError):
            return False  # removed meanwhile; or a link or a directory, so not ours
        try:
            return is_ours(fd) and try_flock(fd) and directory.remove(name)
        finally:
            os.close(fd)


def _is_log(fd: int) -> bool:
    return _LOG_LINE.match(os.pread(fd, 64, 0)) is not None


def _is_snapshot(fd: int) -> bool:
    size = os.fstat(fd).st_size
    return os.pread(fd, len(_SNAPSHOT_END), max(0, size - len(_SNAPSHOT_END))) == _SNAPSHOT_END


def _is_half(_: int) -> bool:
    """Return True: only Shoal uses this file name."""
    return True


def _forget_latest(directory: Directory, name: str) -> None:
    """Remove the link to the newest log if it points to this one."""
    try:
        if os.readlink("latest", dir_fd=directory.fd) == name:
            directory.remove("latest")
    except OSError:
        return
