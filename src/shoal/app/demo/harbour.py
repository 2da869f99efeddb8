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

TASK = "The tests of this project fail. Have the code repaired, not the tests."
TESTS = ("python3", "-m", "unittest", "-q")
_SUFFIX = ".txt"
"""Suffix that keeps the shipped project files from being treated as code of this package."""


class Changed(Struct, frozen=True, kw_only=True):
    path: str
    removed: tuple[str, ...]
    added: tuple[str, ...]


def lay_out(directory: Path) -> None:
    """Write the project; the directory must not contain one yet."""
    for path, content in _originals():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(content)


def put_under_git(directory: Path) -> None:
    """Create a repository with one commit. Raises `WorktreeError` if git is missing or fails."""
    for words in (
        ("init", "-q", "."),
        ("symbolic-ref", "HEAD", "refs/heads/main"),
        ("add", "-A"),
        ("commit", "-q", "-m", "A small harbour"),
    ):
        try:
            done = subprocess.run(("git", *words), cwd=directory, capture_output=True, check=False, text=True)
        except FileNotFoundError:
            raise WorktreeError("The demo's project is a git repository. Install git first.") from None
        if done.returncode:
            raise WorktreeError(f"git {words[0]} failed in the demo's project: {done.stderr.strip()}")


def changes(directory: Path) -> list[Changed]:
    """Return the difference from the original project, line by line."""
    found: list[Changed] = []
    for path, before in _originals():
        after = (directory / path).read_text(encoding="utf-8")
        if after != before:
            lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
            found.append(
                Changed(
                    path=path,
                    removed=tuple(line[2:] for line in lines if line.startswith("- ")),
                    added=tuple(line[2:] for line in lines if line.startswith("+ ")),
                )
            )
    return found


def _originals() -> Iterator[tuple[str, str]]:
    yield from _texts(files("shoal.app.demo") / "project", "")


def _texts(directory: Traversable, within: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(directory.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _texts(entry, f"{within}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield within + entry.name.removesuffix(_SUFFIX), entry.read_text(encoding="utf-8")
