"""Which files of a directory changed since one last asked, from the kernel where it tells."""

from __future__ import annotations

from typing import Any

from shoal.stores.files.inotify import Notices, notices_of


def news_of(directory: int) -> Notices | None:
    """Of the open directory, from now on: files that were written, moved or removed."""
    return notices_of(f"/proc/self/fd/{directory}", _changes)


def _changes(flags: Any) -> Any:
    # Not MODIFY: a program that writes in place is heard when it has finished.
    moved = flags.MOVED_TO | flags.MOVED_FROM
    return flags.CLOSE_WRITE | flags.CREATE | moved | flags.DELETE | flags.ONLYDIR
