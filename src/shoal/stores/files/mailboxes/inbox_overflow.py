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

from shoal.stores.files.access.directory_handle import DirectoryHandle, read_fd_from_offset
from shoal.stores.files.access.line_files import append_lines, read_complete_lines, truncate_partial_last_line
from shoal.stores.files.home.home_paths import build_write_error, sync_file_data

_STATE_SIZE = 96
"""Fixed size of the state file in bytes."""
_CHUNK = 1 << 16
_SHRINK_THRESHOLD = 4 << 20


class _MailOverflowMoveState(Struct, frozen=True):
    """The position is valid for one file only, identified by its inode: a shrunk file starts at 0."""

    inode: int = 0
    moved: int = 0
    intended: int = 0
    first: str = "-"


class MailInboxOverflowBatch(Struct, frozen=True):
    lines: tuple[bytes, ...]
    end: int


class InboxOverflow:
    """Overflow of one inbox. Only `has_waiting_lines` and `read_waiting_lines` need no lock and `recover`."""

    __slots__ = ("_directory", "_file", "_size", "_state", "_state_file")

    def __init__(self, directory: DirectoryHandle, owner: str) -> None:
        self._directory = directory
        self._file = f"{owner}.jsonl"
        self._state_file = f"{owner}.state"
        self._state = _MailOverflowMoveState()
        self._size = 0

    def has_waiting_lines(self) -> bool:
        """Return True if messages wait; without the lock this is a guess to be checked again."""
        status = self._get_file_stat()
        return status is not None and self._get_state_for_file(status).moved < status.st_size

    def _get_file_stat(self) -> os.stat_result | None:
        # Most inboxes never overflow, and this check costs less than the exception for a missing file.
        return self._directory.get_entry_stat(self._file) if self._directory.has_entry(self._file) else None

    def read_waiting_lines(self) -> list[bytes]:
        """Return all waiting lines."""
        status = self._directory.get_entry_stat(self._file)
        if status is None:
            return []
        return list(read_complete_lines(self._directory, self._file, self._get_state_for_file(status).moved))

    @property
    def is_move_interrupted(self) -> bool:
        """True if a process died while it moved mail: the inbox content shows how far it got."""
        status = self._directory.get_entry_stat(self._file)
        if status is None or status.st_size == 0:
            return False
        state = self._get_state_for_file(status)
        return state.intended != state.moved

    def append(self, lines: Sequence[bytes]) -> None:
        status = self._directory.get_entry_stat(self._file)
        if status is not None and status.st_size == 0:
            # It was emptied: an old position must not hide new messages.
            self._write_state(_MailOverflowMoveState(inode=status.st_ino))
        append_lines(self._directory, self._file, lines)

    def finish_interrupted_move(self, ids: Collection[str]) -> None:
        """Load the state and finish a move that a dead process left open; `ids` are in the inbox."""
        status = self._get_file_stat()
        if status is None or status.st_size == 0:
            self._state, self._size = _MailOverflowMoveState(), 0
            return
        state = self._get_state_for_file(status)
        self._state, self._size = state, status.st_size
        if state.intended != state.moved:
            moved = state.intended if any(_hash_mail_id(each) == state.first for each in ids) else state.moved
            self._write_state(_MailOverflowMoveState(inode=state.inode, moved=moved, intended=moved))

    def read_oldest_batch(self, max_lines: int, max_bytes: int) -> MailInboxOverflowBatch:
        """Return the oldest lines that fit; the first one always does."""
        if self._state.moved >= self._size or max_lines == 0:
            return MailInboxOverflowBatch((), self._state.moved)
        fd = self._directory.open_file(self._file, os.O_RDWR)
        try:
            self._size = truncate_partial_last_line(fd)
            lines: list[bytes] = []
            end, taken_bytes = self._state.moved, 0
            for line in _iterate_file_lines(fd, end, self._size):
                if len(lines) == max_lines or (lines and taken_bytes + len(line) > max_bytes):
                    break
                lines.append(line)
                taken_bytes += len(line)
                end += len(line) + 1
            return MailInboxOverflowBatch(tuple(lines), end)
        finally:
            os.close(fd)

    def record_move_intent(self, batch: MailInboxOverflowBatch, first: str) -> None:
        state = self._state
        self._write_state(
            _MailOverflowMoveState(
                inode=state.inode, moved=state.moved, intended=batch.end, first=_hash_mail_id(first)
            )
        )

    def confirm_batch_moved(self, batch: MailInboxOverflowBatch) -> None:
        """Record that the inbox holds the batch."""
        if batch.end < self._size:
            self._write_state(
                _MailOverflowMoveState(inode=self._state.inode, moved=batch.end, intended=batch.end)
            )
            if batch.end < _SHRINK_THRESHOLD or batch.end * 2 < self._size:
                return
        fd = self._directory.open_file(self._file, os.O_RDWR)
        try:
            if batch.end >= self._size:
                os.ftruncate(fd, 0)
                if self._directory.durable:
                    # Later, the inbox no longer holds the mail that shows a recovery that it was moved.
                    sync_file_data(fd)
            else:
                self._directory.replace_file(self._file, read_fd_from_offset(fd, batch.end))
        except OSError as error:
            raise build_write_error(self._directory.path / self._file, error) from error
        finally:
            os.close(fd)
        self._state, self._size = _MailOverflowMoveState(), 0

    def _get_state_for_file(self, status: os.stat_result) -> _MailOverflowMoveState:
        state = self._read_state()
        if state.inode == status.st_ino and state.moved <= status.st_size:
            return state
        return _MailOverflowMoveState(inode=status.st_ino)

    def _read_state(self) -> _MailOverflowMoveState:
        fields = (self._directory.read_file(self._state_file) or b"").split()
        try:
            inode, moved, intended, first = fields
            state = _MailOverflowMoveState(int(inode), int(moved), int(intended), first.decode())
        except ValueError:
            return _MailOverflowMoveState()
        return state if min(state.moved, state.intended) >= 0 else _MailOverflowMoveState()

    def _write_state(self, state: _MailOverflowMoveState) -> None:
        text = f"{state.inode} {state.moved} {state.intended} {state.first}"
        self._directory.overwrite_file_in_place(self._state_file, text.encode().ljust(_STATE_SIZE))
        self._state = state


def _hash_mail_id(identity: str) -> str:
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:16]


def _iterate_file_lines(fd: int, offset: int, size: int) -> Iterator[bytes]:
    remainder = b""
    while offset < size:
        chunk = os.pread(fd, min(_CHUNK, size - offset), offset)
        if not chunk:
            return
        offset += len(chunk)
        *lines, remainder = (remainder + chunk).split(b"\n")
        yield from lines
