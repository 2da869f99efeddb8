"""Git commands that would add a file which a rule protects, although git does not track it yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

from git_repository import run_git

_AS = ("-c", "user.name=A", "-c", "user.email=a@example.org")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with the branches `adding`, which has `locked/new`, and `other`, which does not."""
    run_git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "a").write_text("a\n")
    _commit(tmp_path, "first")
    for branch, name in (("adding", "locked/new"), ("other", "docs/new")):
        run_git(tmp_path, "checkout", "-q", "-b", branch, "main")
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x\n")
        _commit(tmp_path, branch)
    run_git(tmp_path, "checkout", "-q", "main")
    return tmp_path


def _commit(project: Path, message: str) -> None:
    run_git(project, "add", "-A")
    run_git(project, *_AS, "commit", "-q", "-m", message)


@pytest.mark.parametrize(
    "command",
    ["git merge {}", "git merge --no-ff {}", "git merge --squash {}", "git checkout {}", "git switch {}",
     "git checkout --detach {}", "git checkout -b new {}", "git switch -c new {}", "git rebase {}",
     "git rebase --onto {} main", "git cherry-pick {}", "git cherry-pick main..{}", "git reset --hard {}",
     "git restore -s {} .", "git restore --source={} .", "git restore --source {} -- .",
     "git read-tree -u -m {}", "git -C . merge {}", "git --no-pager merge {}", "cd docs; git merge {}",
     "git merge $(git rev-parse {})"],
)  # fmt: skip
def test_a_commit_that_adds_a_protected_file_is_asked_about(project: Path, command: str) -> None:
    for mode in ("acceptEdits", "bypassPermissions"):
        engine = create_engine(project, mode, deny="Edit(locked/**)", allow="Bash(git:*) Bash(cd:*)")
        assert decide_command(engine, command.format("adding")) == "ask"
    if "$" not in command:
        assert decide_command(engine, command.format("other")) == "allow"
    free = create_engine(project, "bypassPermissions")
    assert decide_command(free, command.format("adding")) == "allow"


@pytest.mark.parametrize(
    "command", ["git pull", "git pull origin main", "git am x.mbox", "git apply x.patch", "git merge unknown"]
)
def test_a_source_that_is_not_known_yet_may_add_any_file(project: Path, command: str) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(locked/**)")
    assert decide_command(engine, command) == "ask"
    assert decide_command(create_engine(project, "bypassPermissions", deny="Bash(rm:*)"), command) == "allow"


def test_a_stash_with_a_protected_untracked_file_is_asked_about(project: Path) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(locked/**)")
    (project / "a").write_text("b\n")
    run_git(project, *_AS, "stash")
    assert decide_command(engine, "git stash pop") == "allow"
    (project / "locked").mkdir()
    (project / "locked/new").write_text("x\n")
    run_git(project, *_AS, "stash", "--include-untracked")
    for command in ("git stash pop", "git stash apply", "git stash apply 0", "git stash branch b"):
        assert decide_command(engine, command) == "ask"
    assert decide_command(engine, "git stash apply stash@{1}") == "allow"


@pytest.mark.parametrize(
    "command",
    ["git checkout a", "git checkout -- a", "git reset", "git rm a", "git mv a b", "git clean -fdx",
     "git stash", "git checkout -b new", "git restore a", "git reset --hard"],
)  # fmt: skip
def test_commands_that_add_no_file_are_not_asked_about(project: Path, command: str) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(locked/**)")
    assert decide_command(engine, command) == "allow"


def test_listing_the_files_of_a_commit_fetches_nothing(project: Path) -> None:
    """A partial clone lacks objects, which git would fetch with a program that the repository names."""
    ran = project.parent / "ran"
    blob = run_git(project, "rev-parse", "adding^{tree}").strip()
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", str(project)),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", f"touch {ran}; true"),
        ("protocol.file.allow", "always"),
    ):
        run_git(project, "config", name, value)
    (project / ".git/objects" / blob[:2] / blob[2:]).unlink()
    engine = create_engine(project, "bypassPermissions", deny="Edit(locked/**)")
    assert decide_command(engine, "git merge adding") == "ask"
    assert not ran.exists()


def test_the_decision_runs_no_program_that_the_repository_names(project: Path) -> None:
    canary = project.parent / "canary"
    program = f"touch {canary} #"
    for key in (
        *("core.fsmonitor", "core.pager", "pager.ls-tree", "core.sshCommand", "core.editor"),
        *("filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.external", "alias.ls-tree"),
        *("credential.helper", "core.askPass", "uploadpack.packObjectsHook"),
    ):
        run_git(project, "config", key, program)
    (project / ".git" / "info" / "attributes").write_text("* filter=x diff=x\n")
    engine = create_engine(project, "bypassPermissions", deny="Edit(locked/**)")
    assert decide_command(engine, "git merge adding") == "ask"
    assert not canary.exists()
