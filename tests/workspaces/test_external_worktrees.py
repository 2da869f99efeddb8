"""Worktrees that a hook provides: an unusable directory is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core.errors import WorktreeError
from shoal.workspaces.external_worktree import open_external_worktree


def open_worktree(path, root):
    return open_external_worktree(Path(path), root=root, agent="a1", session="s", now=1)


def test_a_directory_next_to_the_project_is_accepted(tmp_path):
    root, own = tmp_path / "project", tmp_path / "own"
    root.mkdir()
    own.mkdir()
    assert open_worktree(own, root).path == own


@pytest.mark.parametrize("name", ["relative", "/nowhere/at/all", "/" + "x" * 300, "/a\0b", "/etc/passwd/x"])
def test_a_path_that_is_not_a_directory_is_refused(tmp_path, name):
    with pytest.raises(WorktreeError, match="is not a directory"):
        open_worktree(name, tmp_path)


def test_a_directory_that_contains_the_project_is_refused(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    with pytest.raises(WorktreeError, match="the lead's working directory"):
        open_worktree(tmp_path, root)
