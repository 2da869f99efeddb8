"""Restrictions of a child by the tools of its definition and by its own worktree."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_call, decide_command, name_decision, parse_rules

from shoal.core.errors import SettingsError
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.permissions.permission_decisions import AskDecision, DenyDecision
from shoal.policy.permission_engine import PermissionEngine
from shoal.workspaces.local_workspace import LocalWorkspace


def create_child(
    parent: PermissionEngine, root: Path, *tools: str, mode: PermissionMode = "bypassPermissions"
) -> PermissionEngine:
    return parent.create_child(LocalWorkspace(root), mode=mode, allowed_tools=tools)


@pytest.fixture
def bypass_engine(tmp_path: Path) -> PermissionEngine:
    """A parent that may do everything, so that only restrictions of its children can deny."""
    return create_engine(tmp_path, "bypassPermissions")


@pytest.mark.spec("DEF-05")
def test_a_tool_entry_with_a_pattern_allows_only_matching_calls(
    bypass_engine: PermissionEngine, tmp_path: Path
) -> None:
    child = create_child(bypass_engine, tmp_path, "Bash(git:*)", "Bash(npm test)", "Read")
    for command in ("git push", "git add . && git commit -m x", "npm test", "timeout 5 git log"):
        assert decide_command(child, command) == "allow", command
    for command in (
        "rm x",
        "git log; rm x",
        "git log $(rm x)",
        "npm test x",
        "sudo git log",
        "git log | sh",
        "g() {",
    ):
        refused = decide_call(child, "Bash", command=command)
        assert isinstance(refused, DenyDecision), command
        assert refused.reason == "its definition allows only these Bash calls: Bash(git:*), Bash(npm test)."
        assert refused.source == "its definition"
    assert name_decision(decide_call(child, "Read", file_path="/etc/hosts")) == "allow"
    assert name_decision(decide_call(child, "WebFetch", url="https://a.example")) == "allow"


@pytest.mark.spec("DEF-05")
def test_patterns_of_every_tool_restrict_the_child(bypass_engine: PermissionEngine, tmp_path: Path) -> None:
    child = create_child(
        bypass_engine,
        tmp_path,
        "Edit(docs/**)",
        "Read(*.md)",
        "WebFetch(domain:a.example)",
        "Agent(reviewer)",
        "*",
    )
    for name, fitting, other in (
        ("Edit", {"file_path": "docs/a"}, {"file_path": "src/a"}),
        ("Write", {"file_path": str(tmp_path / "docs/a")}, {"file_path": "docs/../a"}),
        ("Read", {"file_path": "x/a.md"}, {"file_path": "x/a.py"}),
        ("WebFetch", {"url": "https://a.example/x"}, {"url": "https://b.example"}),
        ("Agent", {"subagent_type": "reviewer"}, {}),
        ("Task", {"subagent_type": "reviewer"}, {"subagent_type": "other"}),
    ):
        assert name_decision(decide_call(child, name, **fitting)) == "allow", name
        assert name_decision(decide_call(child, name, **other)) == "deny", name


@pytest.mark.spec("DEF-05")
def test_a_tool_entry_without_a_pattern_is_unrestricted(
    bypass_engine: PermissionEngine, tmp_path: Path
) -> None:
    child = create_child(bypass_engine, tmp_path, "Bash(git:*)", "Bash", "Edit(docs/**)", "Write")
    assert decide_command(child, "make") == "allow"
    assert name_decision(decide_call(child, "Write", file_path="src/a")) == "allow"
    assert name_decision(decide_call(child, "Edit", file_path="src/a")) == "deny"


@pytest.mark.spec("DEF-05", "AGT-07")
def test_a_tool_entry_never_allows_more_and_also_restricts_grandchildren(tmp_path: Path) -> None:
    parent = create_engine(tmp_path, deny="Bash(git push:*)")
    child = create_child(parent, tmp_path, "Bash(git:*)", mode="default")
    assert isinstance(decide_call(child, "Bash", command="git commit"), AskDecision)
    assert decide_command(child, "git push") == "deny"
    grandchild = create_child(child, tmp_path, "Bash(git:*)", "Bash(make:*)", mode="default")
    assert decide_command(grandchild, "make") == "deny"
    assert decide_command(grandchild, "git log") == "allow"
    assert decide_command(create_child(child, tmp_path, mode="default"), "make") == "deny"


@pytest.mark.spec("AGT-07")
def test_denials_of_a_definition_reach_grandchildren_other_processes_and_resumed_agents(
    bypass_engine: PermissionEngine, tmp_path: Path
) -> None:
    workspace = LocalWorkspace(tmp_path)
    child = bypass_engine.create_child(workspace, mode="bypassPermissions", denied_tools=["Bash(rm:*)"])
    grandchild = child.create_child(workspace, mode="bypassPermissions", denied_tools=["Write"])
    # Members in processes of their own get the list, and a resumed agent has its stored restrictions.
    assert grandchild.inherited_denials == ("Bash(rm:*)", "Write")
    resumed = bypass_engine.create_child(workspace, mode="bypassPermissions", stored=grandchild.restrictions)
    for engine in (grandchild, resumed):
        assert decide_command(engine, "rm x") == "deny"
        assert name_decision(decide_call(engine, "Write", file_path="x", content="")) == "deny"
    assert decide_command(bypass_engine, "rm x") == "allow"


@pytest.mark.spec("DEF-05")
@pytest.mark.parametrize("command", ["> README.md", "git status; > x", "git status && 2>> x"])
def test_a_redirection_without_a_command_is_not_a_git_command(
    bypass_engine: PermissionEngine, tmp_path: Path, command: str
) -> None:
    child = create_child(bypass_engine, tmp_path, "Bash(git:*)")
    assert decide_command(child, command) == "deny"
    assert decide_command(child, "x=1; git status") == "allow"


def test_an_invalid_tool_entry_is_refused_when_the_child_is_created(
    bypass_engine: PermissionEngine, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="its definition"):
        create_child(bypass_engine, tmp_path, "Bash(git")


class Checkouts:
    def __init__(self, top: Path) -> None:
        self.main = top / "main"
        self.tree = self.main / ".claude" / "worktrees" / "w"
        self.lib = top / "lib"
        for directory in (self.tree / "src", self.main / "src", self.lib):
            directory.mkdir(parents=True)
        rules = parse_rules(allow="Read(//etc/**) Edit(//**)")
        self.lead = PermissionEngine(LocalWorkspace(self.main), mode="acceptEdits", rules=rules)
        tree = LocalWorkspace(self.tree, granted=[self.lib])
        self.child = self.lead.create_child(tree, mode="acceptEdits", main_checkout=self.main)


@pytest.fixture
def checkouts(tmp_path: Path) -> Checkouts:
    return Checkouts(tmp_path)


@pytest.mark.parametrize("name", ["Write", "Edit", "Read", "NotebookEdit", "Grep", "Glob"])
def test_an_agent_in_a_worktree_has_no_access_to_the_main_checkout(checkouts: Checkouts, name: str) -> None:
    key = {"NotebookEdit": "notebook_path", "Grep": "path", "Glob": "path"}.get(name, "file_path")
    theirs = checkouts.main / "src" / "a.py"
    refused = decide_call(checkouts.child, name, **{key: str(theirs)})
    assert isinstance(refused, DenyDecision)
    assert f"Use {checkouts.tree}/src/a.py instead." in refused.reason
    elsewhere = decide_call(checkouts.child, name, **{key: "/etc/hosts"})
    assert isinstance(elsewhere, DenyDecision), "denied, not asked"
    assert f"outside {checkouts.tree}" in elsewhere.reason
    (checkouts.tree / "link").symlink_to(checkouts.main / "src")
    assert isinstance(decide_call(checkouts.child, name, **{key: "link/a.py"}), DenyDecision)
    assert name_decision(decide_call(checkouts.child, name, **{key: "src/a.py"})) == "allow"
    assert name_decision(decide_call(checkouts.child, name, **{key: str(checkouts.lib / "a")})) == "allow", (
        "granted by the user"
    )


def test_worktree_restrictions_apply_in_every_mode_and_to_sub_agents(checkouts: Checkouts) -> None:
    theirs = str(checkouts.main / "a")
    checkouts.child.can_bypass = True
    checkouts.child.set_mode("bypassPermissions")
    assert name_decision(decide_call(checkouts.child, "Write", file_path=theirs)) == "deny"
    grandchild = checkouts.child.create_child(LocalWorkspace(checkouts.tree), mode="acceptEdits")
    assert name_decision(decide_call(grandchild, "Write", file_path=theirs)) == "deny"
    assert name_decision(decide_call(checkouts.lead, "Write", file_path=theirs)) == "allow"


def test_stored_results_of_a_restricted_agent_stay_readable(tmp_path: Path) -> None:
    results, main, tree = (tmp_path / name for name in ("results", "main", "tree"))
    for directory in (results, main, tree):
        directory.mkdir()
    lead = PermissionEngine(LocalWorkspace(main))
    lead.allow_reading(results)
    child = lead.create_child(
        LocalWorkspace(tree), mode="default", main_checkout=main, allowed_tools=["Read(src/**)"]
    )
    assert name_decision(decide_call(child, "Read", file_path=str(results / "1.txt"))) == "allow"
    assert name_decision(decide_call(child, "Read", file_path="other")) == "deny"


@pytest.mark.spec("PRM-08")
@pytest.mark.parametrize("rule", ["Agent(reviewer)", "Task(reviewer)", "Agent", "*"])
def test_an_agent_denied_by_a_rule_cannot_be_started(tmp_path: Path, rule: str) -> None:
    for mode in ("default", "bypassPermissions"):
        lead = PermissionEngine(LocalWorkspace(tmp_path), mode=mode, rules=parse_rules(deny=rule))  # type: ignore[arg-type]
        refused = lead.check_agent_start("reviewer")
        assert isinstance(refused, DenyDecision)
        assert (refused.rule, refused.source) == (rule, "a test")
        assert f"the rule {rule} (a test)" in refused.reason
        assert decide_call(lead, "Agent", subagent_type="reviewer") == refused
        assert (lead.check_agent_start("explorer") is None) is ("(" in rule)


@pytest.mark.spec("PRM-08")
def test_starting_an_agent_and_its_tool_calls_are_decided_separately(tmp_path: Path) -> None:
    lead = create_engine(tmp_path, deny="Agent(reviewer) Bash(rm:*)")
    assert lead.check_agent_start("general-purpose") is None
    child = create_child(lead, tmp_path, "Agent(explorer)", mode="default")
    assert child.check_agent_start("explorer") is None
    assert isinstance(child.check_agent_start("general-purpose"), DenyDecision)
    assert decide_command(child, "rm x") == "deny"
    assert name_decision(decide_call(child, "Read", file_path="x")) == "allow"


def test_a_missing_agent_type_is_the_general_purpose_agent(tmp_path: Path) -> None:
    lead = create_engine(tmp_path, deny="Agent(general-purpose)")
    assert name_decision(decide_call(lead, "Agent", subagent_type=None)) == "deny"
    assert name_decision(decide_call(lead, "Agent", prompt="x")) == "deny"
