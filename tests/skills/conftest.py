"""A project, a git repository and the home for every test of skills and instructions."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repository"
    path.mkdir()
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path
