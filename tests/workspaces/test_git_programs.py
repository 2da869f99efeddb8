"""Programs that the configuration of a repository names are not run by Shoal's git."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import shoal
from git_repository import GitRepository, run_git
from shoal.core.agents.worktrees import RetainedWorktree
from shoal.core.clock import SystemClock
from shoal.core.errors import MergeConflict, WorktreeError
from shoal.workspaces.git_runner import GitRunner

pytestmark = pytest.mark.needs("git")


class PlantedPrograms:
    """Configures programs that leave a file named after their key when git runs them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "ran"
        self.directory.mkdir()

    def build_command(self, key: str, then: str) -> str:
        mark = self.directory / re.sub(r"[^A-Za-z0-9.]", "_", key)
        return f"touch {mark}; {then}"

    def plant(self, repository: Path, *keys: str, then: str = "cat", scope: tuple[str, ...] = ()) -> None:
        for key in keys:
            run_git(repository, "config", *scope, key, self.build_command(key, then))

    @property
    def ran(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


@pytest.fixture
def planted_programs(tmp_path: Path) -> PlantedPrograms:
    return PlantedPrograms(tmp_path)


_FILTERS = ("filter.x.clean", "filter.x.smudge", "filter.x.process")
_PROGRAMS = (
    *_FILTERS,
    "filter.a=b.clean",
    "filter.a=b.smudge",
    "merge.x.driver",
    "diff.x.command",
    "diff.x.textconv",
    "diff.external",
    "core.fsmonitor",
    "core.pager",
    "core.editor",
    "core.sshCommand",
    "core.askPass",
    "core.alternateRefsCommand",
    "sequence.editor",
    "gpg.program",
    "credential.helper",
    "alias.status",
    "pager.log",
)
_ATTRIBUTES = "*.txt filter=x diff=x merge=x\n*.py filter=a=b diff=x merge=x\n"


@pytest.mark.spec("ISO-01")
@pytest.mark.parametrize("place", ["config", "included file", "worktree config"])
async def test_git_runs_no_program_that_the_repository_configures(
    repository: GitRepository, planted_programs: PlantedPrograms, place: str, tmp_path: Path
) -> None:
    repository.commit_file(".gitattributes", _ATTRIBUTES)
    scope: tuple[str, ...] = ()
    if place == "included file":
        run_git(repository.top, "config", "include.path", "../team.gitconfig")
        scope = ("--file", str(repository.top / "team.gitconfig"))
        (repository.top / ".git/info/exclude").write_text("team.gitconfig\n")
    elif place == "worktree config":
        run_git(repository.top, "config", "extensions.worktreeConfig", "true")
        scope = ("--worktree",)
    planted_programs.plant(repository.top, *_PROGRAMS, scope=scope)
    run_git(repository.top, "config", "log.showSignature", "true")
    # The lead's own commits run the programs, as the lead's git is not Shoal's.
    (repository.top / "notes.txt").write_text("notes\n")
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    assert (worktree.path / "notes.txt").read_text() == "notes\n"
    (worktree.path / "notes.txt").write_text("notes of the agent\n")
    (worktree.path / "sub/code.py").write_text("one\ntwo\n")
    kept = await worktrees.finish_worktree(worktree)
    assert isinstance(kept, RetainedWorktree)
    await worktrees.list_worktrees()
    await worktrees.show_worktree(worktree.name)
    await worktrees.merge_worktree(worktree.name)
    assert planted_programs.ran == []
    assert (repository.top / "notes.txt").read_text() == "notes of the agent\n"


async def test_a_filter_that_is_planted_later_is_not_run_either(
    repository: GitRepository, planted_programs: PlantedPrograms
) -> None:
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    (worktree.path / ".gitattributes").write_text(_ATTRIBUTES)
    (worktree.path / "notes.txt").write_text("changed\n")
    planted_programs.plant(repository.top, *_FILTERS)
    kept = await worktrees.finish_worktree(worktree)
    assert isinstance(kept, RetainedWorktree)
    assert planted_programs.ran == []
    assert run_git(repository.top, "show", f"{kept.ref}:notes.txt") == "changed"


async def test_programs_of_the_users_own_configuration_still_run(
    repository: GitRepository,
    planted_programs: PlantedPrograms,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    user = ("--file", str(own))
    run_git(repository.top, "config", *user, "filter.x.clean", "tr a-z A-Z")
    run_git(repository.top, "config", *user, "filter.x.smudge", "tr A-Z a-z")
    run_git(repository.top, "config", *user, "filter.x.required", "true")
    repository.commit_file(".gitattributes", "*.txt filter=x\n")
    planted_programs.plant(repository.top, "filter.x.clean", "filter.x.smudge", then="tr a-z 0-9")
    run_git(repository.top, "config", "filter.x.required", "true")
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    (worktree.path / "notes.txt").write_text("changed\n")
    kept = await worktrees.finish_worktree(worktree)
    assert isinstance(kept, RetainedWorktree)
    assert run_git(repository.top, "cat-file", "blob", f"{kept.ref}:notes.txt") == "CHANGED"
    assert planted_programs.ran == []


async def test_a_filter_that_the_repository_requires_is_refused_with_the_reason(
    repository: GitRepository, planted_programs: PlantedPrograms
) -> None:
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    (worktree.path / "notes.txt").write_text("changed\n")
    await worktrees.finish_worktree(worktree)
    planted_programs.plant(repository.top, "filter.crypt.clean", "filter.crypt.smudge")
    run_git(repository.top, "config", "filter.crypt.required", "true")
    for act in (repository.create_worktree("b1"), worktrees.merge_worktree(worktree.name)):
        with pytest.raises(WorktreeError, match=r"requires the filter 'crypt'.*git config --global"):
            await act
    run_git(repository.top, "config", "--remove-section", "filter.crypt")
    await worktrees.merge_worktree(worktree.name)
    assert planted_programs.ran == []


async def test_a_merge_driver_of_the_repository_is_replaced_by_the_usual_merge(
    repository: GitRepository, planted_programs: PlantedPrograms
) -> None:
    lines = "".join(f"line {number}\n" for number in range(20))
    repository.commit_file("notes.txt", lines)
    repository.commit_file(".gitattributes", "*.txt merge=x\n")
    planted_programs.plant(repository.top, "merge.x.driver", then="true")
    run_git(repository.top, "config", "merge.default", "x")
    worktrees = repository.open_worktrees()
    far, near = [await repository.create_worktree(name, service=worktrees) for name in ("a1", "b1")]
    (far.path / "notes.txt").write_text(lines.replace("line 19", "of the agent"))
    (near.path / "notes.txt").write_text(lines.replace("line 0\n", "against the lead\n"))
    for worktree in (far, near):
        await worktrees.finish_worktree(worktree)
    repository.commit_file("notes.txt", lines.replace("line 0\n", "of the lead\n"))
    await worktrees.merge_worktree(far.name)
    merged = (repository.top / "notes.txt").read_text()
    assert merged.startswith("of the lead\n")
    assert merged.endswith("of the agent\n")
    with pytest.raises(MergeConflict):
        await worktrees.merge_worktree(near.name)
    assert planted_programs.ran == []


async def test_git_runs_no_program_of_a_nested_repository(
    repository: GitRepository, planted_programs: PlantedPrograms
) -> None:
    nested = repository.top / "nested"
    nested.mkdir()
    run_git(nested, "init", "-q")
    (nested / ".gitattributes").write_text("* filter=x\n")
    (nested / "a.txt").write_text("a\n")
    run_git(nested, "add", "-A")
    run_git(nested, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    (repository.top / ".gitmodules").write_text(
        '[submodule "nested"]\n\tpath = nested\n\turl = ./nested\n\tignore = none\n'
    )
    run_git(repository.top, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    run_git(repository.top, "commit", "-qm", "with a nested repository")
    planted_programs.plant(nested, *_FILTERS, "core.fsmonitor")
    (nested / "a.txt").write_text("b\n")
    worktree = await repository.create_worktree()
    assert any("these submodules" in note and "nested" in note for note in worktree.notes)
    assert planted_programs.ran == []


@pytest.mark.parametrize("is_other_repository", [False, True])
async def test_a_repository_whose_configuration_names_another_directory_is_refused(
    repository: GitRepository, is_other_repository: bool
) -> None:
    target = repository.top.parent
    if is_other_repository:
        run_git(target, "init", "-q")
    run_git(repository.top, "config", "core.worktree", str(target))
    with pytest.raises(WorktreeError, match=r"which does not belong to it.*core\.worktree"):
        await repository.create_worktree()


async def test_a_missing_object_is_not_fetched_through_a_program_that_an_address_names(
    repository: GitRepository, planted_programs: PlantedPrograms
) -> None:
    for key, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("protocol.ext.allow", "always"),
        ("protocol.allow", "always"),
    ):
        run_git(repository.top, "config", key, value)
    run_git(
        repository.top, "config", "remote.origin.url", f"ext::touch {planted_programs.directory / 'fetched'}"
    )
    git = GitRunner(dict(os.environ), SystemClock())
    result = await git.try_run("cat-file", "-p", "0123456789" * 4, at=repository.top)
    assert result.status != 0
    assert planted_programs.ran == []


async def test_a_git_that_ignores_replaced_settings_is_not_used(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    real = subprocess.run(["sh", "-c", "command -v git"], capture_output=True, text=True, check=True)
    old = programs / "git"
    old.write_text(f'#!/bin/sh\nunset GIT_CONFIG_COUNT\nexec {real.stdout.strip()} "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(WorktreeError, match=r"git is too old.*2\.31"):
        await repository.create_worktree()


def test_only_the_runner_and_the_demo_start_git() -> None:
    """The demo's repository is new, and its own. `ls-tree` reads neither the index nor the working tree, and
    tests/policy/test_incoming_files.py shows that it starts no program."""
    source = Path(shoal.__file__).parent
    starters = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"""(?:exec|run|Popen|check_output|call)\([\s\[(]*["']git["']""", path.read_text())
    }
    assert starters == {
        "workspaces/git_runner.py",
        "app/demo/demo_project.py",
        "policy/incoming_files.py",
    }
