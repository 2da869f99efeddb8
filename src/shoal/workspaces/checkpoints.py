"""Stores file contents before tools change them, turn by turn, and restores them."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec import Struct

from shoal.core.text.text_format import format_count_with_noun
from shoal.wire.checkpoint_codec import CheckpointFileChange
from shoal.workspaces.atomic_files import (
    create_new_file_atomically,
    read_private_file,
    replace_file_atomically,
)
from shoal.workspaces.checkpoint_index import (
    CheckpointChanges,
    CheckpointIndex,
    create_private_directory,
)
from shoal.workspaces.file_errors import build_file_error


class ChangedFile(Struct, frozen=True, kw_only=True):
    path: Path
    how: Literal["created", "changed", "deleted"]


class TurnFileChanges(Struct, frozen=True, kw_only=True):
    turn: int
    files: tuple[ChangedFile, ...]


class UnrestoredFile(Struct, frozen=True, kw_only=True):
    """A file that an undo skipped."""

    path: Path
    """The file."""
    why: str
    """Reason."""


class FileUndoReport(Struct, frozen=True, kw_only=True):
    """Result of an undo: restored files, removed files that the agent had created, and skipped files."""

    turn: int
    """Number of the first turn that was undone."""
    restored: tuple[Path, ...] = ()
    """Files with their earlier content."""
    removed: tuple[Path, ...] = ()
    """Files that the agent had created."""
    left_alone: tuple[UnrestoredFile, ...] = ()
    """Files that were skipped."""


class _FileUndoBlockedError(Exception):
    """The text says why a file is skipped."""


class CheckpointStore:
    """Old contents under `directory`: `blobs/` by digest, and `index.jsonl` with one line per change."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._blobs = directory / "blobs"
        self._index = CheckpointIndex(directory / "index.jsonl")

    def record_change(
        self, turn: int, path: Path, *, before: bytes | None, after: bytes | None, mode: int | None
    ) -> None:
        """Record a change; must be called before the change is made.

        The old content and then the index line are on disk when this returns, so a crash at any point leaves
        either nothing to undo or everything that undoing needs.
        """
        change = CheckpointFileChange(
            turn=turn,
            path=path,
            before=None if before is None else self._store_blob(before),
            after=None if after is None else compute_sha256_digest(after),
            mode=mode,
        )
        self._index.append_change(change)

    def list_undoable_turns(self) -> tuple[TurnFileChanges, ...]:
        """Return the turns that can be undone, oldest first."""
        by_turn: dict[int, dict[Path, list[CheckpointFileChange]]] = {}
        for change in self._index.read_undoable_changes().changes:
            by_turn.setdefault(change.turn, {}).setdefault(change.path, []).append(change)
        return tuple(
            TurnFileChanges(
                turn=turn,
                files=tuple(_summarize_file_changes(path, changes) for path, changes in files.items()),
            )
            for turn, files in sorted(by_turn.items())
        )

    def find_damage(self) -> UnrestoredFile | None:
        """Return the list of changes if some of its lines cannot be read."""
        return self._describe_damage(self._index.read_undoable_changes())

    def _describe_damage(self, found: CheckpointChanges) -> UnrestoredFile | None:
        if not found.damaged_lines:
            return None
        lines = format_count_with_noun(found.damaged_lines, "line")
        why = f"{lines} of this list of changes cannot be read, so it may be impossible to undo all changes"
        return UnrestoredFile(path=self._index.path, why=why)

    def undo_from_turn(self, turn: int) -> FileUndoReport:
        """Restore all files to their state before `turn`, except those that somebody else changed since."""
        by_path: dict[Path, list[CheckpointFileChange]] = {}
        found = self._index.read_undoable_changes()
        for change in found.changes:
            if change.turn >= turn:
                by_path.setdefault(change.path, []).append(change)
        restored: list[Path] = []
        removed: list[Path] = []
        left_alone: list[UnrestoredFile] = []
        replaced: dict[Path, str | None] = {}
        for path, changes in reversed(by_path.items()):
            try:
                old_digest, new_digest = self._restore_file(path, changes)
            except _FileUndoBlockedError as blocked:
                left_alone.append(UnrestoredFile(path=path, why=str(blocked)))
                continue
            replaced[path] = old_digest
            if old_digest != new_digest:
                (removed if new_digest is None else restored).append(path)
        if replaced:
            try:
                self._index.mark_undone(turn, replaced)
            except OSError as error:
                raise build_file_error("record the undo in", self._index.path, error) from None
        if (damage := self._describe_damage(found)) is not None:
            left_alone.append(damage)
        return FileUndoReport(
            turn=turn, restored=tuple(restored), removed=tuple(removed), left_alone=tuple(left_alone)
        )

    def _restore_file(
        self, path: Path, changes: Sequence[CheckpointFileChange]
    ) -> tuple[str | None, str | None]:
        """Restore one file; return the digests of its content before and after."""
        content, state = _read_current_file(path)
        current_digest = None if content is None else compute_sha256_digest(content)
        target_digest, mode = _trace_content_back(current_digest, changes)
        if target_digest != current_digest:
            if content is not None:
                # Content that the undo removes can be recovered from the blobs.
                self._store_blob(content)
            self._write_restored_content(path, target_digest, mode, state)
        if target_digest != changes[0].before:
            raise _FileUndoBlockedError(
                "somebody else changed it after the agent did"
                if target_digest == current_digest
                else "it was restored to somebody else's version, not to the original"
            )
        return current_digest, target_digest

    def _write_restored_content(
        self, path: Path, digest_name: str | None, mode: int | None, state: os.stat_result | None
    ) -> None:
        try:
            if digest_name is None:
                path.unlink()
                return
            content = self._load_blob(digest_name)
            if state is not None:
                replace_file_atomically(path, content, like=state)
                if mode is not None and mode != stat.S_IMODE(state.st_mode):
                    path.chmod(mode)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                create_new_file_atomically(path, content, mode=mode)
        except OSError as error:
            raise _FileUndoBlockedError(str(build_file_error("bring back", path, error))) from None

    def _store_blob(self, content: bytes) -> str:
        name = compute_sha256_digest(content)
        blob = self._blobs / name[:2] / name
        if not blob.exists():
            for directory in (self._directory, self._blobs, blob.parent):
                create_private_directory(directory)
            replace_file_atomically(blob, content, mode=0o600)
        return name

    def _load_blob(self, name: str) -> bytes:
        try:
            content = read_private_file(self._blobs / name[:2] / name)
        except FileNotFoundError:
            raise _FileUndoBlockedError("its old content is no longer stored") from None
        if compute_sha256_digest(content) != name:
            raise _FileUndoBlockedError("its stored old content is damaged")
        return content


def compute_sha256_digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _trace_content_back(
    now: str | None, changes: Sequence[CheckpointFileChange]
) -> tuple[str | None, int | None]:
    """Follow the agent's own changes back from `now` along an unbroken chain; return content and mode.

    A change whose `before` is already present was never made, or is undone: it is skipped.
    """
    digest, mode = now, None
    if now == changes[0].before:
        return digest, mode
    for change in reversed(changes):
        if digest == change.after:
            digest, mode = change.before, change.mode
        elif digest != change.before:
            break
    return digest, mode


def _read_current_file(path: Path) -> tuple[bytes | None, os.stat_result | None]:
    if os.path.realpath(path) != str(path):
        raise _FileUndoBlockedError("it, or a directory above it, has become a symbolic link")
    try:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode):
            raise _FileUndoBlockedError("it is no longer a regular file")
        return path.read_bytes(), state
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        raise _FileUndoBlockedError(str(build_file_error("read", path, error))) from None


def _summarize_file_changes(path: Path, changes: Sequence[CheckpointFileChange]) -> ChangedFile:
    if changes[0].before is None:
        return ChangedFile(path=path, how="created")
    return ChangedFile(path=path, how="deleted" if changes[-1].after is None else "changed")
