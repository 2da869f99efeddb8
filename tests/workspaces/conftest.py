"""Shared fixtures of the worktree tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from git_rig import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)
