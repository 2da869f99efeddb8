"""Locks that store the pid of their holder: one per session, and one per external member of a team."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.core.names import LEAD_NAME
from shoal.core.session_locks import describe_used_session
from shoal.stores.files.home.home_paths import (
    build_write_error,
    get_run_directory,
    make_private_directory,
    read_state_file,
)
from shoal.stores.files.locks.flocks import is_flocked, retry_flock

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES, _PAUSE = 3, 0.01
_MAX_REOPENS = 100
"""Maximum retries if the lock file is gone when locked: some file systems report that for every file."""


class _PidLock:
    """Lock held from its creation until `release`, with the pid of its holder in the file."""

    def __init__(self, path: Path, describe_conflict: Callable[[str], str]) -> None:
        """Take the lock; raise `StateFileError` with `describe_conflict` if another process holds it."""
        self.path = path
        self._fd: int | None = _acquire_pid_lock(path, describe_conflict)
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self.release()
            raise build_write_error(path, error) from error

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class SessionLock(_PidLock):
    def __init__(self, home: Path, session: SessionId) -> None:
        super().__init__(
            get_run_directory(home, session) / "lock",
            lambda holder: describe_used_session(session, holder),
        )

    def release_unused(self) -> None:
        """Release the lock of a session that never started; remove its directory if nothing else is in it."""
        with suppress(OSError):
            names = [entry.name for entry in self.path.parent.iterdir()]
            if self._fd is not None and names == [self.path.name]:
                self.path.unlink()
                self.path.parent.rmdir()
        self.release()


class ExternalMemberLock(_PidLock):
    """Lock of a team member that is a process of another program."""

    def __init__(self, home: Path, team: str, name: str) -> None:
        super().__init__(
            _get_external_member_lock_path(home, team, name),
            lambda holder: (
                f"Another client, served by {holder}, already uses the name {name} in the team {team}."
            ),
        )

    def release(self) -> None:
        """Release the lock and remove its file; otherwise every client name would leave one behind."""
        with suppress(OSError):
            if self._fd is not None and os.fstat(self._fd).st_nlink:
                self.path.unlink()
        super().release()


def _get_external_member_lock_path(home: Path, team: str, name: str) -> Path:
    return home / "shoal" / "mcp" / "seats" / f"{name}@{team}"


def is_session_running(home: Path, session: SessionId) -> bool:
    """Return True if a process runs this session now."""
    return _is_lock_held(get_run_directory(home, session) / "lock")


def is_external_lead_alive(home: Path, team: str) -> bool:
    """Return True if a client of the MCP server leads the team now."""
    return _is_lock_held(_get_external_member_lock_path(home, team, LEAD_NAME))


def is_pid_lock_free(path: Path) -> bool:
    """Return True if there is a lock file and no process holds its lock."""
    return _read_lock_state(path) is False


def _is_lock_held(path: Path) -> bool:
    return _read_lock_state(path) is True


def _read_lock_state(path: Path) -> bool | None:
    """Return whether a process holds the lock; None if there is no lock file, or it cannot be read."""
    with suppress(OSError):
        # Read-only: closing a file open for writing wakes all watchers of the directory, which call this.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return is_flocked(fd)
        finally:
            os.close(fd)
    return None


def find_session_pid(home: Path, session: SessionId) -> int | None:
    """Return the process that runs this session; None if there is none or it is not visible from here."""
    path = get_run_directory(home, session) / "lock"
    with suppress(OSError, ValueError):
        lock, pid = path.lstat(), int(read_state_file(path))
        # The pid alone may belong to another machine or container, and mean an unrelated process here.
        for fd_path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(fd_path.stat(), lock):
                    return pid
    return None


def _acquire_pid_lock(path: Path, describe_conflict: Callable[[str], str]) -> int:
    for _ in range(_MAX_REOPENS):
        fd = _open_lock_file(path)
        # More than once, because `is_session_running` holds the lock for an instant.
        acquired = retry_flock(fd, tries=_TRIES, pause=_PAUSE)
        if os.fstat(fd).st_nlink == 0:
            # Its holder removed the file: the next process would lock a different one.
            os.close(fd)
            continue
        if acquired:
            return fd
        pid = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        raise StateFileError(describe_conflict(f"process {pid}" if pid else "another process"), path=path)
    message = f"{path} disappears as soon as Shoal creates it. Choose another home with SHOAL_HOME=DIRECTORY."
    raise StateFileError(message, path=path)


def _open_lock_file(path: Path) -> int:
    make_private_directory(path.parent)
    try:
        return os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise build_write_error(path, error) from error
