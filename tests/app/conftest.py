"""Fixtures for tests of whole sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_session_helpers import create_git_project

from hook_helpers import HookInputLog
from old_home import OldHome, unpack_home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create an empty project directory."""
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def hook_log(tmp_path: Path) -> HookInputLog:
    return HookInputLog(tmp_path / "hook-inputs.jsonl")


@pytest.fixture
def old_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldHome:
    """Unpack the home of an earlier commit and use it as SHOAL_HOME."""
    home = unpack_home(tmp_path)
    monkeypatch.setenv("SHOAL_HOME", str(home.home))
    return home


@pytest.fixture
def git_project(tmp_path: Path) -> Path:
    return create_git_project(tmp_path)
