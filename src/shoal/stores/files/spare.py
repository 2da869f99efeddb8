"""A directory that is moved to where a lock is to stand, and back: cheaper than to make and remove one."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from typing import Any

from shoal.stores.files.handles import Directory

_NO_REPLACE = 1


class Spare:
    """An empty directory of ours. Used by one process at a time: who holds the flock beside it."""

    __slots__ = ("_directory", "_name")

    def __init__(self, directory: Directory, name: str) -> None:
        self._directory = directory
        self._name = name

    def move_to(self, place: Directory, name: str) -> bool | None:
        """Whether it stands there now, freshly dated; False where the name is taken, None where it cannot."""
        rename = _exclusive_rename()
        if rename is None:
            return None
        try:
            os.utime(self._name, dir_fd=self._directory.fd, follow_symlinks=False)
        except FileNotFoundError:
            os.mkdir(self._name, 0o700, dir_fd=self._directory.fd)
        except OSError:
            return None
        names = (os.fsencode(self._name), os.fsencode(name))
        if rename(self._directory.fd, names[0], place.fd, names[1], _NO_REPLACE) == 0:
            return True
        return False if ctypes.get_errno() == errno.EEXIST else None

    def move_back(self, place: Directory, name: str) -> None:
        """Raises OSError."""
        os.rename(name, self._name, src_dir_fd=place.fd, dst_dir_fd=self._directory.fd)


@cache
def _exclusive_rename() -> Any:
    """The system's way to rename without replacing, or None where it has none."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
