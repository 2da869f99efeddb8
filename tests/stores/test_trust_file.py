"""Decisions on a project whose directory has any name are stored, found and removed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shoal.core.errors import StateFileError
from shoal.stores.files.home.trust_file import (
    ProjectTrustFile,
    find_project_of_worktree,
    get_sent_trust_file,
    store_sent_decisions,
)
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


YES = TrustDecision(digest="d", trusted=True, at=1)
NO = TrustDecision(digest="e", trusted=False, at=2)


def test_each_file_of_a_project_has_its_own_decision_until_it_is_removed(home: Path, tmp_path: Path) -> None:
    trust, one, two = ProjectTrustFile(home), tmp_path / "one", tmp_path / "two"
    assert trust.get_trust_decision(one, "a.json") is None
    trust.store_trust_decisions(one, {"a.json": YES, "b.json": NO})
    trust.store_trust_decisions(two, {"a.json": NO})
    assert stat.S_IMODE(trust.path.stat().st_mode) == 0o600
    assert [trust.get_trust_decision(one, name) for name in ("a.json", "b.json", "c.json")] == [YES, NO, None]
    trust.store_trust_decisions(one, {"a.json": None, "c.json": None})
    assert [trust.get_trust_decision(one, name) for name in ("a.json", "b.json")] == [None, NO]
    trust.remove_project_decisions(one)
    assert trust.get_trust_decision(one, "b.json") is None
    assert trust.get_trust_decision(two, "a.json") == NO
    # A link leads to the same project.
    (tmp_path / "link").symlink_to(two)
    assert trust.get_trust_decision(tmp_path / "link", "a.json") == NO


def test_a_checkout_on_another_machine_has_the_decisions_of_its_lead(home: Path, tmp_path: Path) -> None:
    trust, project = ProjectTrustFile(home), tmp_path / "project"
    trust.store_trust_decisions(project, {"a.json": YES, "b.json": NO})
    sent = trust.list_project_decisions(project)
    assert sent == {"a.json": YES, "b.json": NO}
    assert trust.list_project_decisions(tmp_path / "other") == {}
    there = ProjectTrustFile(tmp_path / "there")
    checkout = tmp_path / "there" / "shoal" / "cluster" / "checkouts" / "s1-ann"
    checkout.mkdir(parents=True)
    store_sent_decisions(checkout, sent)
    assert there.get_trust_decision(checkout, "a.json") == YES
    assert there.get_trust_decision(checkout / "packages" / "one", "b.json") == NO
    assert there.get_trust_decision(checkout.with_name("s1-ben"), "a.json") is None
    assert there.get_trust_decision(checkout.parent, "a.json") is None
    # The person at the other machine decides on this directory, too.
    there.store_trust_decisions(checkout, {"a.json": NO})
    assert there.get_trust_decision(checkout, "a.json") == NO
    get_sent_trust_file(checkout).write_text("[]")
    with pytest.raises(StateFileError):
        there.get_trust_decision(checkout, "b.json")


@pytest.mark.parametrize(
    ("directory", "is_worktree"),
    [
        (".claude/worktrees/one", True),
        (".claude/worktrees", False),
        (".claude/worktrees/one/src", False),
        (".claude/other/one", False),
        ("worktrees/one", False),
        ("sub/.claude/worktrees/one", False),
    ],
)
def test_only_a_worktree_has_the_decisions_of_its_project(
    home: Path, tmp_path: Path, directory: str, is_worktree: bool
) -> None:
    trust, project = ProjectTrustFile(home), tmp_path / "project"
    trust.store_trust_decisions(project, {"a.json": YES})
    assert trust.get_trust_decision(project / directory, "a.json") == (YES if is_worktree else None)
    trust.store_trust_decisions(project / directory, {"a.json": NO})
    assert trust.get_trust_decision(project / directory, "a.json") == NO
    assert trust.get_trust_decision(project, "a.json") == YES


def test_a_directory_at_the_root_is_no_worktree() -> None:
    for path in ("/", "/one", "/worktrees/one"):
        assert find_project_of_worktree(Path(path)) is None
    assert find_project_of_worktree(Path("/.claude/worktrees/one")) == Path("/")


@pytest.mark.parametrize("content", ["{", "[]", '{"projects": []}', '{"projects": {"{project}": 1}}'])
def test_an_invalid_trust_file_is_reported_and_not_replaced(home: Path, tmp_path: Path, content: str) -> None:
    trust = ProjectTrustFile(home)
    trust.path.parent.mkdir(parents=True)
    trust.path.write_text(content.replace("{project}", str(tmp_path)))
    before = trust.path.read_bytes()
    for use in (
        lambda: trust.get_trust_decision(tmp_path, "a.json"),
        lambda: trust.store_trust_decisions(tmp_path, {"a.json": YES}),
        lambda: trust.remove_project_decisions(tmp_path),
    ):
        with pytest.raises(StateFileError, match="is not valid") as error:
            use()
        assert error.value.path == trust.path
    assert trust.path.read_bytes() == before
