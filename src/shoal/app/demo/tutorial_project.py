"""The tutorial's project: the demo's small harbour, and a script that stands in for a model."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from shoal.app.demo.harbour import lay_out

SCRIPT = "model.toml"


def make(directory: Path) -> None:
    """Raises `FileExistsError` where the directory is there already."""
    directory.mkdir()
    lay_out(directory)
    text = (files("shoal.app.demo") / "tutorial" / SCRIPT).read_text(encoding="utf-8")
    (directory / SCRIPT).write_text(text, encoding="utf-8")
