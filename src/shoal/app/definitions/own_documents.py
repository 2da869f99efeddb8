"""Where Shoal's own documents are: beside the installed program, or in the checkout it runs from."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[2]


def documents_directory() -> Path:
    """Holds the pages of `docs`. A wheel carries them inside the package."""
    installed = _PACKAGE / "docs"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "docs"


def index() -> Path:
    """The page that leads to all others."""
    return documents_directory() / "README.md"
