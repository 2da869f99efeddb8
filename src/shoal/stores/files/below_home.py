"""Directories inside the home, opened step by step from its handle."""

from __future__ import annotations

from pathlib import Path

from shoal.stores.files.handles import Directory
from shoal.stores.files.places import unwritable


def inside(home: Path, *steps: str) -> Directory:
    """Open the directory; create missing parts."""
    with Directory.root(home) as root:
        return root.within(*steps)


def found_inside(home: Path, *steps: str) -> Directory | None:
    """Open the directory; return None if it is missing."""
    try:
        if not home.is_dir():
            return None
    except OSError as error:
        raise unwritable(home, error) from error
    with Directory.root(home) as root:
        return root.existing(*steps)
