"""A directory of an agent's own that a hook names: what cannot be one is refused with what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core.errors import WorktreeError
from shoal.workspaces.given_worktree import given_worktree


def given(path, root):
    return given_worktree(Path(path), root=root, agent="a1", session="s", now=1)


def test_a_directory_beside_the_project_is_taken(tmp_path):
    root, own = tmp_path / "project", tmp_path / "own"
    root.mkdir()
    own.mkdir()
    assert given(own, root).path == own


@pytest.mark.parametrize("name", ["relative", "/nowhere/at/all", "/" + "x" * 300, "/a\0b", "/etc/passwd/x"])
def test_what_is_no_directory_is_refused(tmp_path, name):
    with pytest.raises(WorktreeError, match="is no directory"):
        given(name, tmp_path)


def test_what_holds_the_project_is_refused(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    with pytest.raises(WorktreeError, match="where the lead works"):
        given(tmp_path, root)
