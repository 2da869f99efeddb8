"""Temporary directories of programs, which the next command removes if a killed process left them."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARENT = Path("/tmp")  # noqa: S108 - mkdtemp makes a new directory in it
"""Not another directory for temporary files, because paths of sockets have at most 107 bytes."""
_PREFIX = "shoal-"
_OUTPUT = "locked-output.log"


class ProgramDirectory:
    """Directory of programs that this process starts. The file of their output is locked while one runs.

    The programs inherit the lock with their output, so it also holds if only they are left.
    """

    def __init__(self, kind: str, *, parent: Path = PARENT) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=parent))
        # Renamed once it is locked, so that nobody finds it without the lock.
        unlocked = self.path / f"{_OUTPUT}.new"
        self._file = unlocked.open("ab")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        unlocked.rename(self.path / _OUTPUT)

    @property
    def output(self) -> int:
        """Descriptor for the output of the programs."""
        return self._file.fileno()

    def read_output(self) -> str:
        try:
            return (self.path / _OUTPUT).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def read_last_output(self) -> str:
        return "\n".join(self.read_output().strip().splitlines()[-6:])

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._file.close()


def remove_abandoned_directories(parent: Path = PARENT) -> list[Path]:
    """Remove the directories of this user whose programs and process have ended; return their paths."""
    return [path for path in sorted(parent.glob(f"{_PREFIX}*")) if _remove_if_abandoned(path)]


def _remove_if_abandoned(path: Path) -> bool:
    try:
        with _open_own_output(path) as output:
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
            return not path.exists()
    except OSError:  # it is in use, is not such a directory, or belongs to somebody else
        return False


@contextmanager
def _open_own_output(path: Path) -> Iterator[int]:
    """Open the locked file of a directory that this user made. Links are not followed.

    Raises `OSError` if another user made it.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(path, flags | os.O_DIRECTORY)
    try:
        # Root gives the database's directory to another user, but never the file in it.
        if os.fstat(directory).st_uid != os.geteuid() and os.geteuid() != 0:
            raise PermissionError(path)
        output = os.open(_OUTPUT, flags | os.O_NONBLOCK, dir_fd=directory)
        try:
            found = os.fstat(output)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
                raise PermissionError(path)
            yield output
        finally:
            os.close(output)
    finally:
        os.close(directory)
