"""Commits that a machine fetches from a remote of the lead's repository."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from git_repository import run_git
from git_servers import GitServer, run_git_daemon, run_https_server, run_silent_server
from shoal.app.agents.cluster_files import ClusterFiles
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.clock import SystemClock
from shoal.core.teams.member_backends import MemberLaunchArgs
from shoal.workspaces.checkout import GitCheckout, find_git_checkout
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.project_remotes import RemoteCommit, remove_url_credentials
from shoal.workspaces.project_transfer import (
    KnownCommits,
    MachineCheckout,
    ProjectOrigin,
    bundle_project,
    find_project_origin,
    store_checkpoint,
)
from tls_files import create_tls_files

pytestmark = pytest.mark.needs("git")
CLOCK = SystemClock()
REF = "refs/shoal/cluster/s1/ann"
MEMBER = MemberLaunchArgs(
    agent="ann@crew", name="ann", team="crew", color=None, session="s1", kind="worker", model="m"
)
PATIENCE = 30
LARGE = 300_000


@pytest.fixture
def git() -> GitRunner:
    return GitRunner(os.environ, CLOCK)


@pytest.fixture
def server_directory(tmp_path: Path) -> Path:
    """Directory with a bare repository; one of its files does not compress."""
    directory = tmp_path / "served"
    directory.mkdir()
    run_git(directory, "init", "-q", "--bare", "project.git")
    return directory


@pytest.fixture
async def project(tmp_path: Path, git: GitRunner, server_directory: Path) -> GitCheckout:
    """Checkout whose first commit is pushed; its remote is the directory."""
    top = tmp_path / "project"
    top.mkdir()
    run_git(top, "init", "-q", "-b", "main")
    run_git(top, "config", "user.name", "ann")
    run_git(top, "config", "user.email", "ann@localhost")
    (top / "a.txt").write_text("one\n")
    (top / "large.bin").write_bytes(os.urandom(LARGE))
    commit_all(top, "first")
    run_git(top, "remote", "add", "origin", str(server_directory / "project.git"))
    run_git(top, "push", "-q", "-u", "origin", "main")
    return await find_git_checkout(git, top)


@pytest.fixture
def daemon(server_directory: Path, project: GitCheckout) -> Iterator[GitServer]:
    with run_git_daemon(server_directory) as server:
        set_remote(project, f"{server.address}/project.git")
        yield server


def commit_all(top: Path, message: str) -> None:
    run_git(top, "add", "-A")
    run_git(top, "commit", "-qm", message)


def set_remote(project: GitCheckout, url: str) -> None:
    run_git(project.top, "config", "remote.origin.url", url)


class Machine:
    """Checkout of a machine, and what it needed for it."""

    def __init__(self, git: GitRunner, home: Path) -> None:
        self._git = git
        self._repositories = home / "shoal" / "cluster" / "repositories"
        self.home = home
        self.problem = ""
        self.bundle_size = -1

    async def create_checkout(
        self,
        project: GitCheckout,
        *,
        name: str = "s1-ann",
        uncommitted: bool = False,
        timeout: float = PATIENCE,
        remote: RemoteCommit | None = None,
    ) -> MachineCheckout:
        lead = GitRunner(os.environ, CLOCK)
        origin = await find_project_origin(
            lead, project, REF, name=name, uncommitted=uncommitted, uses_remote=True
        )
        checkout = MachineCheckout(
            self._git, self.home, origin if remote is None else replace(origin, remote=remote)
        )
        await checkout.list_known_commits()
        processes = GuardedProcessLauncher(CLOCK)
        try:
            self.problem = await checkout.fetch_from_remote(CLOCK, processes, timeout=timeout)
        finally:
            await processes.aclose()
        bundle = await bundle_project(lead, project, origin, await checkout.list_known_commits())
        self.bundle_size = len(bundle)
        await checkout.create(bundle)
        return checkout

    async def create_repository(self, project: GitCheckout) -> Path:
        """Create the repository that the checkouts share, without any commit."""
        origin = await find_project_origin(self._git, project, REF, name="s1-ann")
        await MachineCheckout(self._git, self.home, origin).list_known_commits()
        (repository,) = self._repositories.iterdir()
        return repository

    def assert_has_one_repository(self) -> None:
        """Fail if a fetch has left something."""
        (repository,) = self._repositories.iterdir()
        assert not [*(repository / "objects" / "pack").glob("tmp_*")]


@pytest.fixture
def machine(tmp_path: Path, git: GitRunner) -> Machine:
    return Machine(git, tmp_path / "home")


@pytest.mark.parametrize("place", ["directory", "file URL", "git daemon"])
async def test_a_machine_fetches_a_pushed_commit_and_needs_no_bundle(
    machine: Machine, git: GitRunner, project: GitCheckout, server_directory: Path, place: str
) -> None:
    with run_git_daemon(server_directory) as server:
        if place != "directory":
            set_remote(
                project,
                f"{server.address if place == 'git daemon' else f'file://{server_directory}'}/project.git",
            )
        checkout = await machine.create_checkout(project)
        assert server.connections == (place == "git daemon")
    assert (machine.problem, machine.bundle_size) == ("", 0)
    assert (checkout.top / "large.bin").stat().st_size == LARGE
    machine.assert_has_one_repository()
    # The work returns as without a remote.
    (checkout.top / "a.txt").write_text("two\n")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert run_git(project.top, "show", f"{REF}:a.txt") == "two"


@pytest.mark.parametrize(
    ("author", "is_refused"),
    [
        ("a <a@localhost> 1313584730 +051800", False),  # as in commits of old versions of git
        ("a<a@localhost> 01313584730 +0500", False),
        ("a <a@localhost> 1313584730 +0500\nauthor b <b@localhost> 1313584730 +0500", True),
    ],
)
async def test_a_remote_with_harmless_defects_in_old_commits_is_used(
    machine: Machine, project: GitCheckout, author: str, is_refused: bool
) -> None:
    tree = run_git(project.top, "rev-parse", "HEAD^{tree}")
    text = f"tree {tree}\nparent {run_git(project.top, 'rev-parse', 'HEAD')}\n"
    text += f"author {author}\ncommitter a <a@localhost> 1313584730 +0500\n\nold\n"
    done = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"],
        cwd=project.top, input=text, capture_output=True, text=True, check=True,
    )  # fmt: skip
    run_git(project.top, "reset", "-q", "--hard", done.stdout.strip())
    run_git(project.top, "push", "-q", "origin", "main")
    await machine.create_checkout(project)
    assert bool(machine.problem) is is_refused


@pytest.mark.parametrize("uncommitted", [False, True])
async def test_commits_that_are_not_pushed_and_uncommitted_changes_come_as_a_bundle(
    machine: Machine, project: GitCheckout, daemon: GitServer, uncommitted: bool
) -> None:
    (project.top / "a.txt").write_text("two\n")
    commit_all(project.top, "second")
    (project.top / "a.txt").write_text("three\n")
    checkout = await machine.create_checkout(project, uncommitted=uncommitted)
    assert daemon.connections == 1
    assert 0 < machine.bundle_size < LARGE / 10
    assert (checkout.top / "a.txt").read_text() == ("three\n" if uncommitted else "two\n")
    assert run_git(checkout.top, "log", "--format=%s").split("\n")[-2:] == ["second", "first"]


async def test_many_checkouts_at_once_and_later_ones_fetch_once(
    machine: Machine, project: GitCheckout, daemon: GitServer
) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(6):
            tasks.create_task(machine.create_checkout(project, name=f"s1-{number}"))
    (project.top / "a.txt").write_text("two\n")
    commit_all(project.top, "second")
    await machine.create_checkout(project)  # its pushed commit is known
    assert (daemon.connections, machine.problem) == (1, "")
    machine.assert_has_one_repository()


async def test_a_pushed_commit_that_is_older_than_many_others_is_still_known(
    machine: Machine, project: GitCheckout, daemon: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.create_checkout(project)
    (repository,) = (machine.home / "shoal" / "cluster" / "repositories").iterdir()
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2090-01-01T00:00:00Z")
    newer = run_git(project.top, "commit-tree", "HEAD^{tree}", "-m", "unrelated")
    run_git(
        repository,
        *("fetch", "-q", str(project.top)),
        *(f"{newer}:refs/shoal/kept/{number}" for number in range(101)),
    )
    (project.top / "a.txt").write_text("two\n")
    commit_all(project.top, "second")
    await machine.create_checkout(project)
    assert daemon.connections == 1
    assert 0 < machine.bundle_size < LARGE / 10


async def test_a_commit_without_its_files_does_not_count_as_known(
    machine: Machine, project: GitCheckout, daemon: GitServer
) -> None:
    repository = await machine.create_repository(project)
    head = run_git(project.top, "rev-parse", "HEAD")
    (repository / "objects" / head[:2]).mkdir()
    shutil.copy(project.top / ".git/objects" / head[:2] / head[2:], repository / "objects" / head[:2])
    checkout = await machine.create_checkout(project)
    assert (machine.problem, machine.bundle_size, daemon.connections) == ("", 0, 1)
    assert (checkout.top / "large.bin").exists()


async def test_settings_in_the_repository_of_a_machine_do_not_change_where_it_fetches(
    machine: Machine, project: GitCheckout, daemon: GitServer, tmp_path: Path
) -> None:
    repository = await machine.create_repository(project)
    run_git(repository, "config", f"url.file://{tmp_path}/other/.insteadOf", f"{daemon.address}/")
    await machine.create_checkout(project)
    assert (machine.problem, machine.bundle_size, daemon.connections) == ("", 0, 1)


async def test_the_remote_with_most_of_the_history_is_used(
    machine: Machine, project: GitCheckout, server_directory: Path, tmp_path: Path
) -> None:
    shutil.copytree(server_directory / "project.git", tmp_path / "fork.git")
    run_git(project.top, "remote", "add", "fork", str(tmp_path / "fork.git"))
    (project.top / "more.bin").write_bytes(os.urandom(LARGE))
    commit_all(project.top, "second")
    run_git(project.top, "push", "-q", "fork", "main")
    checkout = await machine.create_checkout(project)
    assert (machine.problem, machine.bundle_size) == ("", 0)
    assert (checkout.top / "more.bin").exists()


@pytest.mark.parametrize(
    "problem", ["nobody listens", "the commit is gone", "the repository is gone", "its history is cut"]
)
async def test_without_the_remote_the_bundle_has_everything(
    machine: Machine, project: GitCheckout, server_directory: Path, problem: str
) -> None:
    (project.top / "a.txt").write_text("two\n")
    commit_all(project.top, "second")
    run_git(project.top, "push", "-q")
    with run_git_daemon(server_directory) as server:
        set_remote(project, f"{server.address}/project.git")
        if problem != "nobody listens":
            shutil.rmtree(server_directory / "project.git")
        if problem == "the commit is gone":
            run_git(server_directory, "init", "-q", "--bare", "project.git")
        if problem == "its history is cut":
            source = f"file://{project.top}"
            run_git(server_directory, "clone", "-q", "--bare", "--depth=1", source, "project.git")
        if problem != "nobody listens":
            checkout = await machine.create_checkout(project)
    if problem == "nobody listens":
        checkout = await machine.create_checkout(project)
    assert machine.problem
    assert machine.bundle_size > LARGE
    assert (checkout.top / "a.txt").read_text() == "two\n"
    assert run_git(checkout.top, "log", "--format=%s").split() == ["second", "first"]
    machine.assert_has_one_repository()


@pytest.mark.parametrize("scheme", ["git", "https"])
async def test_a_remote_that_never_answers_is_given_up_with_all_processes(
    machine: Machine, project: GitCheckout, scheme: str
) -> None:
    with run_silent_server(scheme) as server:
        set_remote(project, f"{server.address}/project.git")
        checkout = await machine.create_checkout(project, timeout=1)
        assert machine.problem == "git fetch did not end within 1 s."
        assert await asyncio.to_thread(server.ended.wait, PATIENCE)
    assert machine.bundle_size > LARGE
    assert (checkout.top / "a.txt").read_text() == "one\n"
    machine.assert_has_one_repository()


@pytest.mark.slow
async def test_those_who_wait_for_a_fetch_give_up_together_with_it(
    machine: Machine, project: GitCheckout
) -> None:
    with run_silent_server("git") as server:
        set_remote(project, f"{server.address}/project.git")
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
            for number in range(16):
                tasks.create_task(machine.create_checkout(project, name=f"s1-{number}", timeout=2))
    assert "did not end within 2 s" in machine.problem


@pytest.mark.needs("openssl")
async def test_a_machine_uses_its_own_credentials_and_never_sees_those_of_the_lead(
    tmp_path: Path, project: GitCheckout, server_directory: Path
) -> None:
    tls = create_tls_files(tmp_path / "tls")
    config = tmp_path / "gitconfig"
    config.write_text('[credential]\nhelper = "!echo username=machine; echo password=own; :"\n')
    env = {**os.environ, "GIT_SSL_CAINFO": tls.authority, "GIT_CONFIG_GLOBAL": str(config)}
    machine = Machine(GitRunner(env, CLOCK), tmp_path / "home")
    with run_https_server(server_directory, tls, user="machine", password="own") as server:
        host = server.address.removeprefix("https://")
        set_remote(project, f"https://ann:secret@{host}/project.git")
        files = ClusterFiles(project.top, environ=os.environ, clock=CLOCK, report=lambda _: None)
        origin = await files.describe_origin(MEMBER)
        assert f"https://{host}/project.git".encode() in origin
        assert b"secret" not in origin
        await machine.create_checkout(project)
        assert (machine.problem, machine.bundle_size) == ("", 0)
        assert server.credentials == {"machine:own"}
        # Without credentials, nobody is asked for them.
        dialog, mark = tmp_path / "dialog", tmp_path / "asked"
        dialog.write_text(f"#!/bin/sh\ntouch {mark}\necho own\n")
        dialog.chmod(0o755)
        config.write_text(f"[core]\naskPass = {dialog}\n")
        other = Machine(GitRunner(env, CLOCK), tmp_path / "home-2")
        await other.create_checkout(project)
    assert "could not read Username" in other.problem
    assert not mark.exists()
    assert other.bundle_size > LARGE


async def test_a_remote_that_a_machine_cannot_use_is_noted_once_and_not_tried_again(
    machine: Machine, project: GitCheckout
) -> None:
    notes: list[str] = []
    files = ClusterFiles(project.top, environ=os.environ, clock=CLOCK, report=notes.append)
    origins = [await files.describe_origin(MEMBER) for _ in range(2)]
    assert all(msgspec.json.decode(origin, type=ProjectOrigin).remote for origin in origins)
    answer = msgspec.json.encode(KnownCommits(machine="node-1", problem="no route to host."))
    for origin in origins:
        assert len(await files.build_bundle(origin, answer)) > LARGE
    assert len(notes) == 1
    remote = project.top.parent / "served" / "project.git"
    assert f"node-1 could not fetch the project from {remote} (no route to host). From now" in notes[0]
    assert "shoal.cluster.fetch_from_remote" in notes[0]
    later = await files.describe_origin(MEMBER)
    assert msgspec.json.decode(later, type=ProjectOrigin).remote is None


async def test_no_remote_is_named_if_the_setting_is_off(project: GitCheckout) -> None:
    files = ClusterFiles(
        project.top, environ=os.environ, clock=CLOCK, report=lambda _: None, uses_remote=False
    )
    origin = await files.describe_origin(MEMBER)
    assert msgspec.json.decode(origin, type=ProjectOrigin).remote is None


@pytest.mark.parametrize("own", ["", "ssh -i key", "wrapper"])
async def test_ssh_cannot_ask_and_the_command_of_the_user_is_used(
    tmp_path: Path, project: GitCheckout, server_directory: Path, own: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "log"
    for name in ("ssh", "wrapper"):
        program = programs / name
        # Another argument than -G is the command for the server.
        program.write_text(
            f'#!/bin/sh\necho "{name} $*; $SSH_ASKPASS_REQUIRE" >> {log}\n'
            '[ "$1" = -G ] && exit 1\nfor last; do :; done\nexec sh -c "$last"\n'
        )
        program.chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\nsshCommand = {own}\n" if own else "")
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "GIT_CONFIG_GLOBAL": str(config)}
    set_remote(project, f"git@host.example:{server_directory}/project.git")
    machine = Machine(GitRunner(env, CLOCK), tmp_path / "home")
    await machine.create_checkout(project)
    assert (machine.problem, machine.bundle_size) == ("", 0)
    used = log.read_text()
    assert used.startswith(own or "ssh")
    assert "git@host.example" in used
    assert ("-o BatchMode=yes" in used) == (own != "wrapper")
    assert "; never" in used


@pytest.mark.parametrize(
    ("url", "commit"),
    [
        ("ext::sh -c touch% {mark}", None),
        ("--upload-pack=touch {mark}", None),
        ("https://ann:secret@127.0.0.1/a", None),
        ("{served}", "--upload-pack=touch {mark}"),
        ("{served}", "main"),
        ("{served}", "0" * 41),
    ],
)
async def test_a_machine_refuses_other_addresses_and_names(
    machine: Machine,
    project: GitCheckout,
    server_directory: Path,
    tmp_path: Path,
    url: str,
    commit: str | None,
) -> None:
    mark = tmp_path / "ran"
    remote = RemoteCommit(
        url=url.format(mark=mark, served=server_directory / "project.git"),
        commit=(commit or run_git(project.top, "rev-parse", "HEAD")).format(mark=mark),
    )
    checkout = await machine.create_checkout(project, remote=remote)
    assert machine.problem == "The address or the commit of the remote is invalid."
    assert machine.bundle_size > LARGE
    assert (checkout.top / "a.txt").exists()
    assert not mark.exists()
    machine.assert_has_one_repository()


async def test_a_branch_with_the_name_of_an_id_is_not_taken_for_the_commit(
    tmp_path: Path, git: GitRunner
) -> None:
    top = tmp_path / "project"
    top.mkdir()
    run_git(top, "init", "-q", "--object-format=sha256")
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    run_git(top, *identity, "commit", "-q", "--allow-empty", "-m", "first")
    name = "a" * 40
    run_git(top, "branch", name)
    project = await find_git_checkout(git, top)
    machine = Machine(git, tmp_path / "home")
    await machine.create_checkout(project, remote=RemoteCommit(url=str(top), commit=name))
    assert machine.problem == "The address or the commit of the remote is invalid."
    assert machine.bundle_size > 0


async def test_the_configuration_of_the_user_cannot_make_a_fetch_run_a_program(
    tmp_path: Path, project: GitCheckout
) -> None:
    mark, config = tmp_path / "ran", tmp_path / "gitconfig"
    config.write_text(
        f'[protocol "ext"]\nallow = always\n[url "ext::touch {mark} "]\ninsteadOf = https://code.example/\n'
    )
    machine = Machine(GitRunner({**os.environ, "GIT_CONFIG_GLOBAL": str(config)}, CLOCK), tmp_path / "home")
    set_remote(project, "https://code.example/project.git")
    await machine.create_checkout(project)
    assert "transport 'ext' not allowed" in machine.problem
    assert not mark.exists()


async def test_programs_that_the_repository_of_the_lead_names_are_not_run(
    machine: Machine, project: GitCheckout, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    for key, value in (
        ("core.sshCommand", f"touch {mark};"),
        ("remote.origin.vcs", "ext"),
        ("remote.origin.uploadpack", f"touch {mark}; git-upload-pack"),
        ("credential.helper", f"!touch {mark};"),
    ):
        run_git(project.top, "config", key, value)
    checkout = await machine.create_checkout(project)
    assert (machine.problem, machine.bundle_size) == ("", 0)
    assert (checkout.top / "a.txt").exists()
    set_remote(project, f"ext::touch {mark}")
    await machine.create_checkout(project, name="s1-ben")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://code.example/a/b.git", "https://code.example/a/b.git"),
        ("https://ann:secret@code.example:8443/a", "https://code.example:8443/a"),
        ("https://token@code.example/a", "https://code.example/a"),
        ("https://ann:sec:ret@[::1]:8443/a", "https://[::1]:8443/a"),
        ("git://ann:secret@code.example/a", "git://code.example/a"),
        ("ssh://git@code.example:2222/~ann/a", "ssh://git@code.example:2222/~ann/a"),
        ("ssh://git:secret@code.example/a", "ssh://git@code.example/a"),
        ("git@code.example:a/b.git", "git@code.example:a/b.git"),
        ("code.example:a/b.git", "code.example:a/b.git"),
        ("/srv/git/a b.git", "/srv/git/a b.git"),
        ("file:///srv/git/a", "file:///srv/git/a"),
        # A password with a slash or an at sign ends up in another part of the URL.
        ("https://ann:se/cret@code.example/a", ""),
        ("https://ann:se@cret@code.example/a", ""),
        ("ssh://git:se/cret@code.example/a", ""),
        ("git:secret@code.example:a/b.git", ""),
        ("https://code.example/a?private_token=secret", ""),
        ("https://code.example/a#secret", ""),
        ("http://ann:secret@code.example/a", ""),
        ("http://code.example/a", ""),
        ("ftp://code.example/a", ""),
        ("ext::sh -c touch% ran", ""),
        ("file://code.example/a", ""),
        ("//code.example/a", ""),
        ("../a.git", ""),
        ("-oProxyCommand=touch:a", ""),
        ("-git@code.example:a", ""),
        ("ssh://-oProxyCommand=touch/a", ""),
        ("ssh://-git@code.example/a", ""),
        ("https://code.example/a\nhttps://ann:secret@code.example/a", ""),
        ("https://code.example/\udc80", ""),
        ("https://code.example", ""),
        ("https:///a", ""),
        ("https://code.example/" + "a" * 2000, ""),
        ("", ""),
    ],
)
def test_only_the_address_of_a_remote_is_sent(url: str, sent: str) -> None:
    assert remove_url_credentials(url) == sent
