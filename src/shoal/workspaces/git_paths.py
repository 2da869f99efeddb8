"""Paths of the git repository around a directory: what commits write, and what controls git."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MAX_LINE = 4096
_WRITTEN_BY_GIT = ("HEAD", "index", "info", "logs", "objects", "packed-refs", "refs")


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


def find_link_of_git(git_directory: Path) -> Path | None:
    """Return a symbolic link through which git would write elsewhere; git itself creates none of them."""
    places = [git_directory / name for name in _WRITTEN_BY_GIT]
    objects = _iter_entries(git_directory / "objects")
    trees = (entry for name in ("refs", "logs") for entry in _walk_entries(git_directory / name))
    return next((path for path in (*places, *objects, *trees) if path.is_symlink()), None)


def _walk_entries(directory: Path) -> Iterator[Path]:
    for parent, directories, files in os.walk(directory):
        yield from (Path(parent, name) for name in (*directories, *files))


def _iter_entries(directory: Path) -> Iterator[Path]:
    try:
        yield from directory.iterdir()
    except OSError:
        return


def find_git_directory(path: Path) -> tuple[Path, Path] | None:
    """Return the git directory of the checkout that contains a path, and the top of the checkout."""
    for top in path.parents:
        dot = top / ".git"
        git_directory = dot if _is_git_directory(dot) else _find_git_worktree_entry(dot)
        if git_directory is not None:
            return git_directory, top
    return None


def find_work_tree(git_directory: Path) -> Path:
    """Return the checkout of a git directory: its parent, or the one that a worktree's entry names."""
    if git_directory.name == ".git":
        return git_directory.parent
    return Path(_read_first_line(git_directory / "gitdir")).parent


def get_git_common_directory(git_directory: Path) -> Path:
    """Return the directory that all worktrees of a repository share."""
    return git_directory if git_directory.name == ".git" else _read_git_common_directory(git_directory)


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
