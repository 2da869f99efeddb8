"""Git commands that would add a file which a rule protects, although git does not track it yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

from git_repository import run_git

_AS = ("-c", "user.name=A", "-c", "user.email=a@example.org")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return _create_project(tmp_path)


@pytest.fixture(scope="module")
def unchanged_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _create_project(tmp_path_factory.mktemp("project"))


def _create_project(directory: Path) -> Path:
    """Return a repository with the branches `adding`, which has `locked/new`, and `other`, which does not."""
    run_git(directory, "init", "-q", "-b", "main")
    (directory / "a").write_text("a\n")
    _commit(directory, "first")
    for branch, name in (("adding", "locked/new"), ("other", "docs/new")):
        run_git(directory, "checkout", "-q", "-b", branch, "main")
        (directory / name).parent.mkdir()
        (directory / name).write_text("x\n")
        _commit(directory, branch)
    run_git(directory, "checkout", "-q", "main")
    return directory


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
     "git merge -m x {}", "git merge -X ours {}", "git merge --strategy ours {}", "git merge HEAD {}",
     "git merge {}^0", "git merge refs/heads/{}", "git -p merge {}",
     "git rebase main {}", "git rebase {} main", "git rebase --onto main {}", "git rebase -i {}",
     "git cherry-pick {} HEAD", "git cherry-pick main...{}", "git cherry-pick -n {}",
     "git checkout {} a", "git checkout -B new {}", "git checkout -f {}", "git checkout -m {}",
     "git switch -m {}", "git switch -C new {}", "git switch --create new {}", "git switch --detach {}",
     "git reset {}", "git reset --soft {}", "git reset {} -- a", "git restore --source={} -- a",
     "git restore --source {}", "git read-tree {}", "git read-tree --reset -u {}",
     "git read-tree -m -u main {}", "git revert {}", "git -C . checkout {}",
     "git merge $(git rev-parse {})"],
)  # fmt: skip
def test_a_commit_that_adds_a_protected_file_is_asked_about(unchanged_project: Path, command: str) -> None:
    for mode in ("acceptEdits", "bypassPermissions"):
        engine = create_engine(
            unchanged_project, mode, deny="Edit(locked/**)", allow="Bash(git:*) Bash(cd:*)"
        )
        assert decide_command(engine, command.format("adding")) == "ask"
    if "$" not in command:
        assert decide_command(engine, command.format("other")) == "allow"
    free = create_engine(unchanged_project, "bypassPermissions")
    assert decide_command(free, command.format("adding")) == "allow"


@pytest.mark.parametrize(
    "command",
    ["git pull", "git pull origin main", "git am x.mbox", "git apply x.patch", "git merge unknown",
     "git merge", "git merge --abort", "git merge $x", "git merge FETCH_HEAD", "git merge @{u}",
     "git rebase --continue", "git cherry-pick --continue", "git checkout nothing", "git switch nothing",
     "git checkout origin/other", "git reset HEAD~5", "git stash pop", "git stash branch b",
     "git bisect start", "git submodule update", "git fast-import", "git filter-branch",
     "git replay --onto main other", "git -c a.b=c checkout other", "git -c a.b=c -c d.e=f checkout other",
     "git --git-dir=.git checkout other", "git --git-dir other/.git checkout main",
     "git --git-dir other/.git --work-tree . checkout main", "git --git-dir other/.git reset --hard",
     "git --git-dir=other/.git restore .", "git --work-tree=locked checkout .",
     "git -c core.worktree=x stash",
     "GIT_DIR=other/.git git checkout main", "GIT_WORK_TREE=locked git reset --hard",
     "GIT_INDEX_FILE=x git checkout-index -a"],
)  # fmt: skip
def test_a_source_that_is_not_known_yet_may_add_any_file(unchanged_project: Path, command: str) -> None:
    engine = create_engine(unchanged_project, "bypassPermissions", deny="Edit(locked/**)")
    assert decide_command(engine, command) == "ask"
    assert (
        decide_command(create_engine(unchanged_project, "bypassPermissions", deny="Bash(rm:*)"), command)
        == "allow"
    )


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
     "git stash", "git checkout -b new", "git restore a", "git reset --hard", "git checkout .",
     "git checkout -", "git switch -", "git checkout HEAD", "git checkout main", "git merge HEAD",
     "git checkout a adding", "git checkout -b adding", "git checkout --orphan adding",
     "git merge -m adding main", "git cherry-pick -", "git restore --staged a", "git stash list",
     "git stash show", "git stash drop", "git log adding", "git diff adding", "git branch -f main adding",
     "git -c a.b=c stash", "git -c user.name=x checkout -b new", "git --git-dir other/.git log",
     "git checkout-index -a", "git --no-pager checkout ."],
)  # fmt: skip
def test_commands_that_add_no_file_are_not_asked_about(unchanged_project: Path, command: str) -> None:
    engine = create_engine(unchanged_project, "bypassPermissions", deny="Edit(locked/**)")
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
