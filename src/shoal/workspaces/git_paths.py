"""Paths of the git repository around a directory: what commits write, and what controls git."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha1
from pathlib import Path

_MAX_LINE = 4096
_ASSUME_VALID = 0x80
"""Highest bit of an entry's flags: git does not look whether the file has changed."""
_KEPT_COPIES = 8


def iter_paths_written_by_git_commit(directory: Path) -> Iterator[Path]:
    """Yield the paths outside the directory that a commit writes: the repository around or behind it."""
    for ancestor in (directory, *directory.parents):
        dot = ancestor / ".git"
        if _is_git_directory(dot):
            if ancestor != directory:
                yield dot
            return
        entry = _find_git_worktree_entry(dot)
        if entry is not None:
            common = _read_git_common_directory(entry)
            yield from (entry, common / "objects", common / "refs", common / "logs")
            return


def iter_git_control_paths(directory: Path) -> Iterator[Path]:
    """Yield the paths that decide which programs git runs, so that an agent cannot change the user's git."""
    for ancestor in (directory, *directory.parents):
        dot = ancestor / ".git"
        if _is_git_directory(dot):
            yield from (dot / "hooks", dot / "config", dot / "config.worktree", dot / "commondir")
            for module in _iter_submodule_git_directories(dot / "modules"):
                yield from (module / "hooks", module / "config", module / "config.worktree")
            return
        entry = _find_git_worktree_entry(dot)
        if entry is not None:
            yield dot
            yield from (entry / name for name in ("gitdir", "commondir", "config.worktree"))
            return


def list_repositories_with_tracked_files(paths: Iterable[Path]) -> dict[Path, Path]:
    """Return each git directory whose index has one of these files or directories, with the first of them."""
    found: dict[Path, Path] = {}
    for path in paths:
        for top in path.parents:
            dot = top / ".git"
            git_directory = dot if _is_git_directory(dot) else _find_git_worktree_entry(dot)
            if git_directory is not None:
                if git_directory not in found and _is_tracked(git_directory / "index", path.relative_to(top)):
                    found[git_directory] = path
                break
    return found


def _is_tracked(index: Path, path: Path) -> bool:
    """Return True if the index has the file or a file in the directory, or cannot be understood."""
    try:
        status = index.stat()
    except OSError:
        return False
    return _is_in_index(str(index), os.fsencode(path), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=256)
def _is_in_index(index: str, name: bytes, _mtime: int, _size: int) -> bool:
    try:
        content = Path(index).read_bytes()
        # The name of a directory in a sparse index ends with a slash.
        return any(
            each == name or each.startswith(name + b"/") or (each[-1:] == b"/" and name.startswith(each))
            for each in _iter_index_names(content)
        )
    except (OSError, ValueError, IndexError, struct.error):
        return True


def write_index_copies(
    repositories: Iterable[Path], hidden: Sequence[Path], directory: Path
) -> dict[Path, Path]:
    """Write a copy of each repository's index in which hidden files count as unchanged; return it by index.

    git compares such a file neither with the index nor with the disk, so that it does not look deleted. An
    index that cannot be understood is left out.
    """
    copies: dict[Path, Path] = {}
    for git_directory in repositories:
        index = git_directory / "index"
        try:
            content = bytearray(index.read_bytes())
            top = _find_work_tree(git_directory)
            names = [os.fsencode(path.relative_to(top)) for path in hidden if path.is_relative_to(top)]
            for position, name in [*_iter_index_entries(bytes(content))]:
                if any(name == each or name.startswith(each + b"/") for each in names):
                    content[position + 60] |= _ASSUME_VALID
            checksum = sha1(content[:-20], usedforsecurity=False).digest()
            digest = sha1(content + bytes(index), usedforsecurity=False).hexdigest()
            copy = directory / digest
            if not copy.exists():
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                unfinished = directory / f"{digest}.{os.getpid()}.{threading.get_ident()}"
                unfinished.write_bytes(content[:-20] + checksum)
                unfinished.replace(copy)
                _remove_old_copies(directory)
        except (OSError, ValueError, IndexError, struct.error):
            continue
        copies[index] = copy
    return copies


