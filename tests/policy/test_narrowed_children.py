"""What a definition's tools and a worktree of its own leave of an agent's authority."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import decide, permissions, shell, standing, word

from shoal.core.decisions import Ask, Deny
from shoal.core.errors import SettingsError
from shoal.core.permissions import Mode
from shoal.policy.permissions import RulePermissions
from shoal.workspaces.local import LocalWorkspace


def child_of(
    parent: RulePermissions, root: Path, *only: str, mode: Mode = "bypassPermissions"
) -> RulePermissions:
    return parent.child(LocalWorkspace(root), mode=mode, only=only)


@pytest.fixture
def wide(tmp_path: Path) -> RulePermissions:
    """A parent that may do everything, so that only what narrows its children can refuse."""
    return permissions(tmp_path, "bypassPermissions")


@pytest.mark.spec("DEF-05")
def test_an_entry_with_a_pattern_leaves_of_a_tool_what_fits_it(wide: RulePermissions, tmp_path: Path) -> None:
    child = child_of(wide, tmp_path, "Bash(git:*)", "Bash(npm test)", "Read")
    for command in ("git push", "git add . && git commit -m x", "npm test", "timeout 5 git log"):
        assert shell(child, command) == "allow", command
    for command in (
        "rm x",
        "git log; rm x",
        "git log $(rm x)",
        "npm test x",
        "sudo git log",
        "git log | sh",
        "g() {",
    ):
        refused = decide(child, "Bash", command=command)
        assert isinstance(refused, Deny), command
        assert refused.reason == "its definition gives it Bash only as Bash(git:*), Bash(npm test)."
        assert refused.source == "its definition"
    assert word(decide(child, "Read", file_path="/etc/hosts")) == "allow"
    assert word(decide(child, "WebFetch", url="https://a.example")) == "allow"


@pytest.mark.spec("DEF-05")
def test_patterns_of_every_kind_narrow(wide: RulePermissions, tmp_path: Path) -> None:
    child = child_of(
        wide, tmp_path, "Edit(docs/**)", "Read(*.md)", "WebFetch(domain:a.example)", "Agent(reviewer)", "*"
    )
    for name, fitting, other in (
        ("Edit", {"file_path": "docs/a"}, {"file_path": "src/a"}),
        ("Write", {"file_path": str(tmp_path / "docs/a")}, {"file_path": "docs/../a"}),
        ("Read", {"file_path": "x/a.md"}, {"file_path": "x/a.py"}),
        ("WebFetch", {"url": "https://a.example/x"}, {"url": "https://b.example"}),
        ("Agent", {"subagent_type": "reviewer"}, {}),
        ("Task", {"subagent_type": "reviewer"}, {"subagent_type": "other"}),
    ):
        assert word(decide(child, name, **fitting)) == "allow", name
        assert word(decide(child, name, **other)) == "deny", name


@pytest.mark.spec("DEF-05")
def test_a_tool_named_without_a_pattern_is_whole(wide: RulePermissions, tmp_path: Path) -> None:
    child = child_of(wide, tmp_path, "Bash(git:*)", "Bash", "Edit(docs/**)", "Write")
    assert shell(child, "make") == "allow"
    assert word(decide(child, "Write", file_path="src/a")) == "allow"
    assert word(decide(child, "Edit", file_path="src/a")) == "deny"


@pytest.mark.spec("DEF-05", "AGT-07")
def test_an_entry_never_widens_and_grandchildren_are_held_by_it(tmp_path: Path) -> None:
    parent = permissions(tmp_path, deny="Bash(git push:*)")
    child = child_of(parent, tmp_path, "Bash(git:*)", mode="default")
    assert isinstance(decide(child, "Bash", command="git commit"), Ask)
    assert shell(child, "git push") == "deny"
    grandchild = child_of(child, tmp_path, "Bash(git:*)", "Bash(make:*)", mode="default")
    assert shell(grandchild, "make") == "deny"
    assert shell(grandchild, "git log") == "allow"
    assert shell(child_of(child, tmp_path, mode="default"), "make") == "deny"


def test_an_entry_that_cannot_be_is_refused_when_the_child_is_made(
    wide: RulePermissions, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="its definition"):
        child_of(wide, tmp_path, "Bash(git")


class Checkouts:
    def __init__(self, top: Path) -> None:
        self.main = top / "main"
        self.tree = self.main / ".claude" / "worktrees" / "w"
        self.lib = top / "lib"
        for directory in (self.tree / "src", self.main / "src", self.lib):
            directory.mkdir(parents=True)
        rules = standing(allow="Read(//etc/**) Edit(//**)")
        self.lead = RulePermissions(LocalWorkspace(self.main), mode="acceptEdits", standing=rules)
        tree = LocalWorkspace(self.tree, granted=[self.lib])
        self.child = self.lead.child(tree, mode="acceptEdits", confined=self.main)


@pytest.fixture
def checkouts(tmp_path: Path) -> Checkouts:
    return Checkouts(tmp_path)


@pytest.mark.parametrize("name", ["Write", "Edit", "Read", "NotebookEdit", "Grep", "Glob"])
def test_an_agent_in_a_worktree_is_kept_out_of_the_main_checkout(checkouts: Checkouts, name: str) -> None:
    key = {"NotebookEdit": "notebook_path", "Grep": "path", "Glob": "path"}.get(name, "file_path")
    theirs = checkouts.main / "src" / "a.py"
    refused = decide(checkouts.child, name, **{key: str(theirs)})
    assert isinstance(refused, Deny)
    assert f"Use {checkouts.tree}/src/a.py instead." in refused.reason
    elsewhere = decide(checkouts.child, name, **{key: "/etc/hosts"})
    assert isinstance(elsewhere, Deny), "denied, not asked"
    assert f"outside {checkouts.tree}" in elsewhere.reason
    (checkouts.tree / "link").symlink_to(checkouts.main / "src")
    assert isinstance(decide(checkouts.child, name, **{key: "link/a.py"}), Deny)
    assert word(decide(checkouts.child, name, **{key: "src/a.py"})) == "allow"
    assert word(decide(checkouts.child, name, **{key: str(checkouts.lib / "a")})) == "allow", (
        "granted by a person"
    )


def test_the_confines_of_a_worktree_hold_in_every_mode_and_for_those_it_starts(checkouts: Checkouts) -> None:
    theirs = str(checkouts.main / "a")
    checkouts.child.may_skip = True
    checkouts.child.set_mode("bypassPermissions")
    assert word(decide(checkouts.child, "Write", file_path=theirs)) == "deny"
    grandchild = checkouts.child.child(LocalWorkspace(checkouts.tree), mode="acceptEdits")
    assert word(decide(grandchild, "Write", file_path=theirs)) == "deny"
    assert word(decide(checkouts.lead, "Write", file_path=theirs)) == "allow"


def test_what_was_kept_for_a_confined_agent_stays_readable(tmp_path: Path) -> None:
    results, main, tree = (tmp_path / name for name in ("results", "main", "tree"))
    for directory in (results, main, tree):
        directory.mkdir()
    lead = RulePermissions(LocalWorkspace(main), readable=[results])
    child = lead.child(LocalWorkspace(tree), mode="default", confined=main, only=["Read(src/**)"])
    assert word(decide(child, "Read", file_path=str(results / "1.txt"))) == "allow"
    assert word(decide(child, "Read", file_path="other")) == "deny"


@pytest.mark.spec("PRM-08")
@pytest.mark.parametrize("rule", ["Agent(reviewer)", "Task(reviewer)", "Agent", "*"])
def test_an_agent_that_a_rule_forbids_cannot_be_started(tmp_path: Path, rule: str) -> None:
    for mode in ("default", "bypassPermissions"):
        lead = RulePermissions(LocalWorkspace(tmp_path), mode=mode, standing=standing(deny=rule))  # type: ignore[arg-type]
        refused = lead.refusal_to_start("reviewer")
        assert isinstance(refused, Deny)
        assert (refused.rule, refused.source) == (rule, "a test")
        assert f"the rule {rule} (a test)" in refused.reason
        assert decide(lead, "Agent", subagent_type="reviewer") == refused
        assert (lead.refusal_to_start("explorer") is None) is ("(" in rule)


@pytest.mark.spec("PRM-08")
def test_whether_an_agent_may_start_and_what_it_may_do_are_asked_apart(tmp_path: Path) -> None:
    lead = permissions(tmp_path, deny="Agent(reviewer) Bash(rm:*)")
    assert lead.refusal_to_start("general-purpose") is None
    child = child_of(lead, tmp_path, "Agent(explorer)", mode="default")
    assert child.refusal_to_start("explorer") is None
    assert isinstance(child.refusal_to_start("general-purpose"), Deny)
    assert shell(child, "rm x") == "deny"
    assert word(decide(child, "Read", file_path="x")) == "allow"


def test_a_type_that_is_not_named_is_the_general_one(tmp_path: Path) -> None:
    lead = permissions(tmp_path, deny="Agent(general-purpose)")
    assert word(decide(lead, "Agent", subagent_type=None)) == "deny"
    assert word(decide(lead, "Agent", prompt="x")) == "deny"
