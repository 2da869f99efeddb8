"""Project of the tutorial: the demo's files and the script of a scripted model."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from shoal.app.demo.demo_project import write_demo_project

SCRIPT_FILE = "model.toml"


def create_tutorial_project(directory: Path) -> None:
    """Create the project. Raises `FileExistsError` if the directory exists."""
    directory.mkdir()
    write_demo_project(directory)
    text = (files("shoal.app.demo") / "tutorial" / SCRIPT_FILE).read_text(encoding="utf-8")
    (directory / SCRIPT_FILE).write_text(text, encoding="utf-8")
