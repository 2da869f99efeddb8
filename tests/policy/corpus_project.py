"""A project on disk for the corpora of attempts and of daily commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from permission_helpers import create_engine

from git_repository import run_git
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.policy.permission_engine import PermissionEngine

_CORPUS = Path(__file__).parent / "corpus"
_CHARACTER_MAP = str.maketrans({"⏎": "\n", "␍": "\r", "⍽": "\xa0"})
_FILES = (
    *(
        "README.md",
        "src/main.py",
        "src/util.py",
        "tests/test_main.py",
        "docs/guide.md",
        ".env",
        "secrets/key",
    ),
    *("data.csv", "data.json", "package.json", "config.yaml", "Makefile", ".gitignore", "pyproject.toml"),
)


def create_corpus_project(directory: Path) -> Path:
    """Create a repository with secrets, and beside it a file `outside/key`; return its path."""
    project = directory / "project"
    for name in _FILES:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x\n")
    (project / "pyproject.toml").write_text('[project]\nname = "x"\n')
    (directory / "outside").mkdir()
    (directory / "outside/key").write_text("x\n")
    run_git(project, "init", "-q", "-b", "main")
    run_git(project, "add", "-A")
    run_git(project, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "-m", "first")
    return project


def load_commands(name: str) -> list[str]:
    return [command for command in read_corpus_lines(name) if not command.startswith("setting:")]


def iter_attempts(project: Path) -> Iterator[tuple[str, PermissionEngine, str]]:
    """Yield each attempt with the settings of its section, as a text and as an engine."""
    setting, engine = "", create_engine(project)
    for line in read_corpus_lines("attempts.txt"):
        if line.startswith("setting:"):
            setting = line.removeprefix("setting:").strip()
            fields = dict(each.split("=", 1) for each in setting.split(" ; "))
            name = fields.pop("mode")
            mode: PermissionMode = next(each for each in get_args(PermissionMode) if each == name)
            engine = create_engine(project, mode, home=project.parent / "home", **fields)
        else:
            yield setting, engine, line.replace("OUTSIDE", str(project.parent / "outside/key"))


def read_corpus_lines(name: str) -> list[str]:
    lines = (_CORPUS / name).read_text(encoding="utf-8").split("\n")
    return [line.translate(_CHARACTER_MAP) for line in lines if line and not line.startswith("#")]
