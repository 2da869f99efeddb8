"""Commands and file tools of an agent in a worktree change nothing outside it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from git_repository import GitRepository, run_git
from shoal.app.isolation.repository_worktrees import open_worktrees
from shoal.app.isolation.sandbox_policies import create_worktree_sandbox_selection
from shoal.app.settings.settings import Settings, load_settings
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.sandbox.landlock import LandlockSandboxDriver
from shoal.backends.sandbox.sandbox_selection import DriverSelectingSandbox
from shoal.core.agents.worktrees import RetainedWorktree
from shoal.core.clock import SystemClock
from shoal.core.errors import WorkspaceError, WorktreeError
from shoal.core.permissions.sandbox import Sandbox
from shoal.core.ports import ProcessLaunchSpec
from shoal.workspaces.worktree import Worktree

pytestmark = pytest.mark.needs("git", "bwrap")
PATIENCE = 20.0


class WorktreeAgent:
    """The worktree of an agent, with a way to run commands as its shell does."""

    def __init__(self, repository: GitRepository, worktree: Worktree, settings: Settings) -> None:
        self.repository = repository
        self.worktree = worktree
        self.settings = settings
        self.workspace = worktree.create_workspace()
        self.notes: list[str] = []
        self.processes = GuardedProcessLauncher(SystemClock())

    async def create_sandbox(self) -> Sandbox:
        record = self.settings.home / "shoal/runs/s"
        selection = await create_worktree_sandbox_selection(
            self.settings, self.worktree, self.workspace, record, self.notes.append
        )
        return DriverSelectingSandbox(selection)

    async def run_command(self, command: str) -> tuple[int, str]:
        read, write = os.pipe()
        launch = ProcessLaunchSpec(
            argv=("/bin/bash", "-c", command),
            cwd=self.workspace.cwd,
            env=self.settings.tool_environment,
            stdout=write,
            stderr=write,
        )
        try:
            sandbox = await self.create_sandbox()
            process = await self.processes.start_process(await sandbox.wrap_launch(launch))
        finally:
            os.close(write)
        async with asyncio.timeout(PATIENCE):
            status = await process.wait()
        with os.fdopen(read, "rb") as file:
            return status, file.read().decode()


@pytest.fixture
async def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorktreeAgent]:
    """The checkout is in TMPDIR, which is otherwise writable for commands."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    repository = GitRepository(tmp_path)
    made = WorktreeAgent(repository, await _create_worktree(repository), load_settings(cwd=repository.top))
    try:
        yield made
    finally:
        await made.processes.aclose()


async def _create_worktree(repository: GitRepository, agent: str = "a0123456789") -> Worktree:
    home = Path(os.environ["SHOAL_HOME"])
    worktrees = open_worktrees(repository.top, home=home, environ=os.environ, clock=SystemClock())
    return await worktrees.create_worktree(agent, session="s")


@pytest.mark.spec("ISO-01")
async def test_an_agent_edits_builds_and_commits_in_its_worktree(agent: WorktreeAgent) -> None:
    status, output = await agent.run_command(
        "pwd && echo two >> sub/code.py && echo t > $TMPDIR/t && git add -A && git commit -qm work"
        " && git commit -q --amend -m better && git log --format=%s -1 && git status --porcelain"
    )
    assert (status, output) == (0, f"{agent.worktree.path}\nbetter\n")
    assert run_git(agent.worktree.path, "log", "--format=%s", "-1") == "better"
    assert run_git(agent.repository.top, "log", "--format=%s", "-1") == "first"
    status, output = await agent.run_command(
        "git switch -qc shoal/agent-a0123456/other && git commit -q --allow-empty -m x"
        " && git rebase -q main 2>&1 && git reset -q --hard HEAD && git switch -q shoal/agent-a0123456/work"
    )
    assert status == 0, output


