"""`shoal --worktree`: a session in a worktree below `.claude/worktrees`, kept or removed at its end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cli_live.conftest import CliProject

CTRL_D = "\x04"


def run_git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(cli_project: CliProject) -> CliProject:
    """A clone whose last commit is not in its origin, with local settings that deny a command."""
    project, origin = cli_project.project, cli_project.home / "origin"
    for name in ("one", "two"):
        (project / name).mkdir()
        (project / name / "file").write_text(name)
    (project / ".gitignore").write_text("settings.local.json\n*.env\n")
    (project / ".worktreeinclude").write_text("*.env\n")
    run_git(project, "init", "-q", "-b", "main")
    run_git(project, "add", ".")
    run_git(project, "commit", "-qm", "first")
    run_git(project, "clone", "-q", "--bare", ".", str(origin))
    run_git(project, "remote", "add", "origin", str(origin))
    run_git(project, "fetch", "-q")
    run_git(project, "remote", "set-head", "origin", "main")
    run_git(project, "commit", "-q", "--allow-empty", "-m", "second")
    (project / "local.env").write_text("A=1")
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.local.json").write_text(
        json.dumps({"permissions": {"deny": ["Bash(touch:*)"]}})
    )
    return cli_project


def start_headless(
    repository: CliProject, *arguments: str, command: str
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run one Bash command in a session; return the process and the result of the command."""
    script = repository.home / "steps.json"
    call = {"name": "Bash", "input": {"command": command}}
    script.write_text(json.dumps([{"match": "go", "tools": [call]}, {"match": "", "text": "end"}]))
    done = repository.run_shoal(
        *arguments, "-p", "go", "--allowedTools", "Bash", "--model", f"scripted:{script}",
        "--output-format", "stream-json", "--verbose",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    users = [json.loads(line) for line in done.stdout.splitlines() if '"type":"user"' in line]
    results = [
        block["content"]
        for line in users
        for block in line["message"]["content"]
        if block["type"] == "tool_result"
    ]
    return done, str(results[0])


@pytest.mark.spec("CMP-095")
def test_a_session_starts_in_a_new_worktree_and_finds_it_again(repository: CliProject) -> None:
    worktree = repository.project / ".claude" / "worktrees" / "try"
    done, result = start_headless(repository, "-w", "try", command="pwd; ls -A; git log --format=%s")
    assert f"Created the worktree {worktree} on the branch worktree-try." in done.stderr
    assert result.splitlines()[0] == str(worktree)
    assert "local.env" in result
    assert "second" in result
    (worktree / "work").write_text("mine")
    done, result = start_headless(repository, "--worktree=try", command="cat work; touch denied")
    assert f"Using the worktree {worktree}" in done.stderr
    # The settings that git does not store deny this in the worktree too.
    assert not (worktree / "denied").exists()
    _, result = start_headless(repository, "-w", "try", command="cat work")
    assert result.strip() == "mine"
    assert run_git(repository.project, "status", "--porcelain").split() == []


@pytest.mark.spec("CMP-095")
def test_a_pull_request_is_fetched_into_a_worktree(repository: CliProject) -> None:
    run_git(repository.project, "checkout", "-q", "--detach")
    run_git(repository.project, "commit", "-q", "--allow-empty", "-m", "proposed")
    run_git(repository.project, "push", "-q", "origin", "HEAD:refs/pull/7/head")
    run_git(repository.project, "checkout", "-q", "main")
    _, result = start_headless(repository, "-w", "#7", command="pwd; git log -1 --format=%s")
    assert result.split() == [str(repository.project / ".claude/worktrees/pr-7"), "proposed"]


@pytest.mark.spec("CMP-095", "CMP-115")
def test_a_worktree_can_start_at_the_remote_branch_with_some_directories(repository: CliProject) -> None:
    settings = {"worktree": {"baseRef": "fresh", "sparsePaths": ["one"]}}
    _, result = start_headless(
        repository, "-w", "try", "--settings", json.dumps(settings), command="ls; git log --format=%s"
    )
    assert result.split() == ["local.env", "one", "first"]


@pytest.mark.spec("CMP-095")
@pytest.mark.parametrize(
    ("work", "answer", "kept"), [(False, "", False), (True, "", True), (True, "n", False)]
)
def test_a_worktree_without_work_is_removed_at_the_end_and_one_with_work_is_asked_about(
    repository: CliProject,
    work: bool,
    answer: str,
    kept: bool,
) -> None:
    worktree = repository.project / ".claude" / "worktrees" / "try"
    script = repository.home / "steps.json"
    script.write_text(json.dumps([{"match": "", "text": "plain words"}]))
    terminal = repository.start_shoal_terminal(
        "-w", "try", "--plain", "--model", f"scripted:{script}", "hello"
    )
    terminal.wait_for("plain words")
    if work:
        (worktree / "work").write_text("mine")
    terminal.type_text(CTRL_D)
    if work:
        terminal.wait_for("Keep it?")
        terminal.type_text(f"{answer}\r")
    terminal.wait_for("is kept." if kept else "was removed.")
    assert terminal.wait_for_end() == 0
    assert worktree.exists() == kept
    assert ("worktree-try" in run_git(repository.project, "branch")) == kept


def test_outside_a_repository_the_flag_is_refused_with_a_reason(cli_project: CliProject) -> None:
    done = cli_project.run_shoal("-w", "try", "-p", "hi")
    assert done.returncode == 1
    assert "is not in a git repository" in done.stderr
