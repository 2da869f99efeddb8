"""List of the file changes that an agent made: one JSON line each, appended before the change."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from shoal.wire.checkpoint_codec import (
    CheckpointFileChange,
    encode_checkpoint_change,
    encode_checkpoint_undo,
    parse_checkpoint_line,
)
from shoal.workspaces.atomic_files import read_private_file
from shoal.workspaces.file_errors import build_file_error


def create_private_directory(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)


class CheckpointChanges(Struct, frozen=True, kw_only=True):
    """Changes that are not undone, oldest first."""

    changes: list[CheckpointFileChange]
    damaged_lines: int
    """Number of lines that cannot be read in full; files that they name may not be in `changes`."""


class CheckpointIndex:
    def __init__(self, path: Path) -> None:
        self.path = path

    def append_change(self, change: CheckpointFileChange) -> None:
        self._append_line(encode_checkpoint_change(change))

    def mark_undone(self, turn: int, replaced: Mapping[Path, str | None]) -> None:
        """Mark changes of these files from `turn` on as undone; `replaced` names what the undo removed."""
        self._append_line(encode_checkpoint_undo(turn, replaced))

    def read_undoable_changes(self) -> CheckpointChanges:
        live: list[CheckpointFileChange] = []
        damaged_lines = 0
        for line in self._read_lines():
            parsed = parse_checkpoint_line(line)
            for record in parsed.records:
                if isinstance(record, CheckpointFileChange):
                    live.append(record)
                else:
                    live = [
                        each
                        for each in live
                        if each.turn < record.undone or str(each.path) not in record.replaced
                    ]
            damaged_lines += not parsed.is_whole
        return CheckpointChanges(changes=live, damaged_lines=damaged_lines)

    def _read_lines(self) -> list[bytes]:
        try:
            content = read_private_file(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise build_file_error("read", self.path, error) from None
        return [line for line in content.split(b"\n") if line]

    def _append_line(self, encoded: bytes) -> None:
        create_private_directory(self.path.parent)
        descriptor = os.open(
            self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            size = os.fstat(descriptor).st_size
            # First end a line that was cut off by a crash or a full disk.
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                encoded = b"\n" + encoded
            if os.write(descriptor, encoded) != len(encoded):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