async def test_commits_work_after_the_refs_were_packed(agent: WorktreeAgent) -> None:
    run_git(agent.repository.top, "gc", "-q")
    status, output = await agent.run_command(
        "echo x > x && git add x && git commit -qm packed && git log --format=%s -1"
    )
    assert (status, output) == (0, "packed\n")


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
async def test_commands_in_a_worktree_change_nothing_outside_it(agent: WorktreeAgent, command: str) -> None:
    repository = agent.repository
    run_git(repository.top, "repack", "-qad")
    run_git(repository.top, "update-ref", "refs/shoal/kept/agent-old", "HEAD")
    other = await _create_worktree(repository, "b0000000000")
    before = _describe_outside_state(repository, other.path)
    home = agent.settings.home
    status, output = await agent.run_command(
        command.format(main=repository.top, other=other.path, top=repository.top.parent, home=home)
    )
    assert status != 0, output
    assert _describe_outside_state(repository, other.path) == before
    assert not (repository.top.parent / "more").exists()


def _describe_outside_state(repository: GitRepository, other: Path) -> list[str]:
    """Describe the checkout, the other agent's files, foreign refs and the git configuration."""
    dot = repository.top / ".git"
    refs = run_git(repository.top, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    steering = [dot / "config", *sorted((dot / "hooks").iterdir()), *sorted((dot / "objects/info").iterdir())]
    entries = sorted((dot / "worktrees").glob("*/[gc]*dir"))
    return [
        repository.describe_checkout(),
        *(ref for ref in refs if "agent-a0123456" not in ref),
        *(f"{path} {path.read_text()}" for path in (*steering, *entries, other / "notes.txt")),
        str(sorted(path.name for path in (dot / "objects/pack").iterdir())),
        str(sorted(path.name for path in other.parent.iterdir())),
    ]


@pytest.mark.spec("ISO-01", "USR-06")
async def test_file_tools_write_only_in_the_worktree(agent: WorktreeAgent, tmp_path: Path) -> None:
    main, path = agent.repository.top, agent.worktree.path
    link = path / "link"
    link.symlink_to(main)
    # The parent of the checkout is granted, as a person may have done for other projects in it.
    workspace = agent.worktree.create_workspace(
        granted=[tmp_path, main, main / "sub"], extra_writable=[tmp_path / "plans"]
    )
    assert workspace.granted_directories == (tmp_path,)
    for refused in (main / "notes.txt", main / "new.txt", link / "notes.txt", Path("/etc/new")):
        with pytest.raises(WorkspaceError, match=r"worktree|copy of it"):
            workspace.write_file(refused, b"x")
        assert not workspace.contains_path(refused)
        assert not workspace.change_directory(refused.parent) or refused.parent == Path("/etc")
    with pytest.raises(WorkspaceError, match=f"change {path}/notes.txt instead"):
        workspace.read_file_for_change(main / "notes.txt")
    workspace.write_file(path / "new.txt", b"x")
    workspace.write_file(tmp_path / "beside.txt", b"x")
    assert (path / "new.txt").read_bytes() == b"x"
    alone = agent.worktree.create_workspace(extra_writable=[tmp_path / "plans"])
    with pytest.raises(WorkspaceError, match="outside your worktree"):
        alone.write_file(tmp_path / "other.txt", b"x")
    alone.write_file(tmp_path / "plans/plan.md", b"x")


@pytest.mark.spec("ISO-01", "USR-06")
async def test_a_sub_agent_of_a_worktree_agent_writes_only_in_the_worktree(agent: WorktreeAgent) -> None:
    theirs = agent.worktree.create_workspace()
    workspace = theirs.create_sibling(lambda turn, path: None)
    with pytest.raises(WorkspaceError, match="copy of it"):
        workspace.write_file(agent.repository.top / "new.txt", b"x")
    workspace.write_file(agent.worktree.path / "new.txt", b"x")
    with pytest.raises(WorkspaceError, match="has not been read"):
        theirs.write_file(agent.worktree.path / "new.txt", b"y")


async def test_without_a_sandbox_a_worktree_agent_needs_the_weaker_guard_to_be_allowed(
    agent: WorktreeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, top = agent.settings.home, agent.repository.top

    def write_settings(**own: object) -> None:
        (home / "settings.json").write_text(json.dumps({"shoal": own}))
        agent.settings = load_settings(cwd=top)

    write_settings(sandbox={"enabled": False})
    with pytest.raises(WorktreeError, match=r"the settings turn it off.*worktree_guard"):
        await agent.create_sandbox()
    (top / ".claude").mkdir()
    (top / ".claude/settings.json").write_text('{"shoal": {"worktree_guard": "weak"}}')
    write_settings(sandbox={"enabled": False})
    with pytest.raises(WorktreeError, match="the settings turn it off"):
        await agent.create_sandbox()
    (top / ".claude/settings.json").unlink()
    write_settings(sandbox={"enabled": False}, worktree_guard="weak")
    assert not (await agent.create_sandbox()).is_active
    assert (await agent.run_command("echo ran"))[1] == "ran\n"
    write_settings()
    git_only = top.parent / "bin"
    git_only.mkdir()
    monkeypatch.setenv("PATH", str(git_only))
    agent.settings = load_settings(cwd=top)
    # Landlock, where the kernel has it, cannot hold a checkout that lies in a writable directory.
    with pytest.raises(WorktreeError, match="bwrap is not installed"):
        await agent.create_sandbox()


@pytest.mark.spec("USR-06")
async def test_landlock_confines_an_agent_if_the_checkout_is_not_in_a_writable_directory(
    agent: WorktreeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := LandlockSandboxDriver().explain_unavailable():
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
    status, output = await agent.run_command(
        "echo x > x && git add x && git commit -qm work && git log --format=%s -1"
    )
    assert (status, output) == (0, "work\n")
    main = agent.repository.top
    before = _describe_outside_state(agent.repository, agent.worktree.path)
    for command in (
        f"echo x >> {main}/notes.txt",
        f"git -C {main} commit -q --allow-empty -m x",
        "git update-ref refs/heads/main HEAD",
        "git branch else",
        f"echo x >> {main}/.git/config",
        f"rm {main}/notes.txt",
        f"echo x > {agent.worktree.path.parent}/made",
    ):
        status, output = await agent.run_command(command)
        assert status != 0, command
    assert _describe_outside_state(agent.repository, agent.worktree.path) == before


async def test_work_that_an_agent_hides_from_git_is_found(agent: WorktreeAgent) -> None:
    await agent.run_command(
        "git update-index --skip-worktree notes.txt && echo hidden > notes.txt;"
        "mkdir inner && cd inner && git init -q"
    )
    home = agent.settings.home
    worktrees = open_worktrees(agent.repository.top, home=home, environ=os.environ, clock=SystemClock())
    retained = await worktrees.finish_worktree(agent.worktree)
    assert isinstance(retained, RetainedWorktree)
    assert retained.work is not None
    assert "notes.txt" in retained.work.uncommitted
    assert run_git(agent.repository.top, "show", f"{retained.ref}:notes.txt") == "hidden"
    for act in (worktrees.merge_worktree, worktrees.remove_worktree):
        with pytest.raises(WorktreeError, match=r"nested git repositories.*inner"):
            await act(agent.worktree.name)
    assert (agent.worktree.path / "inner/.git").exists()


async def test_programs_planted_by_an_agent_are_not_run_during_inspection(
    agent: WorktreeAgent, tmp_path: Path
) -> None:
    """As with a guard too weak to protect the worktree's .git file."""
    path, ran = agent.worktree.path, tmp_path / "ran"
    evil = path / "evil"
    subprocess.run(["git", "init", "-q", str(evil)], check=True)
    for key in ("core.fsmonitor", "diff.external", "filter.x.clean", "core.pager"):
        run_git(evil, "config", key, f"touch {ran}; cat")
    (path / ".git").unlink()
    (path / ".git").write_text(f"gitdir: {evil}/.git\n")
    (path / ".gitattributes").write_text("* filter=x diff=x\n")
    (path / "notes.txt").write_text("changed\n")
    home = agent.settings.home
    worktrees = open_worktrees(agent.repository.top, home=home, environ=os.environ, clock=SystemClock())
    retained = await worktrees.finish_worktree(agent.worktree)
    await worktrees.show_worktree(agent.worktree.name)
    assert isinstance(retained, RetainedWorktree)
    assert run_git(agent.repository.top, "show", f"{retained.ref}:notes.txt") == "changed"
    assert not ran.exists()
