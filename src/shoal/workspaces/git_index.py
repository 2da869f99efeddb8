"""Git's index: the files that it tracks, and marks that make git leave files in the checkout alone."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha1
from pathlib import Path

from msgspec import Struct

from shoal.workspaces.git_paths import find_git_directory

_EXTENDED = 0x4000
"""Bit of an entry's flags: two more bytes of flags follow."""
_SKIP_WORKTREE = 0x4000
"""Bit of the additional flags: the file is not in the checkout, whatever is there."""
_STAGE = 0x3000
"""Bits of an entry's flags: the side of a merge that it belongs to, 0 without a conflict."""
_DEVICE = slice(16, 20)
_MARK_ORIGIN = b"shol"
"""Device of an entry that Shoal marked. Git keeps the number, and ignores it when it looks for changes."""
_DROPPED_EXTENSIONS = frozenset({b"EOIE", b"IEOT"})
"""Positions of entries, which only make reading faster."""
_REFUSED_EXTENSIONS = frozenset({b"link", b"sdir"})
"""Entries in another file, and directories as entries."""
_CHECKSUM_SIZE = 20

INDEX_ERRORS = (OSError, ValueError, IndexError, struct.error)
"""Errors while an index is read. Commands can write anything there."""


class IndexEntry(Struct, frozen=True):
    """Entry of an index. `version` identifies the recorded content; `is_skipped` is git's skip-worktree."""

    name: bytes
    version: bytes
    is_skipped: bool
    is_skipped_by_shoal: bool
    is_unmerged: bool
    start: int
    end: int
    has_more_flags: bool


