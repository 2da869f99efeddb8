"""A command that was allowed is decided again when files, rules or the mode have changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from corpus_project import create_corpus_project
from permission_helpers import create_engine, decide_command

from git_repository import run_git
from shoal.core.permissions.permission_changes import AddPermissionRulesSuggestion, SuggestedPermissionRule


def _add_secret(project: Path) -> None:
    (project / "src/deep.key").write_text("x")


def _add_link(project: Path) -> None:
    (project / "data.csv").unlink()
    (project / "data.csv").symlink_to(project.parent / "outside/key")


def _track_secret(project: Path) -> None:
    _add_secret(project)
    run_git(project, "add", "-f", "src/deep.key")


def _add_filter(project: Path) -> None:
    with (project / ".git/config").open("a") as config:
        config.write("[core]\n\tfsmonitor = ./x\n")


def _add_npm_setting(project: Path) -> None:
    (project / ".npmrc").write_text("script-shell=./x\n")


@pytest.mark.spec("PRM-05")
@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("rg x", _add_secret),
        ("grep -r x | sort", _add_secret),
        ("grep -r x .", _add_secret),
        ("cat src/* | sort | head -3", _add_secret),
        ("cat data.csv", _add_link),
        ("head -3 data.csv | sort", _add_link),
        ("git diff", _track_secret),
        ("git status", _add_filter),
        ("npm ls", _add_npm_setting),
        ("find . -type f | xargs cat", _add_secret),
    ],
)
def test_a_command_is_decided_by_the_files_that_are_there_now(
    tmp_path: Path, command: str, change: Callable[[Path], None]
) -> None:
    project = create_corpus_project(tmp_path)
    engine = create_engine(project, deny="Read(*.key)")
    for _ in range(3):
        assert decide_command(engine, command) == "allow"
    change(project)
    assert decide_command(engine, command) == "ask"


@pytest.mark.parametrize("command", ["sort", "cat README.md | grep -n x | sort", "date"])
def test_a_command_is_decided_by_the_rules_and_the_mode_that_hold_now(tmp_path: Path, command: str) -> None:
    project = create_corpus_project(tmp_path)
    engine = create_engine(project)
    assert [decide_command(engine, command) for _ in range(3)] == ["allow"] * 3
    engine.set_mode("plan")
    assert decide_command(engine, command) == "allow"
    engine.set_mode("default")
    name = command.rpartition("| ")[2]
    rule = SuggestedPermissionRule(tool_name="Bash", rule_content=f"{name}:*")
    engine.apply_permission_update(AddPermissionRulesSuggestion(rules=(rule,), behavior="deny"))
    assert decide_command(engine, command) == "deny"


def test_a_known_command_means_something_else_after_a_function_or_another_search_path(tmp_path: Path) -> None:
    project = create_corpus_project(tmp_path)
    engine = create_engine(project)
    for _ in range(2):
        assert decide_command(engine, "sort") == "allow"
    for command in (
        "sort() { rm x; }; sort",
        "PATH=.; sort",
        "export PATH=.:$PATH; sort",
        "cd src; PATH=. sort",
    ):
        assert decide_command(engine, command) == "ask", command
    strict = create_engine(project, deny="Bash(touch:*)", allow="Bash(printf:*)")
    assert decide_command(strict, "ls") == "allow"
    assert decide_command(strict, "printf -v PATH .; ls") == "ask"
