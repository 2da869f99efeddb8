"""A project, a home and the program for every test of the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from shoal_process import ShoalProgram


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def shoal(project: Path) -> ShoalProgram:
    return ShoalProgram(project)


@pytest.fixture
def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])
