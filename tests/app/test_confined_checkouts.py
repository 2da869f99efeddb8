"""Commands and file tools of an agent on a machine of a cluster change nothing outside its checkout."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from git_repository import GitRepository, run_git
from shoal.app.isolation.sandbox_policies import create_worktree_sandbox_selection
from shoal.app.settings.settings import Settings, load_settings
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.sandbox.landlock import LandlockSandboxDriver
from shoal.backends.sandbox.sandbox_selection import DriverSelectingSandbox
from shoal.core.clock import SystemClock
from shoal.core.errors import WorkspaceError, WorktreeError
from shoal.core.ports import ProcessLaunchSpec
from shoal.workspaces.checkout import find_git_checkout
from shoal.workspaces.confined_checkout import ConfinedCheckout, open_confined_checkout
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.project_transfer import MachineCheckout, bundle_project, find_project_origin

pytestmark = pytest.mark.needs("git", "bwrap")
PATIENCE = 20.0


async def create_checkout(repository: GitRepository, name: str, directory: str = "") -> MachineCheckout:
    """Create a checkout of the repository as a machine of a cluster does, in the home of the test."""
    git = GitRunner(os.environ, SystemClock())
    project = await find_git_checkout(git, repository.top / directory)
    origin = await find_project_origin(git, project, f"refs/shoal/cluster/s/{name}", name=f"s-{name}")
    checkout = MachineCheckout(git, Path(os.environ["SHOAL_HOME"]), origin)
    known = await checkout.list_known_commits()
    await checkout.create(await bundle_project(git, project, origin, known))
    return checkout


class CheckoutAgent:
    """The checkout of an agent, with a way to run commands as its shell does."""

    def __init__(
        self, made: MachineCheckout, settings: Settings, note: Callable[[str], None] = pytest.fail
    ) -> None:
        self._note = note
        self.top = made.top
        self.repository = Path(made.paths.repository)
        self.checkout: ConfinedCheckout = open_confined_checkout(made.paths, made.cwd, session="s")
        self.settings = settings
        self.workspace = self.checkout.create_workspace()
        self.processes = GuardedProcessLauncher(SystemClock())

    async def create_sandbox(self) -> DriverSelectingSandbox:
        directory = self.settings.home / "shoal/runs/s"
        selection = await create_worktree_sandbox_selection(
            self.settings, self.checkout, self.workspace, directory, self._note
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
        sandbox = await self.create_sandbox()
        try:
            process = await self.processes.start_process(await sandbox.wrap_launch(launch))
        finally:
            os.close(write)
        async with asyncio.timeout(PATIENCE):
            status = await process.wait()
        await sandbox.finish_command()
        with os.fdopen(read, "rb") as file:
            return status, file.read().decode()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepository:
    """The home with the checkouts is in TMPDIR, which is otherwise writable for commands."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@localhost")
    return GitRepository(tmp_path)


@pytest.fixture
async def agent(repository: GitRepository) -> AsyncIterator[CheckoutAgent]:
    made = await create_checkout(repository, "ann", "sub")
    agent = CheckoutAgent(made, load_settings(cwd=made.cwd))
    try:
        yield agent
    finally:
        await agent.processes.aclose()


@pytest.mark.spec("USR-06")
async def test_an_agent_edits_and_commits_in_its_checkout(agent: CheckoutAgent) -> None:
    status, output = await agent.run_command(
        "pwd && echo two >> code.py && echo x > ../new && echo t > $TMPDIR/t && git add -A .. && "
        "git commit -qm work && git switch -qc other && git log --format=%s && git status --porcelain"
    )
    assert (status, output) == (0, f"{agent.top}/sub\nwork\nfirst\n")
    assert run_git(agent.top, "log", "--format=%s", "-1") == "work"


@pytest.mark.spec("USR-06")
@pytest.mark.parametrize(
    "command",
    [
        "echo x >> {other}/notes.txt",
        "mkdir -p {other} && echo x > {other}/made",
        "git -C {other} commit -q --allow-empty -m x",
        "git --git-dir={other}/.git --work-tree={other} checkout -q -f HEAD -- notes.txt",
        "git clone -q . {checkouts}/more",
        "echo x > {repository}/HEAD",
        "rm -rf {repository}/objects/pack",
        "git --git-dir={repository} update-ref refs/heads/mine HEAD",
        "git push -q {repository} HEAD:refs/heads/mine",
        "mv {top} {top}-away",
        "git config user.name other",
        "echo x > {top}/.git/hooks/pre-commit",
        "echo /elsewhere > {top}/.git/objects/info/alternates",
        "mv {top}/.git {top}/.git-away",
        "echo x > {top}/.mcp.json",
        "echo x > {home}/settings.json",
    ],
)
async def test_commands_change_nothing_outside_the_checkout(
    agent: CheckoutAgent, repository: GitRepository, command: str
) -> None:
    other = await create_checkout(repository, "ben")
    places = {"other": other.top, "checkouts": other.top.parent, "repository": agent.repository}
    before = describe_files(other.top.parent.parent, agent.settings.home / "settings.json")
    status, output = await agent.run_command(
        command.format(**places, top=agent.top, home=agent.settings.home)
    )
    assert status != 0, output
    assert describe_files(other.top.parent.parent, agent.settings.home / "settings.json") == before


