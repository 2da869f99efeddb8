"""Invalid files that another program may still be writing: they are read again before they are judged."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Callable
from typing import TypeVar

from shoal.stores.files.access.directory_handle import DirectoryHandle

WRITE_GRACE = 1.0
"""Seconds after its last write during which an invalid file may still be in the middle of a write."""
_SHORTEST_WAIT = 0.13
"""Seconds for which any invalid file is read again: the times of a network file system may be wrong."""
_LONGEST_WAIT = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02

Content = TypeVar("Content")


async def read_settled_file(
    directory: DirectoryHandle, name: str, read: Callable[[], Content], is_invalid: Callable[[Content], bool]
) -> Content:
    """Read until the content is valid or nobody writes the file, and return the last content."""
    started_at, pause = time.monotonic(), _FIRST_PAUSE
    while is_invalid(content := read()):
        waited = time.monotonic() - started_at
        if waited >= _LONGEST_WAIT or (waited >= _SHORTEST_WAIT and not _may_be_in_a_write(directory, name)):
            break
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return content


def _may_be_in_a_write(directory: DirectoryHandle, name: str) -> bool:
    status = directory.get_entry_stat(name)
    if status is None or not stat.S_ISREG(status.st_mode):
        return False
    return time.time() - status.st_mtime < WRITE_GRACE