def _remove_old_copies(directory: Path) -> None:
    """Remove all except the newest copies, which commands may be about to use."""
    copies = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path in copies[:-_KEPT_COPIES]:
        path.unlink(missing_ok=True)


def _find_work_tree(git_directory: Path) -> Path:
    """Return the checkout of a git directory: its parent, or the one that a worktree's entry names."""
    if git_directory.name == ".git":
        return git_directory.parent
    return Path(_read_first_line(git_directory / "gitdir")).parent


def _iter_index_names(content: bytes) -> Iterator[bytes]:
    return (name for _, name in _iter_index_entries(content))


def _iter_index_entries(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield positions and names in an index with SHA-1 object ids. Raises `ValueError` for another format."""
    signature, version, count = struct.unpack_from(">4sLL", content)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index")
    position, name = 12, b""
    for _ in range(count):
        (flags,) = struct.unpack_from(">H", content, position + 60)
        start = position + (64 if flags & 0x4000 else 62)
        kept = b""
        if version == 4:  # a name without the part that it shares with the one before it
            removed, start = _read_offset(content, start)
            kept = name[: len(name) - removed]
        end = content.index(b"\0", start)
        name = kept + content[start:end]
        if flags & 0xFFF not in (len(name), 0xFFF):
            raise ValueError("not an index with SHA-1 object ids")
        yield position, name
        position = end + 1 if version == 4 else position + (end - position) // 8 * 8 + 8
    if content[position : position + 4] == b"link":
        raise ValueError("a split index")


def _read_offset(content: bytes, position: int) -> tuple[int, int]:
    byte = content[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        byte = content[position]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, position + 1


def contains_git_repository(directory: Path) -> bool:
    """Return True if a repository or the file of a worktree is there; an empty .git directory is neither."""
    dot = f"{directory}/.git"
    # Without a `Path`: each start of a session looks here many times.
    return os.path.isfile(dot) or _is_git_directory(dot)  # noqa: PTH113


def _iter_submodule_git_directories(modules: Path) -> Iterator[Path]:
    """Yield the git directories of submodules; a name with slashes is a directory in a directory."""
    try:
        directories = [path for path in modules.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return
    for directory in sorted(directories):
        if _is_git_directory(directory):
            yield directory
            yield from _iter_submodule_git_directories(directory / "modules")
        else:
            yield from _iter_submodule_git_directories(directory)


def _is_git_directory(dot: Path | str) -> bool:
    return os.path.lexists(f"{dot}/HEAD")


def read_head_commit_without_git(directory: Path) -> str | None:
    """Return the commit of the checkout around a directory from git's own files; None if that fails."""
    for ancestor in (directory, *directory.parents):
        dot = ancestor / ".git"
        if contains_git_repository(ancestor):
            entry = dot if dot.is_dir() else _find_git_worktree_entry(dot)
            return None if entry is None else _read_git_dir_head_commit(entry)
    return None


def _read_git_dir_head_commit(entry: Path) -> str | None:
    head = _read_first_line(entry / "HEAD")
    ref = head.removeprefix("ref: ")
    if ref == head:
        return head or None
    common = _read_git_common_directory(entry) if (entry / "commondir").exists() else entry
    return (
        _read_first_line(entry / ref)
        or _read_first_line(common / ref)
        or _find_packed_ref(common / "packed-refs", ref)
    )


def _find_packed_ref(path: Path, ref: str) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    return next((line.split(" ", 1)[0] for line in lines if line.endswith(f" {ref}")), None)


def _find_git_worktree_entry(git_file: Path) -> Path | None:
    """Return the `worktrees/NAME` directory in a worktree's .git file, if it refers back to the worktree."""
    gitdir = _read_first_line(git_file).removeprefix("gitdir: ")
    if not gitdir:
        return None
    entry = Path(os.path.realpath(git_file.parent / gitdir))
    # Anyone can write a .git file that names another repository; that one would not refer back to it.
    return (
        entry
        if os.path.realpath(entry / _read_first_line(entry / "gitdir")) == os.path.realpath(git_file)
        else None
    )


def _read_git_common_directory(entry: Path) -> Path:
    return Path(os.path.realpath(entry / (_read_first_line(entry / "commondir") or "../..")))


def _read_first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(_MAX_LINE)).split("\n", 1)[0]
    except OSError:
        return ""
