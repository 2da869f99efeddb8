"""Paths and commands that no tool should get: each is denied with a reason, without a question."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_call

from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.permissions.permission_decisions import AllowDecision, AskDecision, DenyDecision


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
        ("loop", "a loop of symbolic links"),
        ("loop/x", "a loop of symbolic links"),
        ("a\0b", "NUL byte"),
        ("down/../secret", "is ambiguous"),
        ("./down/./../x", "is ambiguous"),
        ("x" * 5000, "too long"),
        ("   ", "is empty"),
        ("\ud800", "be encoded as a file name"),
    ],
)
def test_a_path_that_cannot_be_resolved_is_refused(
    project: Path, mode: PermissionMode, name: str, path: str, why: str
) -> None:
    denied = decide_call(create_engine(project, mode, allow="Read Write Edit"), name, file_path=path)
    assert isinstance(denied, DenyDecision)
    assert why in denied.reason


def test_dots_without_a_link_before_them_are_harmless(project: Path) -> None:
    assert isinstance(decide_call(create_engine(project), "Read", file_path="deep/../a.py"), AllowDecision)
    assert isinstance(decide_call(create_engine(project), "Read", file_path="deep/../../a.py"), AskDecision)
    assert isinstance(decide_call(create_engine(project), "Read", file_path="a..b"), AllowDecision)


@pytest.mark.parametrize("name", ["Write", "Edit"])
def test_writing_to_a_directory_is_refused(project: Path, name: str) -> None:
    for path in ("deep", "deep/", ".", str(project), "down"):
        denied = decide_call(create_engine(project), name, file_path=path)
        assert isinstance(denied, DenyDecision), path
        assert "is a directory" in denied.reason


def test_links_are_resolved_before_the_decision(project: Path) -> None:
    engine = create_engine(project, "acceptEdits", deny="Edit(/deep/**)")
    assert isinstance(decide_call(engine, "Read", file_path="out/hostname"), AskDecision)
    assert isinstance(decide_call(engine, "Write", file_path="out/new"), AskDecision)
    assert isinstance(decide_call(engine, "Write", file_path="down/new"), DenyDecision)
    assert isinstance(decide_call(engine, "Bash", command="cat out/hostname"), AskDecision)
    assert isinstance(decide_call(engine, "Bash", command="echo x > down/new"), DenyDecision)


@pytest.mark.parametrize("path", ["//etc/passwd", "/etc//passwd", "~/x", "~root/x", "sub/..//../etc", "/"])
def test_unusual_spellings_of_a_path_get_the_same_decision(project: Path, path: str) -> None:
    decision = decide_call(create_engine(project), "Read", file_path=path)
    assert isinstance(decision, AllowDecision if path == "~root/x" else AskDecision)


def test_a_project_reached_through_a_link_is_the_same_project(tmp_path: Path, project: Path) -> None:
    (tmp_path / "alias").symlink_to(project)
    engine = create_engine(project)
    assert isinstance(decide_call(engine, "Read", file_path=str(tmp_path / "alias" / "a.py")), AllowDecision)


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
def test_a_command_that_cannot_be_analyzed_is_refused(project: Path, mode: PermissionMode) -> None:
    engine = create_engine(project, mode, allow="Bash")
    long = decide_call(engine, "Bash", command="echo " + "x" * 1_000_000)
    assert isinstance(long, DenyDecision)
    assert "1,000,005 characters" in long.reason
    nul = decide_call(engine, "Bash", command="ls\0rm x")
    assert isinstance(nul, DenyDecision)
    assert "NUL byte" in nul.reason
    assert isinstance(decide_call(engine, "Bash", command=7), DenyDecision)
    assert isinstance(decide_call(engine, "Bash"), DenyDecision)
