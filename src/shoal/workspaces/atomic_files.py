"""Atomic file writes: a reader sees the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import time
from pathlib import Path

from shoal.workspaces.workspace_texts import format_workspace_notice

_numbers = itertools.count()
_TEMPORARY = re.compile(r"\.shoal-([0-9]{1,9})-[0-9]+\.tmp")
_ABANDONED_AGE = 60.0
"""Age in seconds after which a temporary file is no longer being written."""
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})


class ConcurrentWriteError(OSError):
    """The file changed since it was read and is not replaced."""

    def __init__(self) -> None:
        super().__init__(format_workspace_notice("concurrent_write"))


def replace_file_atomically(
    path: Path, content: bytes, *, like: os.stat_result | None = None, mode: int | None = None
) -> None:
    """Replace whatever is at `path`, with `mode`; or only the file `like`, with its mode and owner.

    Raises `ConcurrentWriteError` if that file was changed or replaced.
    """
    temporary = _write_temporary_file(path, content, like, mode)
    try:
        if like is not None:
            _refuse_changed_file(path, like)
        temporary.rename(path)
    except BaseException:
        _remove_temporary_file(temporary)
        raise


def read_private_file(path: Path) -> bytes:
    """Read one of Shoal's files; raises OSError for a symbolic link, which could lead anywhere."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def create_new_file_atomically(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Create a new file; raises FileExistsError if one appeared meanwhile."""
    temporary = _write_temporary_file(path, content, None, mode)
    try:
        path.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.rename(path)
    finally:
        _remove_temporary_file(temporary)


def remove_abandoned_temporary_files(directory: Path) -> None:
    """Remove temporary files that killed processes left in the directory."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            found = _TEMPORARY.fullmatch(entry.name)
            if found is None or not entry.is_file(follow_symlinks=False):
                continue
            age = time.time() - entry.stat(follow_symlinks=False).st_mtime
            # Check both: a process in another container has a different pid, and a clock can be set.
            if age > _ABANDONED_AGE and not _is_process_alive(int(found[1])):
                _remove_temporary_file(Path(entry.path))


def _is_process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # belongs to another user
    return True


def _refuse_changed_file(path: Path, expected: os.stat_result) -> None:
    try:
        current = path.lstat()
    except FileNotFoundError:
        raise ConcurrentWriteError from None
    if _get_file_version(current) != _get_file_version(expected):
        raise ConcurrentWriteError


def _get_file_version(state: os.stat_result) -> tuple[int, ...]:
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)


def _write_temporary_file(path: Path, content: bytes, like: os.stat_result | None, mode: int | None) -> Path:
    temporary, descriptor = _create_temporary_file(path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if like is not None:
                _copy_owner_and_mode(descriptor, like)
            elif mode is not None:
                os.fchmod(descriptor, mode)
    except BaseException:
        _remove_temporary_file(temporary)
        raise
    return temporary


def _create_temporary_file(directory: Path) -> tuple[Path, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        # A short name: next to a file whose name has the maximum length, a longer one would fail.
        temporary = directory / f".shoal-{os.getpid()}-{next(_numbers)}.tmp"
        try:
            return temporary, os.open(temporary, flags, 0o666)
        except FileExistsError:
            continue


def _copy_owner_and_mode(descriptor: int, like: os.stat_result) -> None:
    current = os.fstat(descriptor)
    if (current.st_uid, current.st_gid) != (like.st_uid, like.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, like.st_uid, like.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def _remove_temporary_file(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink()
