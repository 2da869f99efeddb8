"""Commits of a project on their way to another machine and back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core.clock import SystemClock
from shoal.core.errors import WorktreeError
from shoal.workspaces.checkout import GitCheckout, find_git_checkout
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.project_transfer import (
    MachineCheckout,
    bundle_project,
    find_project_origin,
    relocate_checkout_path,
    store_checkpoint,
)

REF = "refs/shoal/cluster/s1/ann"


def run_git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def git() -> GitRunner:
    return GitRunner(os.environ, SystemClock())


@pytest.fixture
async def project(tmp_path: Path, git: GitRunner) -> GitCheckout:
    directory = tmp_path / "project"
    (directory / "src").mkdir(parents=True)
    run_git(directory, "init", "--quiet")
    (directory / "src" / "a.txt").write_text("one\n")
    (directory / ".gitignore").write_text("*.log\n")
    run_git(directory, "add", "-A")
    run_git(directory, "commit", "-qm", "first")
    return await find_git_checkout(git, directory / "src")


async def send_project(git: GitRunner, project: GitCheckout, home: Path) -> tuple[MachineCheckout, int]:
    """Create the checkout of another machine; return it with the size of the bundle."""
    origin = await find_project_origin(git, project, REF, name="s1-ann")
    checkout = MachineCheckout(git, home, origin)
    bundle = await bundle_project(git, project, origin, await checkout.list_known_commits())
    await checkout.create(bundle)
    return checkout, len(bundle)


async def test_work_returns_as_commits_under_a_ref(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    checkout, _ = await send_project(git, project, tmp_path / "home")
    assert (checkout.cwd / "a.txt").read_text() == "one\n"
    assert await checkout.build_checkpoint() == b""  # nothing has changed
    (checkout.cwd / "a.txt").write_text("two\n")
    (checkout.cwd / "new.txt").write_text("new\n")
    (checkout.cwd / "ignored.log").write_text("not a part of the work\n")
    bundle = await checkout.build_checkpoint()
    assert await checkout.build_checkpoint() == b""
    await store_checkpoint(git, project, bundle, REF)
    assert run_git(project.top, "show", f"{REF}:src/a.txt") == "two"
    assert run_git(project.top, "ls-tree", "--name-only", REF, "src/").split() == ["src/a.txt", "src/new.txt"]
    # The project itself and the index of the agent are unchanged.
    assert (project.top / "src" / "a.txt").read_text() == "one\n"
    assert run_git(project.top, "status", "--porcelain") == ""
    assert "?? src/new.txt" in run_git(checkout.top, "status", "--porcelain", "-uall")


async def test_many_checkouts_of_a_new_project_are_created_on_a_machine_at_once(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    async def create(name: str) -> Path:
        origin = await find_project_origin(git, project, REF, name=name)
        checkout = MachineCheckout(git, tmp_path / "home", origin)
        known = await checkout.list_known_commits()
        await all_asked.wait()  # each of them gets a bundle
        await checkout.create(await bundle_project(git, project, origin, known))
        return checkout.cwd

    all_asked = asyncio.Barrier(16)
    async with asyncio.TaskGroup() as tasks:
        creations = [tasks.create_task(create(f"s1-{number}")) for number in range(16)]
    assert {(each.result() / "a.txt").read_text() for each in creations} == {"one\n"}
    repositories = tmp_path / "home" / "shoal" / "cluster" / "repositories"
    assert len([*repositories.iterdir()]) == 1
    assert run_git(project.top, "for-each-ref", "refs/shoal") == ""


_CREATE_SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from shoal.core.clock import SystemClock
from shoal.workspaces.checkout import find_git_checkout
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.project_transfer import MachineCheckout, bundle_project, find_project_origin

async def main(project, home, mark):
    git = GitRunner(os.environ, SystemClock())
    lead = await find_git_checkout(git, Path(project))

    async def create(name):
        origin = await find_project_origin(git, lead, "refs/shoal/cluster/s/x", name=name)
        checkout = MachineCheckout(git, Path(home), origin)
        known = await checkout.list_known_commits()
        await checkout.create(await bundle_project(git, lead, origin, known))

    print("ready", flush=True)
    sys.stdin.readline()
    async with asyncio.TaskGroup() as group:
        for number in range(25):
            group.create_task(create(f"{mark}-{number}"))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.exhaustive
@pytest.mark.spec("USR-06")
async def test_two_processes_create_fifty_checkouts_without_a_lock_error(
    tmp_path: Path, project: GitCheckout
) -> None:
    home = tmp_path / "home"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _CREATE_SCRIPT, str(project.top), str(home), mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for mark in "ab"
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    ends = await asyncio.gather(*(asyncio.to_thread(each.communicate, "\n") for each in processes))
    assert [each.returncode for each in processes] == [0, 0], [error for _, error in ends]
    checkouts = [*(home / "shoal" / "cluster" / "checkouts").glob("[ab]-*")]
    assert len(checkouts) == 50
    assert {(each / "src" / "a.txt").read_text() for each in checkouts} == {"one\n"}
    head = run_git(project.top, "rev-parse", "HEAD")
    assert {run_git(each, "rev-parse", "HEAD") for each in checkouts} == {head}
    assert len([*(home / "shoal" / "cluster" / "repositories").iterdir()]) == 1


async def test_commits_of_the_agent_return_with_their_history(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    checkout, _ = await send_project(git, project, tmp_path / "home")
    for number in ("2", "3"):
        (checkout.cwd / "a.txt").write_text(number)
        run_git(checkout.top, "commit", "-qam", f"change {number}")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert run_git(project.top, "log", "--format=%s", REF).split("\n") == ["change 3", "change 2", "first"]


async def test_another_machine_continues_from_the_last_checkpoint(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    first, _ = await send_project(git, project, tmp_path / "home-1")
    (first.cwd / "a.txt").write_text("half done\n")
    await store_checkpoint(git, project, await first.build_checkpoint(), REF)
    second, _ = await send_project(git, project, tmp_path / "home-2")
    assert (second.cwd / "a.txt").read_text() == "half done\n"
    (second.cwd / "a.txt").write_text("done\n")
    await store_checkpoint(git, project, await second.build_checkpoint(), REF)
    assert run_git(project.top, "show", f"{REF}:src/a.txt") == "done"


async def test_only_commits_that_a_machine_lacks_are_sent(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    home = tmp_path / "home"
    (project.top / "large.bin").write_bytes(os.urandom(300_000))
    run_git(project.top, "add", "-A")
    run_git(project.top, "commit", "-qm", "large")
    _, size = await send_project(git, project, home)
    assert size > 300_000
    _, size = await send_project(git, project, home)
    assert size == 0
    (project.top / "src" / "a.txt").write_text("two\n")
    run_git(project.top, "commit", "-qam", "second")
    checkout, size = await send_project(git, project, home)
    assert 0 < size < 10_000
    assert (checkout.cwd / "a.txt").read_text() == "two\n"
    assert run_git(project.top, "for-each-ref", "refs/shoal") == ""


async def test_a_machine_that_has_only_later_commits_gets_no_bundle_for_an_earlier_one(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    first, _ = await send_project(git, project, tmp_path / "home")
    (first.cwd / "a.txt").write_text("two\n")
    await store_checkpoint(git, project, await first.build_checkpoint(), REF)
    # The member continues on another machine, which then gets a second one.
    await send_project(git, project, tmp_path / "other")
    run_git(project.top, "update-ref", "-d", REF)
    checkout, size = await send_project(git, project, tmp_path / "other")
    assert size == 0
    assert (checkout.cwd / "a.txt").read_text() == "one\n"
    (checkout.cwd / "a.txt").write_text("three\n")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert run_git(project.top, "show", f"{REF}:src/a.txt") == "three"


async def test_work_on_a_new_branch_without_a_commit_is_sent(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    checkout, _ = await send_project(git, project, tmp_path / "home")
    run_git(checkout.top, "checkout", "-q", "--orphan", "fresh")
    (checkout.cwd / "a.txt").write_text("two\n")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert run_git(project.top, "show", f"{REF}:src/a.txt") == "two"


async def test_a_checkout_whose_index_cannot_be_copied_is_a_problem_and_not_a_crash(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    checkout, _ = await send_project(git, project, tmp_path / "home")
    index = checkout.top / ".git" / "index"
    index.unlink()
    index.mkdir()
    with pytest.raises(WorktreeError, match=r"cannot be copied: .*index: Is a directory"):
        await checkout.build_checkpoint()


async def test_a_machine_whose_directory_cannot_be_created_is_a_problem_and_not_a_crash(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    (tmp_path / "home").write_text("not a directory")
    with pytest.raises(WorktreeError, match=r"cannot be copied: .*Not a directory"):
        await send_project(git, project, tmp_path / "home")


async def test_a_damaged_bundle_changes_nothing(git: GitRunner, project: GitCheckout) -> None:
    from shoal.core.errors import WorktreeError

    with pytest.raises(WorktreeError):
        await store_checkpoint(git, project, b"not a bundle", REF)
    assert run_git(project.top, "for-each-ref", "refs/shoal") == ""


def test_a_place_in_a_checkout_is_found_on_another_machine() -> None:
    here = Path("/srv/b/shoal/cluster/checkouts/s1-ann/src")
    there = "/home/a/shoal/cluster/checkouts/s1-ann/docs"
    assert relocate_checkout_path(there, here) == "/srv/b/shoal/cluster/checkouts/s1-ann/docs"
    for other in ("/home/a/project", "/home/a/shoal/cluster/checkouts/s1-ben/docs"):
        assert relocate_checkout_path(other, here) == other
    assert relocate_checkout_path(there, Path("/home/a/project")) == there


async def test_uncommitted_changes_are_sent_if_asked_and_stay_uncommitted_here(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    (project.top / "src" / "a.txt").write_text("changed\n")
    (project.top / "new.txt").write_text("new\n")
    (project.top / "private.log").write_text("ignored\n")
    run_git(project.top, "add", "src/a.txt")
    before = run_git(project.top, "status", "--porcelain")
    origin = await find_project_origin(git, project, REF, name="s1-ann", uncommitted=True)
    checkout = MachineCheckout(git, tmp_path / "home", origin)
    await checkout.create(await bundle_project(git, project, origin, await checkout.list_known_commits()))
    assert (checkout.top / "src" / "a.txt").read_text() == "changed\n"
    assert (checkout.top / "new.txt").read_text() == "new\n"
    assert not (checkout.top / "private.log").exists()
    assert run_git(project.top, "status", "--porcelain") == before
    assert await checkout.build_checkpoint() == b""
    (checkout.top / "new.txt").write_text("more\n")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert run_git(project.top, "log", "--format=%s", REF).split("\n") == [
        "Checkpoint",
        "Uncommitted changes",
        "first",
    ]


async def test_a_clean_project_is_sent_as_its_last_commit(git: GitRunner, project: GitCheckout) -> None:
    origin = await find_project_origin(git, project, REF, name="s1-ann", uncommitted=True)
    assert origin.commit == run_git(project.top, "rev-parse", "HEAD")


@pytest.mark.parametrize("undo", ["remove a file", "reset to an earlier commit"])
async def test_undone_work_is_undone_under_the_ref(
    tmp_path: Path, git: GitRunner, project: GitCheckout, undo: str
) -> None:
    (project.top / "src" / "a.txt").write_text("two\n")
    run_git(project.top, "commit", "-qam", "second")
    checkout, _ = await send_project(git, project, tmp_path / "home")
    (checkout.cwd / "new.txt").write_text("new\n")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    (checkout.cwd / "new.txt").unlink()
    if undo == "reset to an earlier commit":
        run_git(checkout.top, "reset", "--quiet", "--hard", "HEAD~1")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert await checkout.build_checkpoint() == b""
    assert run_git(project.top, "ls-tree", "--name-only", REF, "src/") == "src/a.txt"
    text = "one" if undo == "reset to an earlier commit" else "two"
    assert run_git(project.top, "show", f"{REF}:src/a.txt") == text


@pytest.mark.parametrize("has_commit", [False, True])
async def test_a_repository_in_the_checkout_does_not_stop_checkpoints_and_is_named(
    tmp_path: Path, git: GitRunner, project: GitCheckout, has_commit: bool
) -> None:
    checkout, _ = await send_project(git, project, tmp_path / "home")
    nested = checkout.cwd / "nested"
    nested.mkdir()
    run_git(nested, "init", "--quiet")
    (nested / "b.txt").write_text("b\n")
    if has_commit:
        run_git(nested, "add", "-A")
        run_git(nested, "commit", "-qm", "nested")
    (checkout.cwd / "a.txt").write_text("two\n")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert run_git(project.top, "show", f"{REF}:src/a.txt") == "two"
    assert "src/nested" in checkout.problem
    assert await checkout.build_checkpoint() == b""
    assert "src/nested" in checkout.problem
    (nested / ".git").rename(tmp_path / "elsewhere")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert checkout.problem == ""
    assert run_git(project.top, "show", f"{REF}:src/nested/b.txt") == "b"


async def test_changed_files_of_a_submodule_are_named(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    run_git(library, "init", "--quiet")
    (library / "b.txt").write_text("one\n")
    run_git(library, "add", "-A")
    run_git(library, "commit", "-qm", "library")
    run_git(
        project.top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "src/sub"
    )
    run_git(project.top, "commit", "-qm", "submodule")
    checkout, _ = await send_project(git, project, tmp_path / "home")
    assert await checkout.build_checkpoint() == b""
    assert checkout.problem == ""
    own = checkout.cwd / "sub" / "own.txt"
    own.write_text("in a directory that git takes for a submodule\n")
    assert await checkout.build_checkpoint() == b""
    assert checkout.problem.endswith("not sent: src/sub")
    own.unlink()
    run_git(checkout.top, "-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
    await checkout.build_checkpoint()
    assert checkout.problem == ""
    (checkout.cwd / "sub" / "b.txt").write_text("two\n")
    (checkout.cwd / "a.txt").write_text("two\n")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert checkout.problem.endswith("not sent: src/sub")
    assert run_git(project.top, "show", f"{REF}:src/a.txt") == "two"


async def test_a_checkout_with_files_that_could_not_be_sent_is_kept(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    from shoal.app.session.ray_member_main import CheckpointSender, _SoleMember
    from shoal.backends.member_listener import MemberListener, connect_to_lead

    clock = SystemClock()
    listener = MemberListener("127.0.0.1", clock)
    listener.open()
    address, connection = listener.expect_connection()
    orders = await connect_to_lead(address, clock)
    lead = await connection
    clean, _ = await send_project(git, project, tmp_path / "home-1")
    await CheckpointSender(orders, clean, clock, _SoleMember()).finish()
    assert not clean.top.exists()
    checkout, _ = await send_project(git, project, tmp_path / "home-2")
    run_git(checkout.cwd, "init", "--quiet", "nested")
    (checkout.cwd / "nested" / "b.txt").write_text("b\n")
    await CheckpointSender(orders, checkout, clock, _SoleMember()).finish()
    assert (checkout.cwd / "nested" / "b.txt").exists()
    for channel in (orders, lead):
        channel.close()
    await listener.aclose()


async def test_a_shallow_clone_is_refused_with_the_fix(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    from shoal.core.errors import WorktreeError

    (project.top / "src" / "a.txt").write_text("two\n")
    run_git(project.top, "commit", "-qam", "second")
    run_git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{project.top}", "shallow")
    shallow = await find_git_checkout(git, tmp_path / "shallow")
    with pytest.raises(WorktreeError, match="git fetch --unshallow"):
        await send_project(git, shallow, tmp_path / "home")
    run_git(tmp_path / "shallow", "fetch", "--quiet", "--unshallow")
    checkout, _ = await send_project(git, shallow, tmp_path / "home")
    assert (checkout.cwd / "src" / "a.txt").read_text() == "two\n"


async def test_a_project_with_sha256_ids_is_sent_and_returns(tmp_path: Path, git: GitRunner) -> None:
    directory = tmp_path / "project"
    directory.mkdir()
    run_git(directory, "init", "--quiet", "--object-format=sha256")
    (directory / "a.txt").write_text("one\n")
    run_git(directory, "add", "-A")
    run_git(directory, "commit", "-qm", "first")
    project = await find_git_checkout(git, directory)
    checkout, _ = await send_project(git, project, tmp_path / "home")
    (checkout.cwd / "a.txt").write_text("two\n")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    assert run_git(directory, "show", f"{REF}:a.txt") == "two"


async def test_a_checkout_that_cannot_be_filled_leaves_nothing(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    origin = await find_project_origin(git, project, REF, name="s1-ann")
    checkout = MachineCheckout(git, tmp_path / "home", origin)
    await checkout.list_known_commits()
    with pytest.raises(WorktreeError):
        await checkout.create(b"")  # the machine does not have the commit
    assert not checkout.top.exists()


async def test_branches_whose_names_are_not_utf8_are_sent_and_restored(
    tmp_path: Path, git: GitRunner, project: GitCheckout
) -> None:
    checkout, _ = await send_project(git, project, tmp_path / "home")
    commits = {}
    for name in ("caf%E9", os.fsdecode(b"caf\xe9"), "tea"):
        run_git(checkout.top, "commit", "-q", "--allow-empty", "-m", "work")
        run_git(checkout.top, "branch", name)
        commits[name] = run_git(checkout.top, "rev-parse", "HEAD")
        run_git(checkout.top, "reset", "-q", "--hard", "HEAD~1")
    await store_checkpoint(git, project, await checkout.build_checkpoint(), REF)
    await (await send_project(git, project, tmp_path / "other"))[0].build_checkpoint()
    expected = "".join(
        f"{REF}.branches/{sent} {commits[name]}\n"
        for sent, name in zip(("caf%E9", "caf%E9_", "tea"), commits, strict=True)
    )
    listing = run_git(project.top, "for-each-ref", "--format=%(refname) %(objectname)", f"{REF}.branches/")
    assert f"{listing}\n" == expected


@pytest.mark.parametrize(
    "place", ["refs/shoal", "refs/shoal/others/branches", "logs/refs", "objects/ab", "info", "packed-refs"]
)
async def test_a_checkpoint_follows_no_link_out_of_the_git_directory(
    tmp_path: Path, git: GitRunner, project: GitCheckout, place: str
) -> None:
    """The agent is confined, but git stores its checkpoints without the sandbox."""
    checkout, _ = await send_project(git, project, tmp_path / "home")
    outside, link = tmp_path / "outside", checkout.top / ".git" / place
    outside.mkdir()
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir():
        link.rename(tmp_path / "away")
    link.symlink_to(outside)
    (checkout.top / "new.txt").write_text("new")
    with pytest.raises(WorktreeError, match=f"{link} is a symbolic link"):
        await checkout.build_checkpoint()
    assert not [*outside.iterdir()]
    link.unlink()
    if (tmp_path / "away").exists():
        (tmp_path / "away").rename(link)
    assert await checkout.build_checkpoint()


@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
async def test_what_an_agent_puts_in_place_of_the_owner_stops_nobody(
    tmp_path: Path, git: GitRunner, project: GitCheckout, target: str
) -> None:
    checkout, _ = await send_project(git, project, tmp_path / "home")
    owner = checkout.top / ".git" / "shoal-owner"
    owner.unlink()
    if target == "pipe":
        os.mkfifo(owner)
    else:
        owner.symlink_to(target)
    script = "import sys; from pathlib import Path; from shoal.workspaces.checkout_owner import *; "
    script += (
        "remove_abandoned_checkouts(Path(sys.argv[1]).parent); CheckoutOwner(Path(sys.argv[1])).remove()"
    )
    argv = ["prlimit", "--as=2000000000", sys.executable, "-c", script, str(checkout.top)]
    await asyncio.to_thread(subprocess.run, argv, check=True, timeout=10, capture_output=True)
    assert not checkout.top.exists()
