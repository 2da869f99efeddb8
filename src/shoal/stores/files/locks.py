"""Locks that say who holds them: one process per session, and one per seat of another program in a team."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.core.ids import SessionId
from shoal.stores.files.flocks import flock_soon, is_flocked
from shoal.stores.files.places import make_private, run_directory, unwritable

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_TRIES, _PAUSE = 3, 0.01
_ANEW = 100
"""Times that a lock's file may be gone when it is locked: some file systems say so of every file."""


class _NamedLock:
    """Held from its making until `release`, with the pid of its holder in the file."""

    def __init__(self, path: Path, in_use: Callable[[str], str]) -> None:
        """Raises `StoreError` where another process has it, with what `in_use` says of that one."""
        self.path = path
        self._fd: int | None = _taken(path, in_use)
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self.release()
            raise unwritable(path, error) from error

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class SessionLock(_NamedLock):
    def __init__(self, home: Path, session: SessionId) -> None:
        super().__init__(
            run_directory(home, session) / "lock",
            lambda holder: (
                f"The session {session} is in use by {holder}. "
                "End it first, or go on in a copy with --fork-session."
            ),
        )

    def leave_nothing(self) -> None:
        """For a new session that never began: the directory goes too, if the lock is all it holds."""
        with suppress(OSError):
            there = [entry.name for entry in self.path.parent.iterdir()]
            if self._fd is not None and there == [self.path.name]:
                self.path.unlink()
                self.path.parent.rmdir()
        self.release()


class SeatLock(_NamedLock):
    """Of a member of a team that one process of another program is."""

    def __init__(self, home: Path, team: str, name: str) -> None:
        super().__init__(
            home / "shoal" / "mcp" / "seats" / f"{name}@{team}",
            lambda holder: f"{name} of the team {team} is another client already, served by {holder}.",
        )

    def release(self) -> None:
        """The file goes with it, or each name that a client ever had would leave one."""
        with suppress(OSError):
            if self._fd is not None and os.fstat(self._fd).st_nlink:
                self.path.unlink()
        super().release()


def is_held(home: Path, session: SessionId) -> bool:
    """Whether a process runs this session now."""
    with suppress(OSError):
        # Only to read: closing what was open for writing wakes all who watch the directory, and they ask.
        fd = os.open(run_directory(home, session) / "lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return is_flocked(fd)
        finally:
            os.close(fd)
    return False


def holder(home: Path, session: SessionId) -> int | None:
    """The process that runs this session now; None where none does, or none that can be seen from here."""
    path = run_directory(home, session) / "lock"
    with suppress(OSError, ValueError):
        lock, pid = path.stat(), int(path.read_text())
        # The number alone may be one of another machine, or of a container, and then means a stranger here.
        for opened in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(opened.stat(), lock):
                    return pid
    return None


def _taken(path: Path, in_use: Callable[[str], str]) -> int:
    for _ in range(_ANEW):
        fd = _opened(path)
        # More than once, because `is_held` holds the lock for the instant it looks.
        taken = flock_soon(fd, tries=_TRIES, pause=_PAUSE)
        if os.fstat(fd).st_nlink == 0:
            # Its holder took the file away: who comes next would lock another one.
            os.close(fd)
            continue
        if taken:
            return fd
        pid = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        raise StoreError(in_use(f"process {pid}" if pid else "another process"), path=path)
    told = f"{path} is taken away whenever it is made. Choose another home with SHOAL_HOME=DIRECTORY."
    raise StoreError(told, path=path)


def _opened(path: Path) -> int:
    make_private(path.parent)
    try:
        return os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise unwritable(path, error) from error
