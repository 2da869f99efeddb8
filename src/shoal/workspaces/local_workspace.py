"""Files of a project on this machine, with a record of what its agent has read."""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable
from copy import copy
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from shoal.core.errors import WorkspaceError
from shoal.core.text.filenames import escape_filename, unescape_filename
from shoal.core.text.text_diffs import format_unified_diff
from shoal.core.user_environment import UserEnvironment, get_user_environment
from shoal.workspaces.atomic_files import (
    create_new_file_atomically,
    remove_abandoned_temporary_files,
    replace_file_atomically,
)
from shoal.workspaces.checkpoints import CheckpointStore
from shoal.workspaces.file_access import (
    open_locked_file,
    open_regular_file,
    read_whole_file,
    read_whole_open_file,
)
from shoal.workspaces.file_errors import build_file_error
from shoal.workspaces.workspace_texts import format_workspace_notice

_MAX_CACHED_SIZE = 256 * 1024
_MAX_CACHED_FILES = 64
_MAX_NAME_LENGTH = 255
_MAX_PATH_LENGTH = 4096

WriteGuard = Callable[[Path], None]


class _FileReadState(Struct, frozen=True):
    """State of a file when it was read; has no digest if only parts of it were read."""

    digest: bytes | None
    size: int
    changed: int
    inode: int

    def is_unchanged(self, now: os.stat_result) -> bool:
        return (self.size, self.changed, self.inode) == (now.st_size, now.st_mtime_ns, now.st_ino)


