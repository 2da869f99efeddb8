"""Directories below the home, opened step by step from its handle."""

from __future__ import annotations

from pathlib import Path

from shoal.stores.files.handles import Directory
from shoal.stores.files.places import unwritable


def inside(home: Path, *steps: str) -> Directory:
    """The directory; what is missing is made."""
    with Directory.root(home) as root:
        return root.within(*steps)


def found_inside(home: Path, *steps: str) -> Directory | None:
    """The directory, or None where it is missing."""
    try:
        if not home.is_dir():
            return None
    except OSError as error:
        raise unwritable(home, error) from error
    with Directory.root(home) as root:
        return root.existing(*steps)
