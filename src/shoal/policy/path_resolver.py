"""Resolution of the paths in a tool call, and checks against the working directories."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from os.path import normpath
from pathlib import Path
from typing import Literal, TypeAlias

from shoal.core.errors import WorkspaceError
from shoal.core.ports import Workspace
from shoal.core.text.filenames import escape_filename
from shoal.policy.policy_texts import format_policy_notice
from shoal.policy.protected_files import is_protected_path
from shoal.policy.wildcards import GLOB, expand_path_wildcards

PathKind: TypeAlias = Literal["file", "directory", "unclear"]

_OPENAT2 = 437
_NO_LINKS = 0x02 | 0x04  # RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS
_CURRENT = -100  # AT_FDCWD, ignored for absolute paths
_NO_DIRECTORY = (errno.ENOTDIR, errno.ENOENT)
_ODD_STARTS = ("", "~", " ", "\t", "\n")


class PathResolver:
    """Resolves paths relative to an agent's working directories.

    `home` is Shoal's own directory, or the resolver of the parent agent, which knows it.
    """

    def __init__(self, workspace: Workspace, home: Path | PathResolver | None = None) -> None:
        self._workspace = workspace
        self._check_path: Callable[[str], PathKind] | None = None
        self._granted: tuple[Path, ...] | None = None
        self._cwd: Path | None = None
        self._cwd_text = ""
        self._inside: tuple[str, ...] = ()
        self.root = str(workspace.root)
        self.user = workspace.user
        if isinstance(home, PathResolver):
            self._home: str = home._home
        else:
            self._home = "" if home is None else f"{os.path.realpath(home)}/"
        # In lower case: the file system may ignore case.
        own_directory = f"{self._home}shoal/".lower()
        self._secrets = (
            f"{own_directory}keys/",
            f"{own_directory}credentials.json",
            f"{own_directory}.credentials.json",
        )
        self._below_root = f"{self.root}/"
        self._is_below_home = self._is_in_shoal_home(self.root)

    def resolve_path(self, text: str) -> tuple[str, bool]:
        """Return the absolute path with links followed, and True if it is a directory.

        Raises `WorkspaceError` with a text for the model.
        """
        cwd = self._workspace.cwd
        if cwd is not self._cwd:
            self._cwd, self._cwd_text = cwd, f"{cwd}/"
        path = _join_plain_path(self._cwd_text, text) if ".." not in text else None
        if path is None:
            path = self._make_absolute_path(text)
        try:
            kind = (self._check_path or self._load_symlink_free_checker())(path)
        except UnicodeEncodeError:
            kind = "unclear"
        if kind != "unclear":
            return path, kind == "directory"
        return _follow_symlinks(str(self._workspace.resolve_path(text)))

    def list_possible_paths(self, text: str) -> tuple[str, ...]:
        """Return the real paths that an ambiguous path may mean to different programs; see `link/..`."""
        path = text if text.startswith("/") else self._get_cwd_prefix() + text
        try:
            return os.path.realpath(path), os.path.realpath(normpath(path))
        except (OSError, ValueError):
            return ()

    def expand_path_wildcards(self, path: str) -> Iterator[str]:
        """Yield the real paths that the wildcards in a word match now; none without wildcards.

        Raises `TooManyDirectoryEntriesError` if expanding them takes too long.
        """
        if GLOB.search(path):
            yield from expand_path_wildcards(path if path.startswith("/") else self._get_cwd_prefix() + path)

    def is_inside_workspace(self, real: str) -> bool:
        """Return True if the path is in the project or a granted directory."""
        if real.startswith(self._below_root):
            return True
        if self._workspace.granted_directories is not self._granted:
            self._granted = self._workspace.granted_directories
            roots = (self.root, *map(str, self._granted))
            self._inside = tuple(f"{root.rstrip('/')}/" for root in roots)
        return f"{real}/".startswith(self._inside)

    @property
    def is_at_root(self) -> bool:
        return self._get_cwd_prefix() == self._below_root

    @property
    def directories(self) -> tuple[str, ...]:
        return (self.root, *map(str, self._workspace.granted_directories))

    def is_shoal_secret_file(self, real: str) -> bool:
        """Return True for Shoal's keys and credentials; a dot file is left by a writer that died."""
        return bool(self._home) and f"{real}/".lower().startswith(self._secrets)

    @property
    def has_home(self) -> bool:
        return bool(self._home)

    def is_above_shoal_secret_files(self, real: str) -> bool:
        return bool(self._home) and f"{self._home}shoal/keys/".startswith(f"{real.rstrip('/')}/")

    def is_change_guarded(self, real: str) -> bool:
        """Return True if the path never changes without asking: a protected file, or one of Shoal's own."""
        if real.startswith(self._below_root):
            # The project itself may lie below a protected directory, as worktrees do.
            if is_protected_path(real, len(self.root)):
                return True
            return not self._is_below_home and self._is_in_shoal_home(real)
        return is_protected_path(real) or self._is_in_shoal_home(real)

    def _is_in_shoal_home(self, real: str) -> bool:
        return bool(self._home) and f"{real}/".startswith(self._home)

    def _make_absolute_path(self, text: str) -> str:
        """Return a path that is not plain as the tools find it, without following links."""
        if ".." in text:
            _refuse_symlink_parent(self._workspace, text)
        path = str(self._workspace.resolve_path(text))
        return path[1:] if path.startswith("//") else path

    def _get_cwd_prefix(self) -> str:
        """Return the working directory as a prefix for relative paths."""
        cwd = self._workspace.cwd
        if cwd is not self._cwd:
            self._cwd, self._cwd_text = cwd, f"{cwd}/"
        return self._cwd_text

    def _load_symlink_free_checker(self) -> Callable[[str], PathKind]:
        self._check_path = create_symlink_free_checker()
        return self._check_path