def read_index(index: Path) -> tuple[bytes, os.stat_result]:
    """Return the content of an index; a link or a pipe that a command put there is refused."""
    handle = os.open(index, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("the index is not a file")
        return file.read(), status


def list_tracked_paths(paths: Iterable[Path]) -> list[Path]:
    """Return those of the paths that git tracks, or contain a tracked file, or may do so."""
    return [path for path in paths if (found := find_git_directory(path)) and is_tracked(path, *found)]


def is_tracked(path: Path, git_directory: Path, top: Path) -> bool:
    """Return True if the index has the file or a file in the directory, or cannot be understood."""
    try:
        status = (git_directory / "index").stat()
    except OSError:
        return False
    return _is_in_index(
        str(git_directory / "index"), os.fsencode(path.relative_to(top)), status.st_mtime_ns, status.st_size
    )


@lru_cache(maxsize=256)
def _is_in_index(index: str, name: bytes, _mtime: int, _size: int) -> bool:
    try:
        content = read_index(Path(index))[0]
        # The name of a directory in a sparse index ends with a slash.
        return any(
            each.name == name
            or each.name.startswith(name + b"/")
            or (each.name[-1:] == b"/" and name.startswith(each.name))
            for each in iter_index_entries(content)
        )
    except INDEX_ERRORS:
        return True


def list_entries_below(content: bytes, names: Sequence[bytes]) -> list[IndexEntry]:
    """Return the entries of the files with these names, and of files in directories with these names."""
    return [
        entry
        for entry in iter_index_entries(content)
        if any(entry.name == name or entry.name.startswith(name + b"/") for name in names)
    ]


def list_skipped_names(content: bytes) -> list[bytes]:
    """Return the names of the entries that have the skip-worktree mark."""
    return [entry.name for entry in iter_index_entries(content) if entry.is_skipped]


def check_index_can_be_marked(content: bytes) -> None:
    """Raise `ValueError` if the format is not supported."""
    mark_entries(content, {})


def mark_entries(content: bytes, marks: dict[bytes, bool], device: int = 0) -> bytes:
    """Return the index with the skip-worktree mark of these entries set or removed.

    `device` is the number of the device that an entry without a mark gets again.
    """
    version = struct.unpack_from(">L", content, 4)[0]
    parts: list[bytes] = []
    position, size = 12, 0
    for entry in iter_index_entries(content):
        raw = content[entry.start : entry.end]
        is_skipped = marks.get(entry.name, entry.is_skipped)
        # An entry in the middle of a merge has a stage, and git looks at its file anyway.
        if is_skipped != entry.is_skipped and not entry.is_unmerged:
            # Git knows nothing about the file of an entry without times.
            known_device = device & 0xFFFFFFFF if any(raw[: _DEVICE.start]) else 0
            number = _MARK_ORIGIN if is_skipped else struct.pack(">L", known_device)
            raw = raw[: _DEVICE.start] + number + raw[_DEVICE.stop :]
            raw = _mark_entry(raw, entry, is_skipped=is_skipped, is_padded=version < 4)
        parts.append(raw)
        size += len(raw)
        position = entry.end
    header = struct.pack(">4sLL", b"DIRC", max(version, 3), struct.unpack_from(">L", content, 8)[0])
    body = b"".join((header, *parts, *_iter_kept_extensions(content, position)))
    is_unchecked = content[-_CHECKSUM_SIZE:] == bytes(_CHECKSUM_SIZE)  # as with index.skipHash
    return body + (bytes(_CHECKSUM_SIZE) if is_unchecked else sha1(body, usedforsecurity=False).digest())


def _mark_entry(raw: bytes, entry: IndexEntry, *, is_skipped: bool, is_padded: bool) -> bytes:
    """Set or remove the mark in the bytes of an entry, which get longer if it has no additional flags yet."""
    flags = _get_flags(raw, 0)
    more = struct.unpack_from(">H", raw, 62)[0] if entry.has_more_flags else 0
    more = more | _SKIP_WORKTREE if is_skipped else more & ~_SKIP_WORKTREE
    name = raw[64 if entry.has_more_flags else 62 :]
    marked = raw[:60] + struct.pack(">HH", flags | _EXTENDED, more) + name
    if not is_padded:
        return marked
    marked = marked.rstrip(b"\0")
    return marked + bytes(8 - len(marked) % 8)


def _iter_kept_extensions(content: bytes, position: int) -> Iterator[bytes]:
    end = len(content) - _CHECKSUM_SIZE
    while position < end:
        kind, size = struct.unpack_from(">4sL", content, position)
        following = position + 8 + size
        if kind in _REFUSED_EXTENSIONS or following > end:
            raise ValueError("an index with an extension that is not supported")
        if kind not in _DROPPED_EXTENSIONS:
            yield content[position:following]
        position = following


def iter_index_entries(content: bytes) -> Iterator[IndexEntry]:
    """Yield the entries of an index with SHA-1 object ids. Raises `ValueError` for another format."""
    signature, version, count = struct.unpack_from(">4sLL", content)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index")
    position, name = 12, b""
    for _ in range(count):
        flags = _get_flags(content, position)
        has_more_flags = bool(flags & _EXTENDED)
        start = position + (64 if has_more_flags else 62)
        more = struct.unpack_from(">H", content, position + 62)[0] if has_more_flags else 0
        kept = b""
        if version == 4:  # a name without the part that it shares with the one before it
            removed, start = _read_offset(content, start)
            kept = name[: len(name) - removed]
        end = content.index(b"\0", start)
        name = kept + content[start:end]
        if flags & 0xFFF not in (len(name), 0xFFF):
            raise ValueError("not an index with SHA-1 object ids")
        following = end + 1 if version == 4 else position + (end - position) // 8 * 8 + 8
        is_skipped = bool(more & _SKIP_WORKTREE)
        yield IndexEntry(
            name=name,
            version=content[position + 24 : position + 28] + content[position + 40 : position + 60],
            is_skipped=is_skipped,
            is_skipped_by_shoal=is_skipped and content[position + 16 : position + 20] == _MARK_ORIGIN,
            is_unmerged=bool(flags & _STAGE),
            start=position,
            end=following,
            has_more_flags=has_more_flags,
        )
        position = following
    if content[position : position + 4] == b"link":
        raise ValueError("a split index")


def _get_flags(content: bytes, position: int) -> int:
    flags: int = struct.unpack_from(">H", content, position + 60)[0]
    return flags


def _read_offset(content: bytes, position: int) -> tuple[int, int]:
    byte = content[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        byte = content[position]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, position + 1
