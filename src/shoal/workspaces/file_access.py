"""Opens files for tools: regular files only, in full if possible, changed by one process at a time."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path
from typing import BinaryIO

from shoal.core.errors import WorkspaceError
from shoal.core.text.filenames import escape_filename
from shoal.workspaces.file_errors import build_file_error
from shoal.workspaces.workspace_texts import format_workspace_notice

MAX_WHOLE_SIZE = 256 * 1024 * 1024
"""Larger files are read in parts and not changed by tools."""
_LOCK_TRIES, _LOCK_PAUSE = 50, 0.005


def open_regular_file(real: Path) -> BinaryIO:
    """Open a regular file; a pipe or device is refused, because it could block forever."""
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        state = os.fstat(descriptor)
        if stat.S_ISREG(state.st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    except OSError as error:
        raise build_file_error("read", real, error) from None
    key = "is_directory" if stat.S_ISDIR(state.st_mode) else "not_a_file"
    raise WorkspaceError(format_workspace_notice(key, path=escape_filename(real)))


def open_locked_file(real: Path) -> BinaryIO:
    """Open a regular file while no other Shoal process is about to replace it.

    The lock is on the file to be replaced: it leaves nothing behind, and ends with its holder. Another
    program may hold it for its own reasons, so the wait is short; `replace_file` checks again.
    """
    tries_left = _LOCK_TRIES
    while True:
        file = open_regular_file(real)
        acquired = _try_flock_file(file)
        if not tries_left or (acquired and _is_path_still_same_file(real, file)):
            return file
        file.close()
        tries_left -= 1
        if not acquired:
            time.sleep(_LOCK_PAUSE)


def _try_flock_file(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _is_path_still_same_file(real: Path, file: BinaryIO) -> bool:
    """Return True if the path still refers to the open file."""
    try:
        return os.path.samestat(real.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


def read_whole_file(real: Path) -> tuple[bytes, os.stat_result]:
    with open_regular_file(real) as file:
        return read_whole_open_file(real, file)


def read_whole_open_file(real: Path, file: BinaryIO) -> tuple[bytes, os.stat_result]:
    state = os.fstat(file.fileno())
    if state.st_size > MAX_WHOLE_SIZE:
        raise WorkspaceError(
            format_workspace_notice(
                "large_file",
                path=escape_filename(real),
                size=f"{state.st_size:,}",
                maximum=f"{MAX_WHOLE_SIZE:,}",
            )
        )
    try:
        return file.read(), state
    except OSError as error:
        raise build_file_error("read", real, error) from None
