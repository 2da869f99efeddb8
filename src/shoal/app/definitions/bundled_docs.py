"""Location of Shoal's own docs: inside the installed package, or in the checkout from which it runs."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[2]


def find_bundled_docs_directory() -> Path:
    """Return the directory with the pages of `docs`. A wheel carries them inside the package."""
    installed = _PACKAGE / "docs"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "docs"


def find_bundled_docs_index() -> Path:
    """Return the page that links to all others."""
    return find_bundled_docs_directory() / "README.md"
