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

from shoal.core.differences import difference
from shoal.core.errors import WorkspaceError
from shoal.core.filenames import meant, shown
from shoal.workspaces.checkpoints import Checkpoints
from shoal.workspaces.complaints import complaint
from shoal.workspaces.opening import content_of, opened, opened_alone, whole
from shoal.workspaces.replacing import clear_abandoned, create, replace

_KEPT_FOR_DIFFERENCES = 256 * 1024
_KEPT_FILES = 64
_LONGEST_NAME = 255
_LONGEST_PATH = 4096


class _Seen(Struct, frozen=True):
    """State of a file when it was read; has no digest if only parts of it were read."""

    digest: bytes | None
    size: int
    changed: int
    inode: int

    def same_times(self, now: os.stat_result) -> bool:
        return (self.size, self.changed, self.inode) == (now.st_size, now.st_mtime_ns, now.st_ino)


class LocalWorkspace:
    """View of one agent on a project; agents that share the files have a workspace each.

    `on_change` is called for each file that a tool has written, with the number of the turn.
    """

    def __init__(
        self,
        root: Path,
        *,
        granted: Iterable[Path] = (),
        cwd: Path | None = None,
        checkpoints: Checkpoints | None = None,
        changed: Callable[[int, Path], None] | None = None,
    ) -> None:
        self._root = Path(os.path.realpath(root))
        self._granted = tuple(Path(os.path.realpath(directory)) for directory in granted)
        self._cwd = self._root if cwd is None else Path(os.path.normpath(self._root / cwd))
        self._checkpoints = checkpoints
        self._changed = changed
        self._turn = 0
        self.guard: Callable[[Path], None] | None = None
        """Called before a file is written; raises `WorkspaceError` to refuse."""
        self._seen: dict[Path, _Seen] = {}
        self._contents: OrderedDict[Path, bytes] = OrderedDict()
        self._cleared: set[Path] = set()
        """Directories already cleared of temporary files left by killed processes."""

    def beside(self, changed: Callable[[int, Path], None]) -> LocalWorkspace:
        """Create a workspace for another agent on the same files and directories; it has read nothing yet."""
        other = copy(self)
        other._changed = changed
        other._seen = {}
        other._contents = OrderedDict()
        return other

    def know(self, other: LocalWorkspace) -> None:
        """Mark as read what the agent of the other workspace has read, for its fork."""
        self._seen.update(other._seen)
        self._contents.update(other._contents)

    @property
    def root(self) -> Path:
        return self._root

    @property
    def cwd(self) -> Path:
        return self._cwd

    @property
    def granted(self) -> tuple[Path, ...]:
        return self._granted

    def grant(self, directory: Path) -> None:
        self._granted = (*self._granted, Path(os.path.realpath(directory)))

    def begin_turn(self, turn: int) -> None:
        self._turn = turn

    def move(self, cwd: Path) -> bool:
        if not self.contains(cwd) or not (self._cwd / cwd).is_dir():
            return False
        self._cwd = Path(os.path.normpath(self._cwd / cwd))
        return True

    def contains(self, path: Path) -> bool:
        try:
            # Follows links in every part, and keeps parts that do not exist yet.
            real = Path(os.path.realpath(self._cwd / path))
        except (OSError, ValueError):
            return False
        return any(real.is_relative_to(allowed) for allowed in (self._root, *self._granted))

    def locate(self, path: str) -> Path:
        if not path.strip():
            raise WorkspaceError("The path is empty.")
        if "\0" in path:
            raise WorkspaceError(f"The path {shown(path)!r} holds a NUL byte, which no file name can.")
        located = self._absolute(path)
        if "\\x" in path and not os.path.lexists(located):
            unescaped = meant(path)
            if "\0" not in unescaped and os.path.lexists(self._absolute(unescaped)):
                located = self._absolute(unescaped)
        return located

    def _absolute(self, path: str) -> Path:
        try:
            # Another user's ~name stays a file name.
            given = Path(path).expanduser() if path == "~" or path.startswith("~/") else path
            located = os.path.normpath(self._cwd / given)
            raw = os.fsencode(located)
        except UnicodeEncodeError:
            raise WorkspaceError(f"The path {shown(path)!r} is not text a file name can hold.") from None
        if len(raw) >= _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in raw.split(b"/")):
            raise WorkspaceError(
                f"The path {shown(path)[:80]}… is too long: a part may have {_LONGEST_NAME} bytes, "
                f"the whole path {_LONGEST_PATH}."
            )
        return Path(located)

    def read(self, path: Path) -> bytes:
        real = _real(path)
        content, state = content_of(real)
        self._remember(real, content, state)
        return content

    def open(self, path: Path) -> BinaryIO:
        real = _real(path)
        file = opened(real)
        state = os.fstat(file.fileno())
        known = self._seen.get(real)
        if known is None or not known.same_times(state):
            self._seen[real] = _Seen(None, state.st_size, state.st_mtime_ns, state.st_ino)
            self._contents.pop(real, None)
        return file

    def current(self, path: Path, *, intended: bytes | None = None) -> bytes:
        real = _real(path)
        content, state = content_of(real)
        self._refuse_stale(real, content, state, intended=intended)
        return content

    def write(self, path: Path, content: bytes) -> None:
        real = _real(path)
        if self.guard is not None:
            self.guard(real)
        if real.parent not in self._cleared:
            self._cleared.add(real.parent)
            clear_abandoned(real.parent)
        if os.path.lexists(real):
            with opened_alone(real) as file:
                before, state = whole(real, file)
                self._refuse_stale(real, before, state, intended=content)
                self._replace(real, before, content, state)
        else:
            self._create(real, content)
        if self._changed is not None:
            self._changed(self._turn, real)
        try:
            self._remember(real, content, real.stat())
        except OSError:
            self._forget(real)

    def _create(self, real: Path, content: bytes) -> None:
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            self._keep(real, None, content, None)
            create(real, content)
        except FileExistsError as error:
            if real.exists():
                raise WorkspaceError(
                    f"{shown(real)} came to be there just now, made by somebody else. "
                    "Nothing was written. Read it before writing to it."
                ) from None
            raise complaint("write", real, error) from None
        except OSError as error:
            raise complaint("write", real, error) from None

    def _replace(self, real: Path, before: bytes, content: bytes, state: os.stat_result) -> None:
        try:
            if not os.access(real, os.W_OK):
                raise PermissionError(13, "the file is write-protected")
            self._keep(real, before, content, stat.S_IMODE(state.st_mode))
            replace(real, content, like=state)
        except OSError as error:
            raise complaint("write", real, error) from None

    def _keep(self, real: Path, before: bytes | None, after: bytes, mode: int | None) -> None:
        if self._checkpoints is not None:
            self._checkpoints.keep(self._turn, real, before=before, after=after, mode=mode)

    def _remember(self, real: Path, content: bytes, state: os.stat_result) -> None:
        self._seen[real] = _Seen(sha256(content).digest(), state.st_size, state.st_mtime_ns, state.st_ino)
        self._contents.pop(real, None)
        if len(content) <= _KEPT_FOR_DIFFERENCES:
            self._contents[real] = content
            if len(self._contents) > _KEPT_FILES:
                self._contents.popitem(last=False)

    def _forget(self, real: Path) -> None:
        self._seen.pop(real, None)
        self._contents.pop(real, None)

    def _refuse_stale(
        self, real: Path, content: bytes, state: os.stat_result, *, intended: bytes | None
    ) -> None:
        seen = self._seen.get(real)
        if seen is None:
            told = f"{shown(real)} exists and has not been read. Nothing was written; read it first."
            if intended is not None:
                told += f" What the write would change:\n{_told(content, intended)}"
            raise WorkspaceError(told)
        fresh = seen.same_times(state) if seen.digest is None else seen.digest == sha256(content).digest()
        if fresh:
            return
        told = (
            f"{shown(real)} has changed since it was read, by somebody else or by a command. "
            "Nothing was written; read it again and make the change anew."
        )
        known = self._contents.get(real)
        if known is not None:
            told += f" What has changed in it:\n{_told(known, content)}"
        elif intended is not None:
            told += f" What the write would change in it as it is now:\n{_told(content, intended)}"
        raise WorkspaceError(told)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        raise complaint("reach", path, error) from None
    except ValueError:
        raise WorkspaceError(f"The path {shown(path)!r} holds a NUL byte, which no file name can.") from None


def _told(old: bytes, new: bytes) -> str:
    if b"\0" in old[:8192] or b"\0" in new[:8192]:
        return f"(binary: {len(old):,} bytes became {len(new):,})"
    return difference(old.decode(errors="replace"), new.decode(errors="replace"))
