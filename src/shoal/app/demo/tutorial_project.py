"""Project of the tutorial: the demo's files and the script of a scripted model."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from shoal.app.demo.harbour import lay_out

SCRIPT = "model.toml"


def make(directory: Path) -> None:
    """Create the project. Raises `FileExistsError` if the directory exists."""
    directory.mkdir()
    lay_out(directory)
    text = (files("shoal.app.demo") / "tutorial" / SCRIPT).read_text(encoding="utf-8")
    (directory / SCRIPT).write_text(text, encoding="utf-8")