class CommandPathResolver:
    """Resolves the paths of one shell command, each only once, because several rules check the same file.

    Call `forget` before the next command: files may have changed.
    """

    def __init__(self, paths: PathResolver) -> None:
        self._paths = paths
        self.root = paths.root
        self.user = paths.user
        self.expand_path_wildcards = paths.expand_path_wildcards
        self._resolved: dict[str, tuple[str, bool]] = {}
        self.forget = self._resolved.clear

    @property
    def directories(self) -> tuple[str, ...]:
        return self._paths.directories

    @property
    def is_at_root(self) -> bool:
        """True if relative paths are relative to the root of the project."""
        return self._paths.is_at_root

    def resolve_path(self, path: str) -> tuple[str, bool]:
        """Return the real path, and True if it is a directory. Raises `WorkspaceError`."""
        found = self._resolved.get(path)
        if found is None:
            found = self._resolved[path] = self._paths.resolve_path(path)
        return found

    def list_real_paths(self, path: str) -> tuple[str, ...]:
        """Return the real path, or those that an ambiguous path may mean to different programs."""
        try:
            found = self._resolved.get(path)
            if found is None:
                found = self._resolved[path] = self._paths.resolve_path(path)
            return found[:1]
        except WorkspaceError:
            return self._paths.list_possible_paths(path)

    def is_existing_path(self, word: str) -> bool:
        try:
            return os.path.lexists(self.resolve_path(word)[0])
        except WorkspaceError:
            return False


@lru_cache(maxsize=2048)  # caches text only: where the path leads is checked each time
def _join_plain_path(prefix: str, text: str) -> str | None:
    """Return a path without `..` as absolute and normalized, or None if its text is not plain."""
    if text[:1] in _ODD_STARTS or "\0" in text or "\\" in text:
        return None
    path = text if text[0] == "/" else prefix + text
    if "//" in path or "/." in path or path[-1] == "/":
        path = normpath(path)
    return path[1:] if path.startswith("//") else path


def _follow_symlinks(path: str) -> tuple[str, bool]:
    try:
        real = os.path.realpath(path)
        is_directory = Path(real).is_dir()
    except OSError as error:
        raise WorkspaceError(_format_path_error(path, error)) from None
    except ValueError:
        raise WorkspaceError(format_policy_notice("nul_in_path", path=repr(escape_filename(path)))) from None
    _refuse_symlink_loops(path, real)
    return real, is_directory


def _refuse_symlink_loops(path: str, real: str) -> None:
    # `realpath` leaves a loop unresolved; `stat` on the result detects it.
    try:
        Path(real).stat()
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise WorkspaceError(_format_path_error(path, error)) from None


def _format_path_error(path: str, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return format_policy_notice("link_loop", path=escape_filename(path))
    return format_policy_notice("unresolved_path", path=escape_filename(path)[:200], error=error.strerror)


def _refuse_symlink_parent(workspace: Workspace, text: str) -> None:
    """Refuse `link/..`: to some programs it is the link's directory, to others the parent of its target."""
    parts = text.split("/")
    if ".." not in parts or "\0" in text:
        return
    current = Path("/") if text.startswith("/") else workspace.cwd
    for part in parts:
        if part == "..":
            if os.path.islink(current):  # noqa: PTH114 - it returns False for unreadable directories and for impossible names
                raise WorkspaceError(
                    format_policy_notice(
                        "link_and_parent", path=escape_filename(text), link=escape_filename(current)
                    )
                )
            current = current.parent
        else:
            current = current / part


def create_symlink_free_checker() -> Callable[[str], PathKind]:
    """Return a function that reports what lies at an absolute, normalized path if no link is on the way.

    The result is "file" also for a path that does not exist yet; "unclear" means that a closer check is
    needed.
    """
    if not sys.platform.startswith("linux"):
        return lambda path: "unclear"
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    how = OpenHow(os.O_PATH | os.O_CLOEXEC, 0, _NO_LINKS)
    address = ctypes.byref(how)
    size = ctypes.sizeof(how)
    # Small integers, bytes and a reference are passed as they are; declared types cost half a microsecond.
    call = ctypes.CDLL(None, use_errno=True).syscall
    get_errno, close = ctypes.get_errno, os.close

    def check_symlink_free_path(path: str) -> PathKind:
        # With a trailing slash a file is refused as "not a directory" after its path was resolved,
        # so no descriptor is opened that would have to be closed again.
        found: int = call(_OPENAT2, _CURRENT, f"{path}/".encode("utf-8", "surrogateescape"), address, size)
        if found >= 0:
            close(found)
            return "directory"
        return "file" if get_errno() in _NO_DIRECTORY else "unclear"

    return check_symlink_free_path
