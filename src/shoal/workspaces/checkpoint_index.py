"""List of the file changes that an agent made: one JSON line each, appended before the change."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shoal.wire.json_codec import split_json_objects
from shoal.workspaces.atomic_files import read_private_file
from shoal.workspaces.file_errors import build_file_error


class CheckpointFileChange(Struct, frozen=True, kw_only=True):
    turn: int
    path: Path
    before: str | None
    """Digest of the old content; None if there was no file."""
    after: str | None
    """None if the change deletes the file."""
    mode: int | None
    """Mode bits of the file before the change."""


class _CheckpointUndoMark(Struct, frozen=True, kw_only=True):
    undone: int
    replaced: dict[str, str | None]


def _decode_path(_: type, value: Any) -> Path:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a path")  # noqa: TRY004 - of a file, not of an argument
    return Path(value)


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
        self._append_line(
            {
                "turn": change.turn,
                "path": str(change.path),
                "before": change.before,
                "after": change.after,
                "mode": change.mode,
            }
        )

    def mark_undone(self, turn: int, replaced: Mapping[Path, str | None]) -> None:
        """Mark changes of these files from `turn` on as undone; `replaced` names what the undo removed."""
        self._append_line({"undone": turn, "replaced": {str(path): name for path, name in replaced.items()}})

    def read_undoable_changes(self) -> CheckpointChanges:
        live: list[CheckpointFileChange] = []
        damaged_lines = 0
        for line in self._read_lines():
            records, is_whole = _parse_records(line)
            for record in records:
                try:
                    live = _apply_record(live, record)
                except (msgspec.ValidationError, UnicodeEncodeError):
                    is_whole = False
            damaged_lines += not is_whole
        return CheckpointChanges(changes=live, damaged_lines=damaged_lines)

    def _read_lines(self) -> list[bytes]:
        try:
            content = read_private_file(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise build_file_error("read", self.path, error) from None
        return [line for line in content.split(b"\n") if line]

    def _append_line(self, line: Mapping[str, Any]) -> None:
        encoded = json.dumps(line).encode() + b"\n"
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


def _apply_record(live: list[CheckpointFileChange], record: dict[str, Any]) -> list[CheckpointFileChange]:
    if "undone" not in record:
        live.append(msgspec.convert(record, CheckpointFileChange, dec_hook=_decode_path))
        return live
    undo_mark = msgspec.convert(record, _CheckpointUndoMark)
    return [c for c in live if c.turn < undo_mark.undone or str(c.path) not in undo_mark.replaced]


def _parse_records(line: bytes) -> tuple[list[dict[str, Any]], bool]:
    """Return the records on a line, and whether all of it could be read."""
    objects, is_whole = split_json_objects(line)
    try:
        # The json module preserves file names that are not UTF-8.
        return [json.loads(each) for each in objects], is_whole
    except RecursionError:
        return [], False
