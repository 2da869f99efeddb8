"""Codec between worktree records and JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from shoal.core.agents.worktrees import WorktreeRecord


def encode_worktree_record(record: WorktreeRecord) -> bytes:
    # The json module, because it round-trips paths that are not UTF-8.
    return json.dumps(msgspec.to_builtins(record, enc_hook=_encode_path), indent=1).encode() + b"\n"


def parse_worktree_record(content: bytes) -> WorktreeRecord | None:
    """Parse the record; return None if the content is not one."""
    try:
        return msgspec.convert(json.loads(content), WorktreeRecord, dec_hook=_decode_path)
    except (ValueError, RecursionError):
        return None


def _encode_path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError


def _decode_path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str) and "\0" not in value:
        return Path(value)
    raise ValueError(f"{value!r} is not a path")
