"""Directory of a repository's worktrees: a record next to each, and complete removal."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from shoal.core.agents.worktrees import WorktreeRecord, WorktreeState
from shoal.core.errors import WorktreeError
from shoal.wire.worktree_codec import encode_worktree_record, parse_worktree_record
from shoal.workspaces.atomic_files import (
    create_new_file_atomically,
    read_private_file,
    remove_abandoned_temporary_files,
    replace_file_atomically,
)
from shoal.workspaces.workspace_texts import format_workspace_notice

_ABANDONED_AGE = 60.0
"""Age in seconds after which a temporary index is no longer in use."""


class WorktreeRecordStore:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def lease_directory(self) -> Path:
        return self.directory / ".owners"

    def get_worktree_path(self, name: str) -> Path:
        return self.directory / name

    def remove_temporary_files(self) -> None:
        """Remove temporary files left by killed processes."""
        remove_abandoned_temporary_files(self.directory)
        for path in self.directory.glob(".agent-*.index"):
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > _ABANDONED_AGE:
                    path.unlink()

    def refuse_taken_worktree(self, record: WorktreeRecord) -> None:
        if self._get_record_path(record.name).exists():
            raise _build_worktree_exists_error(record)
        if os.path.lexists(record.path):
            raise WorktreeError(format_workspace_notice("not_a_worktree", path=record.path))

    def create_record(self, record: WorktreeRecord) -> None:
        """Create the record before the worktree, so that every worktree has one."""
        try:
            create_new_file_atomically(
                self._get_record_path(record.name), encode_worktree_record(record), mode=0o600
            )
        except FileExistsError:
            raise _build_worktree_exists_error(record) from None
        except OSError as error:
            raise build_worktree_storage_error(self.directory, error) from error

    def set_worktree_state(self, record: WorktreeRecord, state: WorktreeState) -> WorktreeRecord:
        record = structs.replace(record, state=state)
        self.save_record(record)
        return record

    def save_record(self, record: WorktreeRecord) -> None:
        try:
            replace_file_atomically(
                self._get_record_path(record.name), encode_worktree_record(record), mode=0o600
            )
        except OSError as error:
            raise build_worktree_storage_error(self.directory, error) from error

    def load_record(self, name: str) -> WorktreeRecord | None:
        try:
            content = read_private_file(self._get_record_path(name))
        except OSError:
            return None
        record = parse_worktree_record(content)
        # A record that names another path would make us remove that path.
        return (
            record if record and record.name == name and record.path == self.get_worktree_path(name) else None
        )

    def iter_records(self) -> Iterator[WorktreeRecord]:
        for file in sorted(self.directory.glob("agent-*.json")) if self.directory.is_dir() else ():
            record = self.load_record(file.stem)
            if record is not None:
                yield record

    def delete_record(self, record: WorktreeRecord) -> None:
        self._get_record_path(record.name).unlink(missing_ok=True)

    def _get_record_path(self, name: str) -> Path:
        return self.directory / f"{name}.json"


def is_in_agent_worktree(place: Path) -> bool:
    """Return True if the path is in a worktree of an agent, or in one that is not fully removed."""
    return any(
        path.with_name(f"{path.name}.json").is_file()
        for path in (place, *place.parents)
        if path.name.startswith("agent-")
    )


def build_worktree_storage_error(directory: Path, error: OSError) -> WorktreeError:
    return WorktreeError(
        format_workspace_notice("worktrees_not_stored", directory=directory, error=error.strerror or error)
    )


def _build_worktree_exists_error(record: WorktreeRecord) -> WorktreeError:
    return WorktreeError(format_workspace_notice("worktree_exists", name=record.name, path=record.path))


def remove_directory_tree(directory: Path) -> None:
    """Remove a directory with its contents, even if write-protected; links are not followed."""
    import shutil

    try:
        if directory.is_dir() and not directory.is_symlink():
            shutil.rmtree(directory, onerror=_retry_removal)
    except FileNotFoundError:
        return
    except OSError as error:
        raise WorktreeError(
            format_workspace_notice("not_removed", directory=directory, error=error.strerror or error)
        ) from error


def _retry_removal(act: Callable[..., Any], path: str, failure: Any) -> None:
    """Retry with write permission, because an agent may have created a directory without it."""
    import shutil

    error = failure[1]
    if isinstance(error, FileNotFoundError):
        return
    if not isinstance(error, PermissionError):
        raise error
    # Only if a mode changed: what cannot be removed for another reason is not retried forever.
    changed = _make_directory_writable(Path(path).parent)
    if act in (os.open, os.scandir, os.rmdir):
        if not _make_directory_writable(Path(path)) and not changed:
            raise error
        shutil.rmtree(path, onerror=_retry_removal)
    else:
        act(path)


def _make_directory_writable(directory: Path) -> bool:
    """Give the owner all rights in the directory; return False if it had them."""
    if stat.S_IMODE(directory.lstat().st_mode) == stat.S_IRWXU:
        return False
    directory.chmod(stat.S_IRWXU)
    return True
