"""Log of a child process: its output goes to a file and is quoted when it dies of an error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRACEBACK_HEADER = "Traceback (most recent call last):"
MAX_TAIL = 1 << 14
MAX_TRACEBACK_LINES = 6
"""Maximum lines of a traceback: the last location in the code, and the error."""


class ChildProcessLog:
    """One child's part of a file, to which earlier children may have written too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = 0

    @contextmanager
    def open_for_append(self) -> Iterator[int]:
        """Open a descriptor that appends to the file; only its owner can read it."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            self._start = os.fstat(fd).st_size
            yield fd
        finally:
            os.close(fd)

    def read_last_traceback(self) -> str:
        """Return the end of the last traceback, as the rest of a clause; empty if there is none."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                file.seek(max(self._start, os.fstat(file.fileno()).st_size - MAX_TAIL))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        _, found, rest = text.rpartition(TRACEBACK_HEADER)
        if not found:
            return ""
        return ":\n" + "\n".join(rest.strip("\n").splitlines()[-MAX_TRACEBACK_LINES:])
