"""Directories below the home, opened step by step from its handle."""

from __future__ import annotations

from pathlib import Path

from shoal.stores.files.handles import Directory


def inside(home: Path, *steps: str) -> Directory:
    """The directory; what is missing is made."""
    root = Directory.root(home)
    try:
        return root.within(*steps)
    finally:
        root.close()


def found_inside(home: Path, *steps: str) -> Directory | None:
    """The directory, or None where it is missing."""
    if not home.is_dir():
        return None
    root = Directory.root(home)
    try:
        return root.existing(*steps)
    finally:
        root.close()
