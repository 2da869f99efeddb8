"""Directories of a project that are searched for its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from shoal.workspaces.git_paths import contains_git_repository


def iter_project_directories(cwd: Path) -> Iterator[Path]:
    """Yield `cwd` and its parents up to the repository root, nearest first; else only `cwd`."""
    directories = (cwd, *cwd.parents)
    depth = next(
        (number for number, directory in enumerate(directories) if contains_git_repository(directory)), 0
    )
    return iter(directories[: depth + 1])


def exclude_directory(excluded: Path, directories: Iterable[Path]) -> Iterator[Path]:
    """Yield the directories except `excluded`, the user's own directory, which may be inside a project."""
    real_path = excluded.resolve()
    return (directory for directory in directories if directory.resolve() != real_path)
