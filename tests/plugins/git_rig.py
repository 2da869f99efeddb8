"""A real git repository with the lead's checkout, and its worktrees below a home."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.workspaces.worktree import Worktree
from shoal.workspaces.worktrees import Worktrees

SESSION = "11111111-2222-4333-8444-555555555555"


def git(directory: Path, *words: str) -> str:
    ran = subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


class Repository:
    def __init__(self, top: Path, *, like: Repository | None = None) -> None:
        self.top = top / "project"
        self.home = top / "home"
        if like is not None:
            shutil.copytree(like.top, self.top)
            return
        self.top.mkdir(parents=True)
        git(self.top, "init", "-q", "-b", "main")
        git(self.top, "config", "user.name", "A Person")
        git(self.top, "config", "user.email", "person@example.org")
        (self.top / "sub").mkdir()
        (self.top / "sub/code.py").write_text("one\n")
        (self.top / "notes.txt").write_text("notes\n")
        (self.top / ".gitignore").write_text("*.log\n")
        self.commit("first")

    def copied(self, top: Path) -> Repository:
        return Repository(top, like=self)

    def commit(self, message: str, directory: Path | None = None) -> str:
        where = directory or self.top
        git(where, "add", "-A")
        git(where, "commit", "-qm", message)
        return git(where, "rev-parse", "HEAD")

    def commit_file(self, name: str, content: str, directory: Path | None = None) -> str:
        ((directory or self.top) / name).write_text(content)
        return self.commit(f"write {name}", directory)

    def worktrees(self, root: Path | None = None) -> Worktrees:
        """Open a worktree service as a separate process would."""
        return Worktrees(root or self.top, self.home, env=dict(os.environ), clock=SystemClock())

    async def made(self, agent: str = "a0123456789", *, by: Worktrees | None = None) -> Worktree:
        return await (by or self.worktrees()).make(agent, session=SESSION)

    @property
    def head(self) -> str:
        return git(self.top, "rev-parse", "HEAD")

    @property
    def branches(self) -> list[str]:
        return git(self.top, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    @property
    def kept(self) -> dict[str, str]:
        lines = git(self.top, "for-each-ref", "--format=%(refname) %(objectname)", "refs/shoal").splitlines()
        return dict(line.split(" ") for line in lines)

    def state(self) -> str:
        """Describe the checkout as a person sees it: commit, branch, index and files."""
        files = sorted(path for path in self.top.rglob("*") if path.is_file() and ".git" not in path.parts)
        said = [git(self.top, "status", "--porcelain=v2", "--branch", "--untracked-files=all")]
        return "\n".join([*said, *(f"{path}\n{path.read_text()}" for path in files)])

    def nothing_left(self) -> bool:
        """Return True if the worktrees of agents left nothing but refs."""
        entries = self.top / ".git/worktrees"
        left = list(self.home.rglob("agent-*")) if self.home.exists() else []
        return not left and self.branches == ["main"] and not (entries.exists() and any(entries.iterdir()))
