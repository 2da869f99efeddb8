"""Paths and commands that no tool should be given: a clear refusal each, and nobody is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import decide, permissions

from shoal.core.decisions import Allow, Ask, Deny
from shoal.core.permissions import Mode


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "deep" / "er").mkdir(parents=True)
    (project / "loop").symlink_to("pool")
    (project / "pool").symlink_to("loop")
    (project / "down").symlink_to("deep/er")
    (project / "out").symlink_to("/etc")
    return project


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
@pytest.mark.parametrize("name", ["Read", "Write", "Edit"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("loop", "go in a circle"),
        ("loop/x", "go in a circle"),
        ("a\0b", "NUL byte"),
        ("down/../secret", "can mean two places"),
        ("./down/./../x", "can mean two places"),
        ("x" * 5000, "too long"),
        ("   ", "is empty"),
        ("\ud800", "not text a file name can hold"),
    ],
)
def test_a_path_that_cannot_be_judged_is_refused(
    project: Path, mode: Mode, name: str, path: str, why: str
) -> None:
    denied = decide(permissions(project, mode, allow="Read Write Edit"), name, file_path=path)
    assert isinstance(denied, Deny)
    assert why in denied.reason


def test_dots_without_a_link_before_them_are_harmless(project: Path) -> None:
    assert isinstance(decide(permissions(project), "Read", file_path="deep/../a.py"), Allow)
    assert isinstance(decide(permissions(project), "Read", file_path="deep/../../a.py"), Ask)
    assert isinstance(decide(permissions(project), "Read", file_path="a..b"), Allow)


@pytest.mark.parametrize("name", ["Write", "Edit"])
def test_a_directory_is_no_file_to_write(project: Path, name: str) -> None:
    for path in ("deep", "deep/", ".", str(project), "down"):
        denied = decide(permissions(project), name, file_path=path)
        assert isinstance(denied, Deny), path
        assert "is a directory" in denied.reason


def test_links_are_followed_before_anything_is_decided(project: Path) -> None:
    rules = permissions(project, "acceptEdits", deny="Edit(/deep/**)")
    assert isinstance(decide(rules, "Read", file_path="out/hostname"), Ask)
    assert isinstance(decide(rules, "Write", file_path="out/new"), Ask)
    assert isinstance(decide(rules, "Write", file_path="down/new"), Deny)
    assert isinstance(decide(rules, "Bash", command="cat out/hostname"), Ask)
    assert isinstance(decide(rules, "Bash", command="echo x > down/new"), Deny)


@pytest.mark.parametrize("path", ["//etc/passwd", "/etc//passwd", "~/x", "~root/x", "sub/..//../etc", "/"])
def test_odd_spellings_of_paths_lead_to_the_same_place(project: Path, path: str) -> None:
    decision = decide(permissions(project), "Read", file_path=path)
    assert isinstance(decision, Allow if path == "~root/x" else Ask)


def test_a_project_reached_through_a_link_is_the_project(tmp_path: Path, project: Path) -> None:
    (tmp_path / "alias").symlink_to(project)
    rules = permissions(project)
    assert isinstance(decide(rules, "Read", file_path=str(tmp_path / "alias" / "a.py")), Allow)


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
def test_a_command_nobody_can_judge_is_refused(project: Path, mode: Mode) -> None:
    rules = permissions(project, mode, allow="Bash")
    long = decide(rules, "Bash", command="echo " + "x" * 1_000_000)
    assert isinstance(long, Deny)
    assert "1,000,005 characters" in long.reason
    nul = decide(rules, "Bash", command="ls\0rm x")
    assert isinstance(nul, Deny)
    assert "NUL byte" in nul.reason
    assert isinstance(decide(rules, "Bash", command=7), Deny)
    assert isinstance(decide(rules, "Bash"), Deny)
