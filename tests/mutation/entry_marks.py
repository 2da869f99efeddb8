"""Marks of the functions that were entered, shared by a worker of pytest and the programs its tests start.

A copy of this module is the module `shoal._entry_marks` of an instrumented tree: each function of Shoal sets
its byte first. The bytes are a mapped file, so a program that is killed has set its own, too.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

DIRECTORY = ""
COUNT = 0


def open_marks(path: str, count: int) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(fd, count)
    finally:
        os.close(fd)


def _iter_ancestors() -> Iterator[int]:
    """Iterate over this process and its ancestors: many programs of the tests get no environment."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - pathlib takes long to import
            pid = int(stat.read().rpartition(b")")[2].split()[1])


def _find_marks() -> mmap.mmap | bytearray:
    try:
        for pid in _iter_ancestors():
            try:
                return open_marks(f"{DIRECTORY}/{pid}.marks", COUNT)
            except FileNotFoundError:
                continue
        # A daemon is not a descendant any more.
        return open_marks(f"{DIRECTORY}/{os.environ['PYTEST_XDIST_WORKER']}.marks", COUNT)
    except (OSError, KeyError, ValueError):
        return bytearray(COUNT)


if COUNT:
    MARKS = _find_marks()
