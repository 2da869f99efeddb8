"""Where Shoal's own documents are: beside the installed program, or in the checkout it runs from."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def documents_directory() -> Path:
    """Holds the pages of `docs`. A wheel carries them, with the README, inside the package."""
    installed = _PACKAGE / "docs"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "docs"


def readme() -> Path:
    installed = _PACKAGE / "docs" / "README.md"
    return installed if installed.is_file() else _PACKAGE.parents[1] / "README.md"
