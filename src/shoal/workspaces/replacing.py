"""Puts a file in place whole: a reader sees the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path

_numbers = itertools.count()
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})


def replace(
    path: Path, content: bytes, *, like: os.stat_result | None = None, mode: int | None = None
) -> None:
    """Put `content` in place of whatever is there, with the mode and owner of `like`, or `mode`."""
    temporary = _beside(path, content, like, mode)
    try:
        temporary.rename(path)
    except BaseException:
        _forget(temporary)
        raise


def create(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Put a new file in place; raises FileExistsError when one came to be there meanwhile."""
    temporary = _beside(path, content, None, mode)
    try:
        path.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        temporary.rename(path)
    finally:
        _forget(temporary)


def _beside(path: Path, content: bytes, like: os.stat_result | None, mode: int | None) -> Path:
    temporary, descriptor = _new_file(path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if like is not None:
                _take_after(descriptor, like)
            elif mode is not None:
                os.fchmod(descriptor, mode)
    except BaseException:
        _forget(temporary)
        raise
    return temporary


def _new_file(directory: Path) -> tuple[Path, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        # A short name of its own: beside a file whose name is as long as names may be, a longer one fails.
        temporary = directory / f".shoal-{os.getpid()}-{next(_numbers)}.tmp"
        try:
            return temporary, os.open(temporary, flags, 0o666)
        except FileExistsError:
            continue


def _take_after(descriptor: int, like: os.stat_result) -> None:
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, like.st_uid, like.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def _forget(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink()
