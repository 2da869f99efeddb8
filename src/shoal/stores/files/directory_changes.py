"""Kernel events for the changed files of an open directory."""

from __future__ import annotations

from typing import Any

from shoal.stores.files.inotify import InotifyDirectoryWatch, watch_directory_with_inotify


def watch_directory_fd(directory: int) -> InotifyDirectoryWatch | None:
    """Watch an open directory for files that are written, moved or removed."""
    return watch_directory_with_inotify(f"/proc/self/fd/{directory}", _select_inotify_change_flags)


def _select_inotify_change_flags(flags: Any) -> Any:
    # Not MODIFY: a program that writes in place is reported when it has finished.
    moved = flags.MOVED_TO | flags.MOVED_FROM
    return flags.CLOSE_WRITE | flags.CREATE | moved | flags.DELETE | flags.ONLYDIR
