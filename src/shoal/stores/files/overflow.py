"""Overflow of a full inbox: an append-only file and the position up to which it was moved into the inbox.

Moving takes three writes: the *intent* (start, end and first message), the rename of the inbox, the new
position. After a crash, recovery finds an intent without its end and checks if the inbox holds that first
message: if so, the rename happened and the position advances; otherwise nothing happened. All of it happens
under our flock.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from shoal.stores.files.handles import Directory, read_from
from shoal.stores.files.lines import append_lines, read_lines, whole_size
from shoal.stores.files.places import unwritable

_STATE = 96
"""Fixed size of the state file in bytes."""
_CHUNK = 1 << 16
_WORTH_SHRINKING = 4 << 20


class _State(Struct, frozen=True):
    """The position is valid for one file only, identified by its inode: a shrunk file starts at 0."""

    inode: int = 0
    moved: int = 0
    intended: int = 0
    first: str = "-"


class Moving(Struct, frozen=True):
    lines: tuple[bytes, ...]
    end: int


class Overflow:
    """Overflow of one inbox. Only `has_waiting` and `read_waiting` work without the lock and `recover`."""

    __slots__ = ("_directory", "_durable", "_file", "_size", "_state", "_state_file")

    def __init__(self, directory: Directory, owner: str, *, durable: bool = False) -> None:
        self._directory = directory
        self._file = f"{owner}.jsonl"
        self._state_file = f"{owner}.state"
        self._durable = durable
        self._state = _State()
        self._size = 0

    def waiting(self) -> bool:
        """Return True if messages wait; without the lock this is a guess to be checked again."""
        status = self._directory.status(self._file)
        return status is not None and self._state_for(status).moved < status.st_size

    def lines_behind(self) -> list[bytes]:
        """Return all waiting lines."""
        status = self._directory.status(self._file)
        if status is None:
            return []
        return list(read_lines(self._directory, self._file, self._state_for(status).moved))

    @property
    def interrupted(self) -> bool:
        """True if a process died while it moved mail: the inbox content shows how far it got."""
        status = self._directory.status(self._file)
        state = _State() if status is None else self._state_for(status)
        return state.intended != state.moved

    def append(self, lines: Sequence[bytes]) -> None:
        status = self._directory.status(self._file)
        if status is not None and status.st_size == 0:
            # It was emptied: an old position must not hide new messages.
            self._write_state(_State(inode=status.st_ino))
        append_lines(self._directory, self._file, lines, durable=self._durable)

    def recover(self, ids: Collection[str]) -> None:
        """Load the state and finish a move that a dead process left open; `ids` are in the inbox."""
        status = self._directory.status(self._file)
        if status is None or status.st_size == 0:
            self._state, self._size = _State(), 0
            return
        state = self._state_for(status)
        self._state, self._size = state, status.st_size
        if state.intended != state.moved:
            moved = state.intended if any(_short(each) == state.first for each in ids) else state.moved
            self._write_state(_State(inode=state.inode, moved=moved, intended=moved))

    def next_lines(self, most: int, most_bytes: int) -> Moving:
        """Return the oldest lines that fit; the first one always does."""
        if self._state.moved >= self._size or most == 0:
            return Moving((), self._state.moved)
        fd = self._directory.open(self._file, os.O_RDWR)
        try:
            self._size = whole_size(fd)
            lines: list[bytes] = []
            end, taken = self._state.moved, 0
            for line in _lines(fd, end, self._size):
                if len(lines) == most or (lines and taken + len(line) > most_bytes):
                    break
                lines.append(line)
                taken += len(line)
                end += len(line) + 1
            return Moving(tuple(lines), end)
        finally:
            os.close(fd)

    def intend(self, moving: Moving, first: str) -> None:
        state = self._state
        self._write_state(
            _State(inode=state.inode, moved=state.moved, intended=moving.end, first=_short(first))
        )

    def moved(self, moving: Moving) -> None:
        """Record that the inbox holds the batch."""
        if moving.end < self._size:
            self._write_state(_State(inode=self._state.inode, moved=moving.end, intended=moving.end))
            if moving.end < _WORTH_SHRINKING or moving.end * 2 < self._size:
                return
        fd = self._directory.open(self._file, os.O_RDWR)
        try:
            if moving.end >= self._size:
                os.ftruncate(fd, 0)
            else:
                self._directory.replace(self._file, read_from(fd, moving.end))
        except OSError as error:
            raise unwritable(self._directory.path / self._file, error) from error
        finally:
            os.close(fd)
        self._state, self._size = _State(), 0

    def _state_for(self, status: os.stat_result) -> _State:
        state = self._read_state()
        if state.inode == status.st_ino and state.moved <= status.st_size:
            return state
        return _State(inode=status.st_ino)

    def _read_state(self) -> _State:
        fields = (self._directory.read(self._state_file) or b"").split()
        try:
            inode, moved, intended, first = fields
            state = _State(int(inode), int(moved), int(intended), first.decode())
        except ValueError:
            return _State()
        return state if min(state.moved, state.intended) >= 0 else _State()

    def _write_state(self, state: _State) -> None:
        text = f"{state.inode} {state.moved} {state.intended} {state.first}"
        self._directory.overwrite(self._state_file, text.encode().ljust(_STATE), durable=self._durable)
        self._state = state


def _short(identity: str) -> str:
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:16]


def _lines(fd: int, at: int, size: int) -> Iterator[bytes]:
    rest = b""
    while at < size:
        chunk = os.pread(fd, min(_CHUNK, size - at), at)
        if not chunk:
            return
        at += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
