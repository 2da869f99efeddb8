"""Decisions on a project whose directory has any name are stored, found and removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.wire.trust_codec import TrustDecision


@pytest.mark.parametrize("name", ["plain", "水 管", os.fsdecode(b"caf\xe9"), "bytes:00"])
def test_a_project_of_any_name_keeps_its_own_decisions(home: Path, tmp_path: Path, name: str) -> None:
    project, other = tmp_path / name, tmp_path / os.fsdecode(b"caf\xe8")
    trust, decision = ProjectTrustFile(home), TrustDecision(digest="d", trusted=True, at=1)
    trust.store_trust_decisions(project, {"settings.json": decision})
    assert trust.get_trust_decision(project, "settings.json") == decision
    assert trust.get_trust_decision(other, "settings.json") is None
    worktree = project / ".claude" / "worktrees" / "one"
    assert trust.get_trust_decision(worktree, "settings.json") == decision
    trust.remove_project_decisions(project)
    assert trust.get_trust_decision(project, "settings.json") is None
