"""A real git repository with the lead's checkout, and its worktrees below a home."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.workspaces.worktree import Worktree
from shoal.workspaces.worktree_service import WorktreeService

SESSION = "11111111-2222-4333-8444-555555555555"


def run_git(directory: Path, *arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@cache
def create_template(fill: Callable[[Path], None]) -> Path:
    """Create a repository that tests copy: six runs of git take ten times as long."""
    directory = Path(tempfile.mkdtemp(prefix="shoal-git-"))
    atexit.register(_remove_template, directory, os.getpid())
    top = directory / "template"
    top.mkdir()
    fill(top)
    for example in (top / ".git/hooks").glob("*.sample"):
        example.unlink()
    return top


def _remove_template(directory: Path, creator: int) -> None:
    if os.getpid() == creator:  # and not a fork of it, as in crash tests
        shutil.rmtree(directory, ignore_errors=True)


def commit_first_files(top: Path, name: str, email: str) -> None:
    run_git(top, "init", "-q", "-b", "main")
    run_git(top, "config", "user.name", name)
    run_git(top, "config", "user.email", email)
    run_git(top, "add", "-A")
    run_git(top, "commit", "-qm", "first")


def _fill_repository(top: Path) -> None:
    (top / "sub").mkdir()
    (top / "sub/code.py").write_text("one\n")
    (top / "notes.txt").write_text("notes\n")
    (top / ".gitignore").write_text("*.log\n")
    commit_first_files(top, "A Person", "person@example.org")


class GitRepository:
    def __init__(self, top: Path, *, template: GitRepository | None = None) -> None:
        self.top = top / "project"
        self.home = top / "home"
        self.top.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(template.top if template else create_template(_fill_repository), self.top)

    def copy_to(self, top: Path) -> GitRepository:
        return GitRepository(top, template=self)

    def commit_all(self, message: str, directory: Path | None = None) -> str:
        where = directory or self.top
        run_git(where, "add", "-A")
        run_git(where, "commit", "-qm", message)
        return run_git(where, "rev-parse", "HEAD")

    def commit_file(self, name: str, content: str, directory: Path | None = None) -> str:
        ((directory or self.top) / name).write_text(content)
        return self.commit_all(f"write {name}", directory)

    def open_worktrees(self, root: Path | None = None) -> WorktreeService:
        """Open a worktree service as a separate process would."""
        return WorktreeService(root or self.top, self.home, env=dict(os.environ), clock=SystemClock())

    async def create_worktree(
        self, agent: str = "a0123456789", *, service: WorktreeService | None = None
    ) -> Worktree:
        return await (service or self.open_worktrees()).create_worktree(agent, session=SESSION)

    @property
    def head(self) -> str:
        return run_git(self.top, "rev-parse", "HEAD")

    @property
    def branches(self) -> list[str]:
        return run_git(self.top, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    @property
    def retained_refs(self) -> dict[str, str]:
        lines = run_git(
            self.top, "for-each-ref", "--format=%(refname) %(objectname)", "refs/shoal"
        ).splitlines()
        return dict(line.split(" ") for line in lines)

    def describe_checkout(self) -> str:
        """Describe the checkout as a person sees it: commit, branch, index and files."""
        files = sorted(path for path in self.top.rglob("*") if path.is_file() and ".git" not in path.parts)
        said = [run_git(self.top, "status", "--porcelain=v2", "--branch", "--untracked-files=all")]
        return "\n".join([*said, *(f"{path}\n{path.read_text()}" for path in files)])

    def has_no_leftovers(self) -> bool:
        """Return True if the worktrees of agents left nothing but refs."""
        entries = self.top / ".git/worktrees"
        left = list(self.home.rglob("agent-*")) if self.home.exists() else []
        return not left and self.branches == ["main"] and not (entries.exists() and any(entries.iterdir()))
