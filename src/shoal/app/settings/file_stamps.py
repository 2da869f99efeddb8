"""File stamps, which show whether a file has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from itertools import repeat

from msgspec import Struct

_TICK_NS = 100_000_000
"""Nanoseconds within which a second change may have the same timestamp."""


class FileStamp(Struct, frozen=True):
    """Identity and version of a file. `is_settled` is False if the next change might not alter the stamp."""

    stat_fields: tuple[int, ...] = ()
    is_settled: bool = True


def stamp_file(path: str) -> FileStamp:
    # The clock is read first: a later change is younger than the tick.
    now = time.time_ns()
    stat_fields = _read_stat_fields(path)
    return FileStamp(stat_fields, is_settled=not stat_fields or now - max(stat_fields[:2]) > _TICK_NS)


class FileStampSet:
    """Stamps of several files, most of which usually do not exist."""

    def __init__(self, stamps: Mapping[str, FileStamp]) -> None:
        self.stamps = stamps
        missing = (_find_first_missing(path) for path, stamp in stamps.items() if not stamp.stat_fields)
        # Bytes, which need no encoding at each check; once for all files in a directory that does not exist.
        self._missing = tuple(dict.fromkeys(map(os.fsencode, missing)))
        self._existing = tuple((path, stamp) for path, stamp in stamps.items() if stamp.stat_fields)

    def are_files_unchanged(self) -> bool:
        # Runs before every call that changes something, so it takes no Python frame per missing file.
        if any(map(os.access, self._missing, repeat(os.F_OK))):
            return False
        return not self._existing or all(is_file_unchanged(path, stamp) for path, stamp in self._existing)


def _find_first_missing(path: str) -> str:
    """Return the path or its topmost missing directory: as long as that is missing, so is the path."""
    above = os.path.dirname(path)  # noqa: PTH120 - see _read_stat_fields
    while above and above != path and not os.access(above, os.F_OK):
        path, above = above, os.path.dirname(above)  # noqa: PTH120
    return path


def stamp_files(paths: Iterable[str]) -> FileStampSet:
    return FileStampSet({path: stamp_file(path) for path in paths})


def is_file_unchanged(path: str, stamp: FileStamp) -> bool:
    if not stamp.stat_fields:
        # Most of these files do not exist, and this check costs half as much as an exception.
        return not os.access(path, os.F_OK)
    return stamp.is_settled and _read_stat_fields(path) == stamp.stat_fields


def _read_stat_fields(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)  # noqa: PTH116 - before every call that changes something: pathlib doubles the cost
    except OSError:
        return ()
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev)
