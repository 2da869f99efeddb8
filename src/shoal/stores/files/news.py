"""Kernel events for the changed files of an open directory."""

from __future__ import annotations

from typing import Any

from shoal.stores.files.inotify import Notices, notices_of


def news_of(directory: int) -> Notices | None:
    """Watch an open directory for files that are written, moved or removed."""
    return notices_of(f"/proc/self/fd/{directory}", _changes)


def _changes(flags: Any) -> Any:
    # Not MODIFY: a program that writes in place is reported when it has finished.
    moved = flags.MOVED_TO | flags.MOVED_FROM
    return flags.CLOSE_WRITE | flags.CREATE | moved | flags.DELETE | flags.ONLYDIR
