"""Permissions: what the rules and the mode say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.core.decisions import Allow, Ask, Decision, Deny, Mode
from shoal.core.errors import SettingsError
from shoal.core.identity import Identity
from shoal.core.ids import SessionId
from shoal.core.messages import ToolUse
from shoal.core.questions import Allowed
from shoal.policy.permissions import RulePermissions
from shoal.policy.rules import parse_rule, split_rules
from shoal.tools.define import tool
from shoal.workspaces.local import LocalWorkspace

ME = Identity(session=SessionId("s"))


@tool(reads_only=True)
async def reader() -> str:
    return ""


@tool
async def writer() -> str:
    return ""


def decide(permissions: RulePermissions, name: str, **arguments: Any) -> Decision:
    kind = reader if name in ("Read", "Glob", "Grep", "WebFetch") else writer
    return permissions.decide(ToolUse(id="c", name=name, input=arguments), kind, ME)


def permissions(root: Path, mode: Mode = "default", **rules: str) -> RulePermissions:
    parsed = {kind: [parse_rule(r, "a test") for r in split_rules(text)] for kind, text in rules.items()}
    return RulePermissions(LocalWorkspace(root), mode=mode, **parsed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "name", "arguments", "expected"),
    [
        ("default", "Read", {"file_path": "a.py"}, Allow),
        ("default", "Read", {"file_path": "/etc/hostname"}, Ask),
        ("default", "Grep", {"pattern": "x"}, Allow),
        ("default", "Write", {"file_path": "a.py"}, Ask),
        ("default", "Bash", {"command": "ls"}, Ask),
        ("default", "TodoWrite", {}, Allow),
        ("acceptEdits", "Write", {"file_path": "a.py"}, Allow),
        ("acceptEdits", "Write", {"file_path": "../a.py"}, Ask),
        ("acceptEdits", "Bash", {"command": "rm -rf ."}, Ask),
        ("plan", "Read", {"file_path": "a.py"}, Allow),
        ("plan", "Write", {"file_path": "a.py"}, Deny),
        ("plan", "Bash", {"command": "ls"}, Deny),
        ("dontAsk", "Bash", {"command": "ls"}, Deny),
        ("dontAsk", "Read", {"file_path": "a.py"}, Allow),
        ("acceptEdits", "Write", {"file_path": ".claude/settings.json"}, Ask),
        ("acceptEdits", "Edit", {"file_path": "x/../.git/hooks/pre-commit"}, Ask),
        ("acceptEdits", "Write", {"file_path": ".github/workflows/ci.yml"}, Allow),
        ("bypassPermissions", "Bash", {"command": "ls"}, Allow),
        ("bypassPermissions", "Write", {"file_path": "/elsewhere"}, Allow),
    ],
)
def test_a_mode_decides_what_no_rule_speaks_of(
    tmp_path: Path, mode: Mode, name: str, arguments: dict[str, str], expected: type
) -> None:
    assert isinstance(decide(permissions(tmp_path, mode), name, **arguments), expected)


def test_edits_are_accepted_in_a_project_that_lies_below_a_settings_directory(tmp_path: Path) -> None:
    project = tmp_path / ".claude" / "worktrees" / "one"
    project.mkdir(parents=True)
    rules = permissions(project, "acceptEdits")
    assert isinstance(decide(rules, "Write", file_path="a.py"), Allow)
    assert isinstance(decide(rules, "Write", file_path=".claude/settings.json"), Ask)


def test_deny_beats_ask_and_ask_beats_allow(tmp_path: Path) -> None:
    rules = permissions(
        tmp_path, allow="Bash Read Write", ask="Bash(git push:*) Write", deny="Write(secret/**)"
    )
    assert isinstance(decide(rules, "Bash", command="ls"), Allow)
    assert isinstance(decide(rules, "Bash", command="git push origin"), Ask)
    assert isinstance(decide(rules, "Write", file_path="a.py"), Ask)
    assert isinstance(decide(rules, "Write", file_path="secret/a.py"), Deny)
    assert isinstance(decide(rules, "Write", file_path="x/../secret/deep/a.py"), Deny)


def test_deny_rules_hold_even_where_permissions_are_skipped(tmp_path: Path) -> None:
    rules = permissions(tmp_path, "bypassPermissions", deny="Bash(rm:*)")
    assert isinstance(decide(rules, "Bash", command="cd x && rm -rf y"), Deny)


@pytest.mark.parametrize(
    "command",
    ["git status; rm x", "git status && rm x", "git $(rm x)", "git `rm x`", "git status > x", "git a\nrm x",
     "git status | sh", "gitx", "git' 'status; x", "git \\\n; rm x", "git {a,b}", "git ~/x"],
)  # fmt: skip
def test_an_allowed_beginning_never_covers_a_second_command(tmp_path: Path, command: str) -> None:
    assert isinstance(decide(permissions(tmp_path, allow="Bash(git:*)"), "Bash", command=command), Ask)


def test_an_allowed_beginning_covers_simple_commands(tmp_path: Path) -> None:
    rules = permissions(tmp_path, allow="Bash(git log:*) Bash(make test)")
    assert isinstance(decide(rules, "Bash", command="git log -3 --oneline"), Allow)
    assert isinstance(decide(rules, "Bash", command="git 'log' HEAD"), Allow)
    assert isinstance(decide(rules, "Bash", command="make test"), Allow)
    assert isinstance(decide(rules, "Bash", command="make tests"), Ask)
    assert isinstance(decide(rules, "Bash", command="git logs"), Ask)


def test_a_link_out_of_the_project_is_outside(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "link").symlink_to("/etc")
    assert isinstance(decide(permissions(project), "Read", file_path="link/hostname"), Ask)


def test_an_answer_for_the_session_covers_the_same_command_only(tmp_path: Path) -> None:
    rules = permissions(tmp_path)
    call = ToolUse(id="c", name="Bash", input={"command": "make test"})
    rules.remember(call, Allowed(remember="session"))
    assert isinstance(decide(rules, "Bash", command="make test"), Allow)
    assert isinstance(decide(rules, "Bash", command="make deploy"), Ask)


def remembered(root: Path, name: str, **arguments: Any) -> RulePermissions:
    rules = permissions(root)
    rules.remember(ToolUse(id="c", name=name, input=arguments), Allowed(remember="session"))
    return rules


def test_an_answer_for_the_session_about_a_file_here_covers_no_file_elsewhere(tmp_path: Path) -> None:
    rules = remembered(tmp_path, "Write", file_path="a.py")
    assert isinstance(decide(rules, "Write", file_path="deep/b.py"), Allow)
    assert isinstance(decide(rules, "Edit", file_path="a.py"), Ask)
    assert isinstance(decide(rules, "Write", file_path="../b.py"), Ask)
    assert isinstance(decide(rules, "Write", file_path="/etc/hosts"), Ask)


def test_an_answer_for_the_session_about_a_file_elsewhere_covers_that_file_only(tmp_path: Path) -> None:
    rules = remembered(tmp_path, "Read", file_path="/etc/hosts")
    assert isinstance(decide(rules, "Read", file_path="/etc/hosts"), Allow)
    assert isinstance(decide(rules, "Read", file_path="/etc/passwd"), Ask)
    assert isinstance(
        decide(remembered(tmp_path, "Read", file_path="/etc/*"), "Read", file_path="/etc/x"), Ask
    )


def test_an_answer_for_the_session_about_a_page_covers_its_site_only(tmp_path: Path) -> None:
    rules = remembered(tmp_path, "WebFetch", url="https://docs.example.org/a", prompt="?")
    assert isinstance(decide(rules, "WebFetch", url="https://docs.example.org/b"), Allow)
    for url in (
        "https://example.org/",
        "https://a.docs.example.org/",
        "https://docs.example.org@evil.net/",
        "x",
    ):
        assert isinstance(decide(rules, "WebFetch", url=url), Ask)


def test_a_command_that_reads_like_a_pattern_is_not_remembered(tmp_path: Path) -> None:
    rules = remembered(tmp_path, "Bash", command="git :*")
    assert isinstance(decide(rules, "Bash", command="git push --force"), Ask)


def test_a_forbidden_domain_leaves_other_sites_alone(tmp_path: Path) -> None:
    rules = permissions(tmp_path, "bypassPermissions", deny="WebFetch(domain:example.org)")
    assert isinstance(decide(rules, "WebFetch", url="https://example.org/"), Deny)
    assert isinstance(decide(rules, "WebFetch", url="https://a.Example.org/"), Deny)
    assert isinstance(decide(rules, "WebFetch", url="https://example.com/"), Allow)


@pytest.mark.parametrize(
    ("name", "arguments", "rule"),
    [
        ("Write", {"file_path": "a.py"}, "Write(/**)"),
        ("Write", {"file_path": "/etc/hosts"}, "Write(//etc/hosts)"),
        ("Bash", {"command": "make test"}, "Bash(make test)"),
        ("WebFetch", {"url": "https://example.org/x"}, "WebFetch(domain:example.org)"),
        ("Bash", {"command": "git :*"}, ""),
    ],
)
def test_a_question_says_what_an_answer_for_the_session_allows(
    tmp_path: Path, name: str, arguments: dict[str, str], rule: str
) -> None:
    decision = decide(permissions(tmp_path), name, **arguments)
    assert isinstance(decision, Ask)
    assert decision.rule == rule


def test_results_kept_for_the_agent_can_be_read_back(tmp_path: Path) -> None:
    results = tmp_path / "results"
    project = tmp_path / "project"
    project.mkdir()
    rules = RulePermissions(LocalWorkspace(project), readable=[results])
    assert isinstance(decide(rules, "Read", file_path=str(results / "x.txt")), Allow)
    assert isinstance(decide(rules, "Write", file_path=str(results / "x.txt")), Ask)


def test_a_flag_may_hold_several_rules() -> None:
    assert split_rules("Bash(git log:*) Edit,Read") == ["Bash(git log:*)", "Edit", "Read"]


def test_a_rule_that_cannot_be_read_is_named() -> None:
    with pytest.raises(SettingsError, match=r"'Bash\(' is not a permission rule \(settings.json\)"):
        parse_rule("Bash(", "settings.json")
