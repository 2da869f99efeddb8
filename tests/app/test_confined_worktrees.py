"""An agent in a worktree: its commands and its file tools change nothing outside of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from git_rig import Repository, git
from shoal.app.quarters.confines import worktree_sandbox
from shoal.app.quarters.worktrees import worktrees_of
from shoal.app.settings.settings import Settings, load_settings
from shoal.backends.processes import GuardedProcesses
from shoal.backends.sandbox.landlock import Landlock
from shoal.core.clock import SystemClock
from shoal.core.errors import WorkspaceError, WorktreeError
from shoal.core.ports import Launch
from shoal.core.sandbox import Sandbox
from shoal.core.worktrees import Kept
from shoal.workspaces.worktree import Worktree

pytestmark = pytest.mark.needs("git", "bwrap")
PATIENCE = 20.0


class Agent:
    """An agent's worktree, and commands run in it as its shell runs them."""

    def __init__(self, repository: Repository, worktree: Worktree, settings: Settings) -> None:
        self.repository = repository
        self.worktree = worktree
        self.settings = settings
        self.workspace = worktree.workspace()
        self.notes: list[str] = []
        self.processes = GuardedProcesses(SystemClock())

    async def sandbox(self) -> Sandbox:
        record = self.settings.home / "shoal/runs/s"
        return await worktree_sandbox(self.settings, self.worktree, self.workspace, record, self.notes.append)

    async def run(self, command: str) -> tuple[int, str]:
        read, write = os.pipe()
        launch = Launch(
            argv=("/bin/bash", "-c", command),
            cwd=self.workspace.cwd,
            env=self.settings.tool_environment,
            stdout=write,
            stderr=write,
        )
        try:
            process = await self.processes.start((await self.sandbox()).wrap(launch))
        finally:
            os.close(write)
        async with asyncio.timeout(PATIENCE):
            status = await process.wait()
        with os.fdopen(read, "rb") as file:
            return status, file.read().decode()


