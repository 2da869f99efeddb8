"""Project of the demo: real files in a git repository, and the changes the agents make to them."""

from __future__ import annotations

import difflib
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import WorktreeError

TASK_PROMPT = "This project's tests fail. Have agents fix the code, not the tests."
TEST_COMMAND = ("python3", "-m", "unittest", "-q")
_SUFFIX = ".txt"
"""Suffix that keeps the shipped project files from being treated as code of this package."""
SCRIPT_FILE = "model.toml"


def create_tutorial_project(directory: Path) -> None:
    """Create the project. Raises `FileExistsError` if the directory exists."""
    directory.mkdir()
    write_demo_project(directory)
    text = (files("shoal.app.demo") / "tutorial" / SCRIPT_FILE).read_text(encoding="utf-8")
    (directory / SCRIPT_FILE).write_text(text, encoding="utf-8")


class DemoFileChange(Struct, frozen=True, kw_only=True):
    path: str
    removed: tuple[str, ...]
    added: tuple[str, ...]


def write_demo_project(directory: Path) -> None:
    """Write the project; the directory must not contain one yet."""
    for path, content in _iter_original_demo_files():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(content)


def init_repository_with_commit(directory: Path) -> None:
    """Create a repository with one commit. Raises `WorktreeError` if git is missing or fails."""
    for arguments in (
        ("init", "-q", "."),
        ("symbolic-ref", "HEAD", "refs/heads/main"),
        ("add", "-A"),
        ("commit", "-q", "-m", "A small harbour"),
    ):
        try:
            result = subprocess.run(
                ("git", *arguments), cwd=directory, capture_output=True, check=False, text=True
            )
        except FileNotFoundError:
            raise WorktreeError(
                "The demo project is a git repository, but git is not installed. Install git first."
            ) from None
        if result.returncode:
            raise WorktreeError(f"git {arguments[0]} failed in the demo project: {result.stderr.strip()}")


def find_demo_project_changes(directory: Path) -> list[DemoFileChange]:
    """Return the difference from the original project, line by line."""
    found: list[DemoFileChange] = []
    for path, before in _iter_original_demo_files():
        after = (directory / path).read_text(encoding="utf-8")
        if after != before:
            lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
            found.append(
                DemoFileChange(
                    path=path,
                    removed=tuple(line[2:] for line in lines if line.startswith("- ")),
                    added=tuple(line[2:] for line in lines if line.startswith("+ ")),
                )
            )
    return found


def _iter_original_demo_files() -> Iterator[tuple[str, str]]:
    yield from _iter_demo_text_files(files("shoal.app.demo") / "project", "")


def _iter_demo_text_files(directory: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(directory.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _iter_demo_text_files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield prefix + entry.name.removesuffix(_SUFFIX), entry.read_text(encoding="utf-8")
