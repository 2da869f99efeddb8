"""One process per session: a lock that ends with its holder, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.core.ids import SessionId
from shoal.stores.files.places import make_private, run_directory, unwritable

_TRIES, _PAUSE = 3, 0.01


class SessionLock:
    """Held from its making until `release`."""

    def __init__(self, home: Path, session: SessionId) -> None:
        self.path = run_directory(home, session) / "lock"
        make_private(self.path.parent)
        try:
            self._fd: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(self.path, error) from error
        if not _taken(self._fd):
            pid = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            self.release()
            holder = f"process {pid}" if pid else "another process"
            raise StoreError(
                f"The session {session} is in use by {holder}. "
                "End it first, or go on in a copy with --fork-session.",
                path=self.path,
            )
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def leave_nothing(self) -> None:
        """For a new session that never began: the directory goes too, if the lock is all it holds."""
        if self._fd is not None and [entry.name for entry in self.path.parent.iterdir()] == [self.path.name]:
            with suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()
        self.release()


def is_held(home: Path, session: SessionId) -> bool:
    """Whether a process runs this session now."""
    with suppress(OSError):
        # Only to read: closing what was open for writing wakes all who watch the directory, and they ask.
        fd = os.open(run_directory(home, session) / "lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
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


def _taken(fd: int) -> bool:
    # More than once, because `is_held` holds the lock for the instant it looks.
    for attempt in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt + 1 < _TRIES:
                time.sleep(_PAUSE)
        else:
            return True
    return False