@pytest.fixture
async def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agent]:
    """The checkout lies in TMPDIR, which commands may write but for it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    repository = Repository(tmp_path)
    made = Agent(repository, await _made(repository), load_settings(cwd=repository.top))
    try:
        yield made
    finally:
        await made.processes.aclose()


async def _made(repository: Repository, agent: str = "a0123456789") -> Worktree:
    home = Path(os.environ["SHOAL_HOME"])
    worktrees = worktrees_of(repository.top, home=home, environ=os.environ, clock=SystemClock())
    return await worktrees.make(agent, session="s")


@pytest.mark.spec("ISO-01")
async def test_an_agent_edits_builds_and_commits_in_its_worktree(agent: Agent) -> None:
    status, said = await agent.run(
        "pwd && echo two >> sub/code.py && echo t > $TMPDIR/t && git add -A && git commit -qm work"
        " && git commit -q --amend -m better && git log --format=%s -1 && git status --porcelain"
    )
    assert (status, said) == (0, f"{agent.worktree.path}\nbetter\n")
    assert git(agent.worktree.path, "log", "--format=%s", "-1") == "better"
    assert git(agent.repository.top, "log", "--format=%s", "-1") == "first"
    status, said = await agent.run(
        "git switch -qc shoal/agent-a0123456/other && git commit -q --allow-empty -m x"
        " && git rebase -q main 2>&1 && git reset -q --hard HEAD && git switch -q shoal/agent-a0123456/work"
    )
    assert status == 0, said


async def test_commits_work_after_the_refs_were_packed(agent: Agent) -> None:
    git(agent.repository.top, "gc", "-q")
    status, said = await agent.run(
        "echo x > x && git add x && git commit -qm packed && git log --format=%s -1"
    )
    assert (status, said) == (0, "packed\n")


@pytest.mark.spec("USR-06")
@pytest.mark.parametrize(
    "command",
    [
        "echo x >> {main}/notes.txt",
        "echo x > {main}/made",
        "cd {main} && rm notes.txt",
        "mv {main} {main}-away",
        "git -C {main} commit -q --allow-empty -m x",
        "git -C {main} checkout -q -b other",
        "git -C {main} reset -q --hard HEAD~0 && git -C {main} stash",
        "git --git-dir={main}/.git --work-tree={main} checkout -q -f main -- notes.txt",
        "git worktree remove --force {other}",
        "git worktree add -q {top}/more",
        "git commit -q --allow-empty -m x && git update-ref refs/heads/main HEAD",
        "git branch -q else",
        "git tag mine",
        "git update-ref refs/heads/shoal/agent-b0000000/work HEAD",
        "git update-ref -d refs/shoal/kept/agent-old",
        "git config user.name other",
        "echo x > {main}/.git/hooks/pre-commit",
        "echo x > .git",
        "echo /elsewhere > $(git rev-parse --git-dir)/commondir",
        "rm -rf {main}/.git/objects/pack/* {main}/.git/objects/pack",
        "echo /elsewhere > {main}/.git/objects/info/alternates",
        "echo x > {other}/notes.txt",
        "rm -f {home}/worktrees/*/agent-*.json",
    ],
)
async def test_nothing_outside_the_worktree_is_changed(agent: Agent, command: str) -> None:
    repository = agent.repository
    git(repository.top, "repack", "-qad")
    git(repository.top, "update-ref", "refs/shoal/kept/agent-old", "HEAD")
    other = await _made(repository, "b0000000000")
    before = _everything(repository, other.path)
    home = agent.settings.home
    status, said = await agent.run(
        command.format(main=repository.top, other=other.path, top=repository.top.parent, home=home)
    )
    assert status != 0, said
    assert _everything(repository, other.path) == before
    assert not (repository.top.parent / "more").exists()


def _everything(repository: Repository, other: Path) -> list[str]:
    """The checkout, the other agent's files, all refs but those of the agent, and what steers git."""
    dot = repository.top / ".git"
    refs = git(repository.top, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    steering = [dot / "config", *sorted((dot / "hooks").iterdir()), *sorted((dot / "objects/info").iterdir())]
    entries = sorted((dot / "worktrees").glob("*/[gc]*dir"))
    return [
        repository.state(),
        *(ref for ref in refs if "agent-a0123456" not in ref),
        *(f"{path} {path.read_text()}" for path in (*steering, *entries, other / "notes.txt")),
        str(sorted(path.name for path in (dot / "objects/pack").iterdir())),
        str(sorted(path.name for path in other.parent.iterdir())),
    ]


@pytest.mark.spec("ISO-01", "USR-06")
async def test_file_tools_write_in_the_worktree_alone(agent: Agent, tmp_path: Path) -> None:
    main, path = agent.repository.top, agent.worktree.path
    link = path / "link"
    link.symlink_to(main)
    # The parent of the checkout is granted, as a person may have done for other projects in it.
    workspace = agent.worktree.workspace(granted=[tmp_path, main, main / "sub"], lent=[tmp_path / "plans"])
    assert workspace.granted == (tmp_path,)
    for refused in (main / "notes.txt", main / "new.txt", link / "notes.txt", Path("/etc/new")):
        with pytest.raises(WorkspaceError, match=r"worktree|copy of it"):
            workspace.write(refused, b"x")
        assert not workspace.contains(refused)
        assert not workspace.move(refused.parent) or refused.parent == Path("/etc")
    with pytest.raises(WorkspaceError, match=f"change {path}/notes.txt instead"):
        workspace.current(main / "notes.txt")
    workspace.write(path / "new.txt", b"x")
    workspace.write(tmp_path / "beside.txt", b"x")
    assert (path / "new.txt").read_bytes() == b"x"
    alone = agent.worktree.workspace(lent=[tmp_path / "plans"])
    with pytest.raises(WorkspaceError, match="outside your worktree"):
        alone.write(tmp_path / "other.txt", b"x")
    alone.write(tmp_path / "plans/plan.md", b"x")


@pytest.mark.spec("ISO-01", "USR-06")
async def test_an_agent_started_by_one_in_a_worktree_writes_there_alone_too(agent: Agent) -> None:
    theirs = agent.worktree.workspace()
    workspace = theirs.beside(lambda turn, path: None)
    with pytest.raises(WorkspaceError, match="copy of it"):
        workspace.write(agent.repository.top / "new.txt", b"x")
    workspace.write(agent.worktree.path / "new.txt", b"x")
    with pytest.raises(WorkspaceError, match="has not been read"):
        theirs.write(agent.worktree.path / "new.txt", b"y")


async def test_without_a_sandbox_the_agent_is_refused_unless_the_weaker_guard_is_allowed(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, top = agent.settings.home, agent.repository.top

    def configured(**own: object) -> None:
        (home / "settings.json").write_text(json.dumps({"shoal": own}))
        agent.settings = load_settings(cwd=top)

    configured(sandbox={"enabled": False})
    with pytest.raises(WorktreeError, match=r"the settings turn it off.*worktree_guard"):
        await agent.sandbox()
    (top / ".claude").mkdir()
    (top / ".claude/settings.json").write_text('{"shoal": {"worktree_guard": "weak"}}')
    configured(sandbox={"enabled": False})
    with pytest.raises(WorktreeError, match="the settings turn it off"):
        await agent.sandbox()
    (top / ".claude/settings.json").unlink()
    configured(sandbox={"enabled": False}, worktree_guard="weak")
    assert not (await agent.sandbox()).holds
    assert (await agent.run("echo ran"))[1] == "ran\n"
    configured()
    git_only = top.parent / "bin"
    git_only.mkdir()
    monkeypatch.setenv("PATH", str(git_only))
    agent.settings = load_settings(cwd=top)
    # Landlock, where the kernel has it, cannot hold a checkout that lies in a writable directory.
    with pytest.raises(WorktreeError, match="bwrap is not installed"):
        await agent.sandbox()


@pytest.mark.spec("USR-06")
async def test_landlock_holds_an_agent_too_where_the_checkout_is_not_in_a_writable_directory(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := Landlock().trouble():
        pytest.skip(why)
    programs, temporary = tmp_path / "bin", tmp_path / "tmp"
    programs.mkdir()
    temporary.mkdir()
    for name in ("git", "rm"):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    agent.settings = load_settings(cwd=agent.repository.top)
    status, said = await agent.run("echo x > x && git add x && git commit -qm work && git log --format=%s -1")
    assert (status, said) == (0, "work\n")
    main = agent.repository.top
    before = _everything(agent.repository, agent.worktree.path)
    for command in (
        f"echo x >> {main}/notes.txt",
        f"git -C {main} commit -q --allow-empty -m x",
        "git update-ref refs/heads/main HEAD",
        "git branch else",
        f"echo x >> {main}/.git/config",
        f"rm {main}/notes.txt",
        f"echo x > {agent.worktree.path.parent}/made",
    ):
        status, said = await agent.run(command)
        assert status != 0, command
    assert _everything(agent.repository, agent.worktree.path) == before


async def test_what_an_agent_hides_from_git_is_found(agent: Agent) -> None:
    await agent.run(
        "git update-index --skip-worktree notes.txt && echo hidden > notes.txt;"
        "mkdir inner && cd inner && git init -q"
    )
    home = agent.settings.home
    worktrees = worktrees_of(agent.repository.top, home=home, environ=os.environ, clock=SystemClock())
    kept = await worktrees.finish(agent.worktree)
    assert isinstance(kept, Kept)
    assert kept.work is not None
    assert "notes.txt" in kept.work.uncommitted
    assert git(agent.repository.top, "show", f"{kept.ref}:notes.txt") == "hidden"
    for act in (worktrees.merge, worktrees.remove):
        with pytest.raises(WorktreeError, match=r"git repositories inside.*inner"):
            await act(agent.worktree.name)
    assert (agent.worktree.path / "inner/.git").exists()


async def test_programs_an_agent_plants_are_not_run_when_its_work_is_looked_at(
    agent: Agent, tmp_path: Path
) -> None:
    """As with a guard too weak to keep the worktree's own .git file."""
    path, ran = agent.worktree.path, tmp_path / "ran"
    evil = path / "evil"
    subprocess.run(["git", "init", "-q", str(evil)], check=True)
    for key in ("core.fsmonitor", "diff.external", "filter.x.clean", "core.pager"):
        git(evil, "config", key, f"touch {ran}; cat")
    (path / ".git").unlink()
    (path / ".git").write_text(f"gitdir: {evil}/.git\n")
    (path / ".gitattributes").write_text("* filter=x diff=x\n")
    (path / "notes.txt").write_text("changed\n")
    home = agent.settings.home
    worktrees = worktrees_of(agent.repository.top, home=home, environ=os.environ, clock=SystemClock())
    kept = await worktrees.finish(agent.worktree)
    await worktrees.show(agent.worktree.name)
    assert isinstance(kept, Kept)
    assert git(agent.repository.top, "show", f"{kept.ref}:notes.txt") == "changed"
    assert not ran.exists()
