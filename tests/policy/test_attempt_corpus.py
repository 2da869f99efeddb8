"""Attempts to get more than the settings allow, and the secrets that commands may not show."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_project import create_corpus_project, iter_attempts
from permission_helpers import create_engine, decide_call, decide_command, name_decision

from git_repository import run_git


@pytest.fixture(scope="module")
def project_without_tracked_secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose secrets git does not track."""
    project = create_corpus_project(tmp_path_factory.mktemp("corpus"))
    run_git(project, "rm", "-q", "--cached", "-r", ".env", "secrets")
    return project


@pytest.mark.spec("PRM-05")
def test_no_attempt_of_the_corpus_is_allowed(tmp_path: Path) -> None:
    project = create_corpus_project(tmp_path)
    (project / "out").symlink_to(tmp_path / "outside")
    attempts = list(iter_attempts(project))
    assert len(attempts) >= 1_400
    assert [
        (setting, command)
        for setting, engine, command in attempts
        if decide_command(engine, command) == "allow"
    ] == []


@pytest.mark.parametrize(
    "command",
    ["git diff", "git diff src", "git diff HEAD -- src/main.py", "git show HEAD:src/main.py",
     "git show --stat", "git log --oneline -5", "git log --stat", "git log -L 1,2:src/main.py",
     "git log -S x --oneline",
     "git log -p -- src/main.py", "git status", "git diff --name-only HEAD~1", "git commit -m 'use .env'",
     "cp -r src copy", "cp README.md .", "tar czf x.tgz src", "zip -r x.zip src docs", "rsync -a src/ copy",
     "mv src lib", "npm run build", "docker ps", "grep -rn x src", "python3 -c 'print(1)'", "rm .env"],
)  # fmt: skip
def test_commands_that_cannot_show_a_denied_file_are_not_asked(
    project_without_tracked_secrets: Path, command: str
) -> None:
    engine = create_engine(
        project_without_tracked_secrets, "bypassPermissions", deny="Read(.env) Read(secrets/**)"
    )
    assert decide_command(engine, command) == "allow"


def test_a_diff_of_the_working_directory_is_asked_only_if_git_tracks_a_denied_file(tmp_path: Path) -> None:
    project = create_corpus_project(tmp_path)
    engine = create_engine(project, deny="Read(.env)")
    assert decide_command(engine, "git diff") == "ask"
    run_git(project, "rm", "-q", "--cached", ".env")
    assert decide_command(engine, "git diff") == "allow"
    assert decide_command(engine, "git diff HEAD") == "ask"
    run_git(project, "update-index", "--index-version", "4")
    assert decide_command(engine, "git diff") == "allow"
    run_git(project, "add", "-f", ".env")
    assert decide_command(engine, "git diff") == "ask"


def test_git_commands_limited_to_other_files_need_no_approval(tmp_path: Path) -> None:
    project = create_corpus_project(tmp_path)
    engine = create_engine(project, "bypassPermissions", deny="Read(.env)")
    for command in (
        "git diff README.md", "git diff -- README.md", "git stash", "git stash push -m wip",
        "git stash push -qm wip", "git stash pop", "git stash drop", "git stash list",
    ):  # fmt: skip
        assert decide_command(engine, command) == "allow", command
    for command in (
        "git diff .env", "git diff README.md .env", "git diff -- .env", "git diff .",
        "git diff HEAD~1 README.md .", "git stash -p", "git stash push --patch", "git stash show -p",
        "git stash list -p", "git stash show -u", 'git stash "$(cat a)"', "git stash -u",
        "git stash push -qum wip", "git stash --include-untracked", "git stash --all", "git stash -a",
    ):  # fmt: skip
        assert decide_command(engine, command) != "allow", command


@pytest.mark.spec("CMP-021")
@pytest.mark.parametrize("tool", ["Write", "Edit", "NotebookEdit"])
@pytest.mark.parametrize("path", ["secrets/key", "secrets/new", "lib/secrets/new"])
def test_a_file_that_may_not_be_read_may_not_be_written(tmp_path: Path, tool: str, path: str) -> None:
    argument = "notebook_path" if tool == "NotebookEdit" else "file_path"
    for mode in ("acceptEdits", "bypassPermissions"):
        engine = create_engine(tmp_path, mode, deny="Read(**/secrets/**)", allow=tool)
        assert name_decision(decide_call(engine, tool, **{argument: path})) == "deny"
        assert name_decision(decide_call(engine, tool, **{argument: "src/new"})) == "allow"
        assert decide_command(engine, f"echo x > {path}") == "deny"
        assert decide_command(engine, f"touch {path}") == "deny"


@pytest.mark.parametrize(
    "command",
    ["kubectl config view --flatten", "kubectl config view --raw", "gh auth token", "printenv", "env",
     "printenv GITHUB_TOKEN", "echo $AWS_SECRET_ACCESS_KEY", 'echo "${DB_PASSWORD}"', "jq -n '$ENV'",
     "jq -n env", "docker inspect web", "npm config get //registry.npmjs.org/:_authToken",
     "pip config list", "aws configure get aws_secret_access_key", "op read op://a/b", "pass show a",
     "gcloud auth print-access-token"],
)  # fmt: skip
def test_a_command_that_prints_secrets_is_asked(tmp_path: Path, command: str) -> None:
    assert decide_command(create_engine(tmp_path), command) == "ask"


@pytest.mark.parametrize(
    "command",
    ["printenv PATH HOME", "echo $HOME $USER", "jq .env package.json", "kubectl config view",
     "npm config get registry", "docker image inspect web"],
)  # fmt: skip
def test_a_command_that_prints_other_settings_is_not_asked(tmp_path: Path, command: str) -> None:
    assert decide_command(create_engine(tmp_path), command) == "allow"
