"""Lines of the list of file changes that an agent made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shoal.wire.json_codec import split_json_objects


class CheckpointFileChange(Struct, frozen=True, kw_only=True):
    turn: int
    path: Path
    before: str | None
    """Digest of the old content; None if there was no file."""
    after: str | None
    """None if the change deletes the file."""
    mode: int | None
    """Mode bits of the file before the change."""


class CheckpointUndoMark(Struct, frozen=True, kw_only=True):
    undone: int
    """First turn whose changes were undone."""
    replaced: dict[str, str | None]
    """Digest of the content that the undo replaced, by path."""


class ParsedCheckpointLine(Struct, frozen=True, kw_only=True):
    records: tuple[CheckpointFileChange | CheckpointUndoMark, ...]
    is_whole: bool
    """False if a part of the line cannot be read."""


def encode_checkpoint_change(change: CheckpointFileChange) -> bytes:
    return _encode_line(
        {
            "turn": change.turn,
            "path": str(change.path),
            "before": change.before,
            "after": change.after,
            "mode": change.mode,
        }
    )


def encode_checkpoint_undo(turn: int, replaced: Mapping[Path, str | None]) -> bytes:
    return _encode_line({"undone": turn, "replaced": {str(path): name for path, name in replaced.items()}})


def parse_checkpoint_line(line: bytes) -> ParsedCheckpointLine:
    objects, is_whole = split_json_objects(line)
    records: list[CheckpointFileChange | CheckpointUndoMark] = []
    for each in objects:
        try:
            # The json module preserves file names that are not UTF-8.
            raw = json.loads(each)
            kind: Any = CheckpointUndoMark if "undone" in raw else CheckpointFileChange
            records.append(msgspec.convert(raw, kind, dec_hook=_decode_path))
        except (ValueError, RecursionError):
            is_whole = False
    return ParsedCheckpointLine(records=tuple(records), is_whole=is_whole)


def _encode_line(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _decode_path(_: type, value: Any) -> Path:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{value!r} is not a path")
    return Path(value)