def describe_files(*places: Path) -> dict[str, bytes | None]:
    found = [path for place in places for path in (place, *place.rglob("*"))]
    return {str(path): path.read_bytes() if path.is_file() else None for path in found if path.exists()}


@pytest.mark.spec("USR-06")
async def test_file_tools_write_only_in_the_checkout_and_in_granted_directories(
    agent: CheckoutAgent, repository: GitRepository, tmp_path: Path
) -> None:
    other = await create_checkout(repository, "ben")
    granted, home = tmp_path / "granted", agent.settings.home
    granted.mkdir()
    (agent.top / "link").symlink_to(other.top)
    # Even a directory around all checkouts grants none of the others.
    workspace = agent.checkout.create_workspace(granted=[granted, home, other.top])
    assert workspace.granted_directories == (granted, home)
    for refused in (
        other.top / "notes.txt",
        agent.top / "link" / "notes.txt",
        agent.repository / "config",
        Path("/etc/new"),
    ):
        with pytest.raises(WorkspaceError, match=f"outside your checkout {agent.top}"):
            workspace.write_file(refused, b"x")
    for allowed in (agent.top / "new.txt", agent.top / "sub" / "new.txt", granted / "new.txt"):
        workspace.write_file(allowed, b"x")
        assert allowed.read_bytes() == b"x"
    sibling = workspace.create_sibling(lambda turn, path: None)
    with pytest.raises(WorkspaceError, match="outside your checkout"):
        sibling.write_file(other.top / "new.txt", b"x")


@pytest.mark.spec("USR-06")
async def test_commands_write_in_granted_directories(agent: CheckoutAgent, tmp_path: Path) -> None:
    granted = tmp_path.parent / f"{tmp_path.name}-granted"
    granted.mkdir()
    assert (await agent.run_command(f"echo x > {granted}/new"))[0] != 0
    agent.workspace.grant_directory(granted)
    assert await agent.run_command(f"echo x > {granted}/new") == (0, "")
    assert (granted / "new").read_text() == "x\n"


async def test_without_a_sandbox_an_agent_does_not_start_unless_the_weak_guard_is_allowed(
    agent: CheckoutAgent,
) -> None:
    path = agent.settings.home / "settings.json"
    path.write_text('{"shoal": {"sandbox": {"enabled": false}}}')
    agent.settings = load_settings(cwd=agent.top)
    with pytest.raises(WorktreeError, match=r"to its checkout.*the settings turn it off.*worktree_guard"):
        await agent.create_sandbox()
    path.write_text('{"shoal": {"sandbox": {"enabled": false}, "worktree_guard": "weak"}}')
    agent.settings = load_settings(cwd=agent.top)
    assert not (await agent.create_sandbox()).is_active


@pytest.mark.spec("USR-06")
async def test_landlock_confines_an_agent_on_a_machine_without_bubblewrap(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := LandlockSandboxDriver().explain_unavailable():
        pytest.skip(why)
    programs, temporary = tmp_path / "bin", tmp_path / "tmp"
    programs.mkdir()
    temporary.mkdir()
    for name in ("git", "cat"):
        (programs / name).symlink_to(shutil.which(name) or name)
    made, other = await create_checkout(repository, "ann"), await create_checkout(repository, "ben")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    agent = CheckoutAgent(made, load_settings(cwd=made.cwd), note=lambda text: None)
    secret = agent.settings.home / "shoal" / "secret"
    secret.write_text("x")
    try:
        assert await agent.run_command(
            "echo x > x && git add x && git commit -qm work && git log -1 --format=%s"
        ) == (
            0,
            "work\n",
        )
        for command in (
            f"echo x > {other.top}/made",
            f"git -C {other.top} commit -q --allow-empty -m x",
            f"echo x > {agent.repository}/made",
            f"cat {other.top}/notes.txt",
            f"cat {secret}",
        ):
            status, output = await agent.run_command(command)
            assert status != 0, output
    finally:
        await agent.processes.aclose()
    assert run_git(other.top, "log", "--format=%s") == "first"
    assert not [*agent.repository.parent.parent.rglob("made")]
