"""Stores file contents before tools change them, turn by turn, and restores them."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec import Struct

from shoal.workspaces.checkpoint_index import Change, Index, private_directory
from shoal.workspaces.complaints import complaint
from shoal.workspaces.replacing import create, replace


class ChangedFile(Struct, frozen=True, kw_only=True):
    path: Path
    how: Literal["created", "changed", "deleted"]


class TurnChanges(Struct, frozen=True, kw_only=True):
    turn: int
    files: tuple[ChangedFile, ...]


class LeftAlone(Struct, frozen=True, kw_only=True):
    path: Path
    why: str


class UndoReport(Struct, frozen=True, kw_only=True):
    """Result of an undo: restored files, removed files that the agent had created, and skipped files."""

    turn: int
    restored: tuple[Path, ...] = ()
    removed: tuple[Path, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()


class _Blocked(Exception):
    """The text says why a file is skipped."""


class Checkpoints:
    """Old contents under `directory`: `blobs/` by digest, and `index.jsonl` with one line per change."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._blobs = directory / "blobs"
        self._index = Index(directory / "index.jsonl")

    def keep(
        self, turn: int, path: Path, *, before: bytes | None, after: bytes | None, mode: int | None
    ) -> None:
        """Record a change; must be called before the change is made.

        The old content and then the index line are on disk when this returns, so a crash at any point leaves
        either nothing to undo or everything that undoing needs.
        """
        change = Change(
            turn=turn,
            path=path,
            before=None if before is None else self._store(before),
            after=None if after is None else digest(after),
            mode=mode,
        )
        self._index.append(change)

    def turns(self) -> tuple[TurnChanges, ...]:
        """Return the turns that can be undone, oldest first."""
        by_turn: dict[int, dict[Path, list[Change]]] = {}
        for change in self._index.changes():
            by_turn.setdefault(change.turn, {}).setdefault(change.path, []).append(change)
        return tuple(
            TurnChanges(turn=turn, files=tuple(_changed(path, changes) for path, changes in files.items()))
            for turn, files in sorted(by_turn.items())
        )

    def undo(self, turn: int) -> UndoReport:
        """Restore all files to their state before `turn`, except those that somebody else changed since."""
        by_path: dict[Path, list[Change]] = {}
        for change in self._index.changes():
            if change.turn >= turn:
                by_path.setdefault(change.path, []).append(change)
        restored: list[Path] = []
        removed: list[Path] = []
        left_alone: list[LeftAlone] = []
        replaced: dict[Path, str | None] = {}
        for path, changes in reversed(by_path.items()):
            try:
                was, now = self._bring_back(path, changes)
            except _Blocked as blocked:
                left_alone.append(LeftAlone(path=path, why=str(blocked)))
                continue
            replaced[path] = was
            if was != now:
                (removed if now is None else restored).append(path)
        if replaced:
            try:
                self._index.mark_undone(turn, replaced)
            except OSError as error:
                raise complaint("note the undo in", self._index.path, error) from None
        return UndoReport(
            turn=turn, restored=tuple(restored), removed=tuple(removed), left_alone=tuple(left_alone)
        )

    def _bring_back(self, path: Path, changes: Sequence[Change]) -> tuple[str | None, str | None]:
        """Restore one file; return the digests of its content before and after."""
        content, state = _there(path)
        was = None if content is None else digest(content)
        reached, mode = _walk_back(was, changes)
        if reached != was:
            if content is not None:
                # Content that the undo removes can be recovered from the blobs.
                self._store(content)
            self._put(path, reached, mode, state)
        if reached != changes[0].before:
            raise _Blocked(
                "it was changed by somebody else since the agent changed it"
                if reached == was
                else "it is back to what somebody else had made of it, and goes no further"
            )
        return was, reached

    def _put(self, path: Path, wanted: str | None, mode: int | None, state: os.stat_result | None) -> None:
        try:
            if wanted is None:
                path.unlink()
                return
            content = self._load(wanted)
            if state is not None:
                replace(path, content, like=state)
                if mode is not None and mode != stat.S_IMODE(state.st_mode):
                    path.chmod(mode)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                create(path, content, mode=mode)
        except OSError as error:
            raise _Blocked(str(complaint("bring back", path, error))) from None

    def _store(self, content: bytes) -> str:
        name = digest(content)
        blob = self._blobs / name[:2] / name
        if not blob.exists():
            for directory in (self._directory, self._blobs, blob.parent):
                private_directory(directory)
            replace(blob, content, mode=0o600)
        return name

    def _load(self, name: str) -> bytes:
        try:
            content = (self._blobs / name[:2] / name).read_bytes()
        except FileNotFoundError:
            raise _Blocked("its old content is no longer kept") from None
        if digest(content) != name:
            raise _Blocked("its kept old content is damaged")
        return content


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _walk_back(now: str | None, changes: Sequence[Change]) -> tuple[str | None, int | None]:
    """Follow the agent's own changes back from `now` along an unbroken chain; return content and mode.

    A change whose `before` is already present was never made, or is undone: it is skipped.
    """
    reached, mode = now, None
    if now == changes[0].before:
        return reached, mode
    for change in reversed(changes):
        if reached == change.after:
            reached, mode = change.before, change.mode
        elif reached != change.before:
            break
    return reached, mode


def _there(path: Path) -> tuple[bytes | None, os.stat_result | None]:
    if os.path.realpath(path) != str(path):
        raise _Blocked("it, or a directory above it, has become a symbolic link")
    try:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode):
            raise _Blocked("it is no longer a regular file")
        return path.read_bytes(), state
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        raise _Blocked(str(complaint("read", path, error))) from None


def _changed(path: Path, changes: Sequence[Change]) -> ChangedFile:
    if changes[0].before is None:
        return ChangedFile(path=path, how="created")
    return ChangedFile(path=path, how="deleted" if changes[-1].after is None else "changed")
