"""Directories inside the home, opened step by step from its handle."""

from __future__ import annotations

from pathlib import Path

from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.home.home_paths import build_write_error


def open_or_create_home_subdirectory(home: Path, *parts: str, durable: bool = False) -> DirectoryHandle:
    """Open the directory; create missing parts."""
    with DirectoryHandle.open_root(home, durable=durable) as root:
        return root.open_or_create(*parts)


def open_existing_home_subdirectory(home: Path, *parts: str, durable: bool = False) -> DirectoryHandle | None:
    """Open the directory; return None if it is missing."""
    root = DirectoryHandle.open_existing_root(home, durable=durable)
    if root is not None:
        with root:
            return root.open_existing(*parts)
    try:
        if not home.is_dir():
            return None
    except OSError as error:
        raise build_write_error(home, error) from error
    with DirectoryHandle.open_root(home, durable=durable) as root:
        return root.open_existing(*parts)