class LocalWorkspace:
    """View of one agent on a project; agents that share the files have a workspace each.

    `on_change` is called for each file that a tool has written, with the number of the turn. `write_guard` is
    called before a file is written, and raises `WorkspaceError` to refuse. `user` is that of the process by
    default.
    """

    def __init__(
        self,
        root: Path,
        *,
        granted: Iterable[Path] = (),
        cwd: Path | None = None,
        checkpoints: CheckpointStore | None = None,
        on_change: Callable[[int, Path], None] | None = None,
        write_guard: WriteGuard | None = None,
        user: UserEnvironment | None = None,
    ) -> None:
        self.user = user or get_user_environment()
        self._root = Path(os.path.realpath(root))
        self._granted = tuple(Path(os.path.realpath(directory)) for directory in granted)
        self._cwd = self._root if cwd is None else Path(os.path.normpath(self._root / cwd))
        self._checkpoints = checkpoints
        self._on_change = on_change
        self._turn = 0
        self._write_guard = write_guard
        self._read_states: dict[Path, _FileReadState] = {}
        self._contents: OrderedDict[Path, bytes] = OrderedDict()
        self._cleaned_directories: set[Path] = set()
        """Directories already cleared of temporary files left by killed processes."""

    def create_sibling(
        self, on_change: Callable[[int, Path], None], write_guard: WriteGuard | None = None
    ) -> LocalWorkspace:
        """Create a workspace for another agent on the same files and directories; it has read nothing yet."""
        other = copy(self)
        other._on_change, other._write_guard = on_change, write_guard
        other._read_states = {}
        other._contents = OrderedDict()
        return other

    def copy_read_state(self, other: LocalWorkspace) -> None:
        """Mark as read what the agent of the other workspace has read, for its fork."""
        self._read_states.update(other._read_states)
        self._contents.update(other._contents)

    @property
    def root(self) -> Path:
        return self._root

    @property
    def cwd(self) -> Path:
        return self._cwd

    @property
    def granted_directories(self) -> tuple[Path, ...]:
        return self._granted

    def grant_directory(self, directory: Path) -> None:
        self._granted = (*self._granted, Path(os.path.realpath(directory)))

    def allow_writes(self, directory: Path) -> None:
        """Let file tools write in a directory; here the permissions alone decide that."""

    def set_checkpoint_turn(self, turn: int) -> None:
        self._turn = turn

    def change_directory(self, cwd: Path) -> bool:
        if not self.contains_path(cwd) or not (self._cwd / cwd).is_dir():
            return False
        self._cwd = Path(os.path.normpath(self._cwd / cwd))
        return True

    def contains_path(self, path: Path) -> bool:
        try:
            # Follows links in every part, and keeps parts that do not exist yet.
            real = Path(os.path.realpath(self._cwd / path))
        except (OSError, ValueError):
            return False
        return any(real.is_relative_to(allowed) for allowed in (self._root, *self._granted))

    def resolve_path(self, path: str) -> Path:
        if not path.strip():
            raise WorkspaceError(format_workspace_notice("empty_path"))
        if "\0" in path:
            raise WorkspaceError(format_workspace_notice("nul_in_path", path=repr(escape_filename(path))))
        absolute = self._make_absolute(path)
        if "\\x" in path and not os.path.lexists(absolute):
            unescaped = unescape_filename(path)
            if "\0" not in unescaped and os.path.lexists(self._make_absolute(unescaped)):
                absolute = self._make_absolute(unescaped)
        return absolute

    def _make_absolute(self, path: str) -> Path:
        try:
            # Another user's ~name stays a file name.
            expanded = self.user.expand_home(path) if path == "~" or path.startswith("~/") else path
            absolute = os.path.normpath(self._cwd / expanded)
            raw = os.fsencode(absolute)
        except UnicodeEncodeError:
            raise WorkspaceError(
                format_workspace_notice("invalid_path", path=repr(escape_filename(path)))
            ) from None
        if len(raw) >= _MAX_PATH_LENGTH or any(len(part) > _MAX_NAME_LENGTH for part in raw.split(b"/")):
            raise WorkspaceError(
                format_workspace_notice(
                    "long_path",
                    path=escape_filename(path)[:80],
                    part=_MAX_NAME_LENGTH,
                    whole=_MAX_PATH_LENGTH,
                )
            )
        return Path(absolute)

    def read_file(self, path: Path) -> bytes:
        real = _resolve_real_path(path)
        content, state = read_whole_file(real)
        self._remember_read_content(real, content, state)
        return content

    def open_file(self, path: Path) -> BinaryIO:
        real = _resolve_real_path(path)
        file = open_regular_file(real)
        state = os.fstat(file.fileno())
        read_state = self._read_states.get(real)
        if read_state is None or not read_state.is_unchanged(state):
            self._read_states[real] = _FileReadState(None, state.st_size, state.st_mtime_ns, state.st_ino)
            self._contents.pop(real, None)
        return file

    def read_file_for_change(self, path: Path, *, intended: bytes | None = None) -> bytes:
        real = _resolve_real_path(path)
        content, state = read_whole_file(real)
        self._refuse_unread_or_stale_file(real, content, state, intended=intended)
        return content

    def write_file(self, path: Path, content: bytes) -> None:
        real = _resolve_real_path(path)
        if self._write_guard is not None:
            self._write_guard(real)
        if real.parent not in self._cleaned_directories:
            self._cleaned_directories.add(real.parent)
            remove_abandoned_temporary_files(real.parent)
        if os.path.lexists(real):
            with open_locked_file(real) as file:
                before, state = read_whole_open_file(real, file)
                self._refuse_unread_or_stale_file(real, before, state, intended=content)
                self._replace_file(real, before, content, state)
        else:
            self._create_file(real, content)
        if self._on_change is not None:
            self._on_change(self._turn, real)
        try:
            self._remember_read_content(real, content, real.stat())
        except OSError:
            self._forget_content(real)

    def _create_file(self, real: Path, content: bytes) -> None:
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            self._save_checkpoint(real, None, content, None)
            create_new_file_atomically(real, content)
        except FileExistsError as error:
            if real.exists():
                raise WorkspaceError(
                    format_workspace_notice("just_created", path=escape_filename(real))
                ) from None
            raise build_file_error("write", real, error) from None
        except OSError as error:
            raise build_file_error("write", real, error) from None

    def _replace_file(self, real: Path, before: bytes, content: bytes, state: os.stat_result) -> None:
        try:
            if not os.access(real, os.W_OK):
                raise PermissionError(13, "the file is write-protected")
            self._save_checkpoint(real, before, content, stat.S_IMODE(state.st_mode))
            replace_file_atomically(real, content, like=state)
        except OSError as error:
            raise build_file_error("write", real, error) from None

    def _save_checkpoint(self, real: Path, before: bytes | None, after: bytes, mode: int | None) -> None:
        if self._checkpoints is not None:
            self._checkpoints.record_change(self._turn, real, before=before, after=after, mode=mode)

    def _remember_read_content(self, real: Path, content: bytes, state: os.stat_result) -> None:
        self._read_states[real] = _FileReadState(
            sha256(content).digest(), state.st_size, state.st_mtime_ns, state.st_ino
        )
        self._contents.pop(real, None)
        if len(content) <= _MAX_CACHED_SIZE:
            self._contents[real] = content
            if len(self._contents) > _MAX_CACHED_FILES:
                self._contents.popitem(last=False)

    def _forget_content(self, real: Path) -> None:
        self._read_states.pop(real, None)
        self._contents.pop(real, None)

    def _refuse_unread_or_stale_file(
        self, real: Path, content: bytes, state: os.stat_result, *, intended: bytes | None
    ) -> None:
        read_state = self._read_states.get(real)
        if read_state is None:
            message = format_workspace_notice("unread_file", path=escape_filename(real))
            if intended is not None:
                diff = _format_content_difference(content, intended)
                message += f" {format_workspace_notice('would_change', diff=diff)}"
            raise WorkspaceError(message)
        is_fresh = (
            read_state.is_unchanged(state)
            if read_state.digest is None
            else read_state.digest == sha256(content).digest()
        )
        if is_fresh:
            return
        message = format_workspace_notice("stale_file", path=escape_filename(real))
        cached = self._contents.get(real)
        if cached is not None:
            diff = _format_content_difference(cached, content)
            message += f" {format_workspace_notice('what_changed', diff=diff)}"
        elif intended is not None:
            diff = _format_content_difference(content, intended)
            message += f" {format_workspace_notice('would_now_change', diff=diff)}"
        raise WorkspaceError(message)


def _resolve_real_path(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        raise build_file_error("reach", path, error) from None
    except ValueError:
        raise WorkspaceError(
            format_workspace_notice("nul_in_path", path=repr(escape_filename(path)))
        ) from None


def _format_content_difference(old: bytes, new: bytes) -> str:
    if b"\0" in old[:8192] or b"\0" in new[:8192]:
        return f"(binary: {len(old):,} bytes became {len(new):,})"
    return format_unified_diff(old.decode(errors="replace"), new.decode(errors="replace"))
