"""Directory of a repository's worktrees: a record next to each, and complete removal."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace as changed

from shoal.core.errors import WorktreeError
from shoal.core.worktrees import State, WorktreeRecord
from shoal.wire.worktrees import read_record, record_bytes
from shoal.workspaces.replacing import clear_abandoned, create, replace

_ABANDONED = 60.0
"""Age in seconds after which a temporary index is no longer in use."""


class WorktreeFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def owners(self) -> Path:
        return self.directory / ".owners"

    def path(self, name: str) -> Path:
        return self.directory / name

    def clear_abandoned(self) -> None:
        """Remove temporary files left by killed processes."""
        clear_abandoned(self.directory)
        for path in self.directory.glob(".agent-*.index"):
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > _ABANDONED:
                    path.unlink()

    def refuse_taken(self, record: WorktreeRecord) -> None:
        if self._file(record.name).exists():
            raise _taken(record)
        if os.path.lexists(record.path):
            raise WorktreeError(f"{record.path} is in the way and is no worktree of ours. Move it away.")

    def enter(self, record: WorktreeRecord) -> None:
        """Create the record before the worktree, so that every worktree has one."""
        try:
            create(self._file(record.name), record_bytes(record), mode=0o600)
        except FileExistsError:
            raise _taken(record) from None
        except OSError as error:
            raise unwritable(self.directory, error) from error

    def mark(self, record: WorktreeRecord, state: State) -> WorktreeRecord:
        record = changed(record, state=state)
        self.put(record)
        return record

    def put(self, record: WorktreeRecord) -> None:
        try:
            replace(self._file(record.name), record_bytes(record), mode=0o600)
        except OSError as error:
            raise unwritable(self.directory, error) from error

    def read(self, name: str) -> WorktreeRecord | None:
        try:
            content = self._file(name).read_bytes()
        except OSError:
            return None
        record = read_record(content)
        # A record that names another path would make us remove that path.
        return record if record and record.name == name and record.path == self.path(name) else None

    def all(self) -> Iterator[WorktreeRecord]:
        for file in sorted(self.directory.glob("agent-*.json")) if self.directory.is_dir() else ():
            record = self.read(file.stem)
            if record is not None:
                yield record

    def forget(self, record: WorktreeRecord) -> None:
        self._file(record.name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.directory / f"{name}.json"


def is_recorded(place: Path) -> bool:
    """Return True if the path is in a worktree of an agent, or in one that is not fully removed."""
    return any(
        path.with_name(f"{path.name}.json").is_file()
        for path in (place, *place.parents)
        if path.name.startswith("agent-")
    )


def unwritable(directory: Path, error: OSError) -> WorktreeError:
    return WorktreeError(f"Worktrees cannot be kept in {directory}: {error.strerror or error}.")


def _taken(record: WorktreeRecord) -> WorktreeError:
    return WorktreeError(
        f"There is already a worktree {record.name} at {record.path}. "
        f"Look at it: shoal worktree show {record.name}"
    )


def erase(directory: Path) -> None:
    """Remove a directory with its contents, even if write-protected; links are not followed."""
    try:
        if directory.is_dir() and not directory.is_symlink():
            shutil.rmtree(directory, onerror=_opened)
    except FileNotFoundError:
        return
    except OSError as error:
        raise WorktreeError(f"{directory} cannot be removed: {error.strerror or error}.") from error


def _opened(act: Callable[..., Any], path: str, failure: Any) -> None:
    """Retry with write permission, because an agent may have created a directory without it."""
    error = failure[1]
    if isinstance(error, FileNotFoundError):
        return
    if not isinstance(error, PermissionError):
        raise error
    # Only if a mode changed: what cannot be removed for another reason is not retried forever.
    changed = _made_free(Path(path).parent)
    if act in (os.open, os.scandir, os.rmdir):
        if not _made_free(Path(path)) and not changed:
            raise error
        shutil.rmtree(path, onerror=_opened)
    else:
        act(path)


def _made_free(directory: Path) -> bool:
    """Give the owner all rights in the directory; return False if it had them."""
    if stat.S_IMODE(directory.lstat().st_mode) == stat.S_IRWXU:
        return False
    directory.chmod(stat.S_IRWXU)
    return True
