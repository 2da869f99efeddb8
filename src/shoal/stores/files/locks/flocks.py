"""Kernel locks on open files: each is freed when its holder ends, however that happens."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.core.errors import StateFileError
from shoal.stores.files.home.home_paths import build_write_error, make_private_directory, open_private_file

_TRIES, _PAUSE = 100, 0.02


def try_flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def retry_flock(fd: int, *, tries: int, pause: float) -> bool:
    """Try the lock several times, with `pause` seconds between the attempts."""
    for attempt in range(tries):
        if attempt:
            time.sleep(pause)
        if try_flock(fd):
            return True
    return False


def is_flocked(fd: int) -> bool:
    """Return True if the file is locked. The check holds a shared lock briefly, so checks do not conflict."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


@contextmanager
def lock_file_for_update(path: Path) -> Iterator[None]:
    """Hold the lock next to the file, so that one process at a time reads and replaces it.

    Raises `StateFileError` if another process does not release the lock.
    """
    lock = path.with_suffix(".lock")
    # The file is flushed to the disk, so the name of a new directory must be too.
    make_private_directory(path.parent, durable=True)
    try:
        fd = open_private_file(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except OSError as error:
        raise build_write_error(lock, error) from error
    try:
        if not retry_flock(fd, tries=_TRIES, pause=_PAUSE):
            raise StateFileError(f"Another process holds the lock {lock}. Try again.", path=lock)
        yield
    finally:
        os.close(fd)
