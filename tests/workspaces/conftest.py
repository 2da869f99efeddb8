"""Shared fixtures of the worktree tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from git_repository import GitRepository


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return GitRepository(tmp_path)
