"""Work of a member on another machine that is not in the files or the history of its current branch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    store_checkpoint,
)

REF = "refs/shoal/cluster/s1/ann"


def run_git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


class Lead:
    """A project, and machines that work on it."""

    def __init__(self, directory: Path, checkout: GitCheckout, git: GitRunner) -> None:
        self.top = checkout.top
        self._directory = directory
        self._checkout = checkout
        self._git = git

    async def start_member(
        self,
        machine: str = "home",
        *,
        name: str = "s1-ann",
        git: GitRunner | None = None,
        uncommitted: bool = False,
    ) -> MachineCheckout:
        origin = await find_project_origin(self._git, self._checkout, REF, name=name, uncommitted=uncommitted)
        checkout = MachineCheckout(git or self._git, self._directory / machine, origin)
        known = await checkout.list_known_commits()
        await checkout.create(await bundle_project(self._git, self._checkout, origin, known))
        return checkout

    async def store(self, checkout: MachineCheckout) -> int:
        """Store the work of a member, and return the size of the bundle."""
        bundle = await checkout.build_checkpoint()
        assert bundle
        await store_checkpoint(self._git, self._checkout, bundle, REF)
        checkout.note_answer(is_stored=True)
        return len(bundle)

    def show(self, name: str, ref: str = REF) -> str:
        return run_git(self.top, "show", f"{ref}:{name}")


@pytest.fixture
def git() -> GitRunner:
    return GitRunner(os.environ, SystemClock())


@pytest.fixture
async def lead(tmp_path: Path, git: GitRunner) -> Lead:
    directory = tmp_path / "project"
    (directory / "src").mkdir(parents=True)
    run_git(directory, "init", "--quiet")
    (directory / "src" / "a.txt").write_text("one\n")
    run_git(directory, "add", "-A")
    run_git(directory, "commit", "-qm", "first")
    return Lead(tmp_path, await find_git_checkout(git, directory / "src"), git)


def commit_file(checkout: MachineCheckout, name: str) -> None:
    (checkout.cwd / name).write_text(f"{name}\n")
    run_git(checkout.top, "add", "-A")
    run_git(checkout.top, "commit", "-qm", name)


async def test_all_branches_and_stashes_return_and_continue_on_another_machine(lead: Lead) -> None:
    checkout = await lead.start_member()
    run_git(checkout.top, "checkout", "-qb", "fix-a")
    commit_file(checkout, "a-fix.txt")
    await lead.store(checkout)
    for text in ("stash one", "stash two"):
        (checkout.cwd / "a.txt").write_text(text)
        run_git(checkout.top, "stash")
    run_git(checkout.top, "checkout", "-qb", "fix-b", "shoal")
    commit_file(checkout, "b-fix.txt")
    await lead.store(checkout)
    assert await checkout.build_checkpoint() == b""
    assert lead.show("src/a-fix.txt", f"{REF}.branches/fix-a") == "a-fix.txt"
    assert lead.show("src/b-fix.txt") == "b-fix.txt"

    other = await lead.start_member("other")
    assert await other.build_checkpoint() == b""
    assert run_git(other.top, "show", "fix-a:src/a-fix.txt") == "a-fix.txt"
    assert run_git(other.top, "show", "fix-b:src/b-fix.txt") == "b-fix.txt"
    stashes = [run_git(other.top, "show", f"stash@{{{number}}}:src/a.txt") for number in (0, 1)]
    assert sorted(stashes) == ["stash one", "stash two"]
    run_git(other.top, "checkout", "-q", "fix-a")
    commit_file(other, "more.txt")
    await lead.store(other)
    assert lead.show("src/more.txt", f"{REF}.branches/fix-a") == "more.txt"


async def test_commits_on_the_first_branch_stay_when_the_member_changes_to_another(lead: Lead) -> None:
    checkout = await lead.start_member()
    commit_file(checkout, "first.txt")
    run_git(checkout.top, "checkout", "-qb", "next", "HEAD~1")
    commit_file(checkout, "second.txt")
    await lead.store(checkout)
    assert lead.show("src/first.txt", f"{REF}.branches/shoal") == "first.txt"
    other = await lead.start_member("other")
    assert run_git(other.top, "show", "shoal-earlier:src/first.txt") == "first.txt"


async def test_a_branch_whose_name_contains_that_of_a_deleted_one_is_stored(lead: Lead) -> None:
    checkout = await lead.start_member()
    run_git(checkout.top, "checkout", "-qb", "fix")
    commit_file(checkout, "one.txt")
    await lead.store(checkout)
    run_git(checkout.top, "branch", "-m", "fix", "fix/one")
    await lead.store(checkout)
    assert lead.show("src/one.txt", f"{REF}.branches/fix/one") == "one.txt"


@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
async def test_changes_of_files_that_git_was_told_to_leave_alone_return(lead: Lead, mark: str) -> None:
    checkout = await lead.start_member()
    run_git(checkout.top, "update-index", mark, "src/a.txt")
    (checkout.cwd / "a.txt").write_text("two\n")
    await lead.store(checkout)
    assert lead.show("src/a.txt") == "two"
    assert run_git(checkout.top, "ls-files", "-v", "src/a.txt")[0] != "H"  # the agent's index keeps the mark


async def test_files_that_a_member_excluded_from_its_checkout_are_not_deleted(lead: Lead) -> None:
    checkout = await lead.start_member()
    run_git(checkout.top, "sparse-checkout", "set", "--no-cone", "/new/")
    assert not (checkout.top / "src").exists()
    (checkout.top / "new").mkdir()
    (checkout.top / "new" / "b.txt").write_text("two\n")
    await lead.store(checkout)
    assert lead.show("src/a.txt") == "one"


async def test_work_continues_if_it_moved_the_directory_of_the_lead(lead: Lead) -> None:
    checkout = await lead.start_member()
    run_git(checkout.top, "mv", "src", "lib")
    await lead.store(checkout)
    other = await lead.start_member("other")
    assert other.cwd.is_dir()
    assert (other.top / "lib" / "a.txt").read_text() == "one\n"


async def test_a_member_whose_work_was_merged_starts_from_the_last_commit(lead: Lead) -> None:
    await lead.store(await write_two(lead))
    unmerged = await lead.start_member("unmerged")
    assert (unmerged.cwd / "a.txt").read_text() == "two\n"
    run_git(lead.top, "merge", "--quiet", REF)
    (lead.top / "src" / "lead.txt").write_text("by the lead\n")
    run_git(lead.top, "add", "-A")
    run_git(lead.top, "commit", "-qm", "after the merge")
    merged = await lead.start_member("merged")
    assert (merged.cwd / "lead.txt").exists()


async def test_work_continues_while_the_lead_has_a_branch_without_a_commit(lead: Lead) -> None:
    await lead.store(await write_two(lead))
    run_git(lead.top, "checkout", "-q", "--orphan", "fresh")
    again = await lead.start_member("other")
    assert (again.cwd / "a.txt").read_text() == "two\n"


async def write_two(lead: Lead) -> MachineCheckout:
    checkout = await lead.start_member()
    (checkout.cwd / "a.txt").write_text("two\n")
    return checkout


async def test_a_large_file_is_sent_once(lead: Lead) -> None:
    checkout = await lead.start_member()
    (checkout.cwd / "large.bin").write_bytes(os.urandom(300_000))
    assert await lead.store(checkout) > 300_000
    for number in range(3):
        (checkout.cwd / "a.txt").write_text(f"{number}\n")
        assert await lead.store(checkout) < 10_000
    (checkout.cwd / "a.txt").write_text("one\n")
    (checkout.cwd / "large.bin").unlink()
    await lead.store(checkout)
    assert run_git(lead.top, "ls-tree", "--name-only", REF, "src/") == "src/a.txt"
    run_git(lead.top, "fsck", "--strict")


async def test_everything_is_sent_again_if_the_lead_did_not_store_it(lead: Lead) -> None:
    checkout = await lead.start_member()
    (checkout.cwd / "large.bin").write_bytes(os.urandom(300_000))
    await lead.store(checkout)
    (checkout.cwd / "a.txt").write_text("two\n")
    assert len(await checkout.build_checkpoint()) < 10_000
    checkout.note_answer(is_stored=False)
    assert await lead.store(checkout) > 300_000
    assert lead.show("src/a.txt") == "two"


async def test_a_checkout_with_unsent_files_is_kept_when_the_member_starts_again(lead: Lead) -> None:
    checkout = await lead.start_member()
    (checkout.cwd / "a.txt").write_text("not sent\n")
    checkout.mark_unsent_files(has_some=True)
    again = await lead.start_member()
    assert (again.cwd / "a.txt").read_text() == "one\n"
    kept = again.top.with_name("s1-ann.1")
    assert (kept / "src" / "a.txt").read_text() == "not sent\n"
    again.remove()
    last = await lead.start_member()
    last.remove()
    assert [each.name for each in last.top.parent.glob("[!.]*")] == ["s1-ann.1"]


async def test_a_process_that_is_late_does_not_remove_the_checkout_of_the_next_one(lead: Lead) -> None:
    late = await lead.start_member()
    current = await lead.start_member()
    late.remove()
    assert (current.cwd / "a.txt").exists()
    current.remove()
    assert not current.top.exists()


CLAIM = """
import sys
from pathlib import Path
from shoal.workspaces.checkout_owner import CheckoutOwner
CheckoutOwner(Path(sys.argv[1])).claim()
print("claimed", flush=True)
sys.stdin.read()
"""


def own_checkout(checkout: MachineCheckout) -> subprocess.Popen[str]:
    """Start a process that owns a checkout from now on."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(checkout.top)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "claimed\n"
    return process


async def test_checkouts_of_killed_processes_are_removed_by_the_next_one_if_everything_was_sent(
    lead: Lead,
) -> None:
    running, killed, unsent, moved = [
        await lead.start_member(name=name) for name in ("s1-run", "s1-kill", "s1-unsent", "s1-moved")
    ]
    processes = [own_checkout(each) for each in (running, killed, unsent, moved)]
    unsent.mark_unsent_files(has_some=True)
    owner = moved.top / ".git" / "shoal-owner"
    owner.write_text(f"{owner.read_text()}-elsewhere")  # in a home that another machine shares
    try:
        for process in processes[1:]:
            process.kill()
            process.wait()
        current = await lead.start_member()
        names = {each.name for each in current.top.parent.glob("[!.]*")}
        assert names == {"s1-run", "s1-unsent", "s1-moved", "s1-ann"}
        assert (running.cwd / "a.txt").exists()
    finally:
        for process in processes:
            with process:
                process.kill()


async def test_a_project_with_a_required_filter_of_its_own_is_refused(lead: Lead) -> None:
    """Such a filter may encrypt: other machines would get, and commit, what must not be stored."""
    run_git(lead.top, "config", "filter.crypt.clean", "rev")
    run_git(lead.top, "config", "filter.crypt.required", "true")
    with pytest.raises(WorktreeError, match=r"git config --remove-section filter\.crypt"):
        await lead.start_member(uncommitted=True)


class LargeFileProgram:
    """Stands in for git-lfs: `clean` stores the content in the repository and prints a pointer."""

    def __init__(self, directory: Path) -> None:
        script = directory / "clean.sh"
        script.write_text(
            "#!/bin/sh\n"
            "cat > .git/content && oid=$(sha256sum < .git/content | cut -c1-64)\n"
            'place=".git/lfs/objects/$(echo $oid | cut -c1-2)/$(echo $oid | cut -c3-4)"\n'
            'mkdir -p "$place" && mv .git/content "$place/$oid"\n'
            'printf "version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize 8\\n" "$oid"\n'
        )
        script.chmod(0o700)
        self.configuration = directory / "gitconfig"
        self.configuration.write_text(
            f'[filter "lfs"]\n\tclean = {script}\n\tsmudge = false\n\trequired = true\n'
        )

    @contextmanager
    def install(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitRunner]:
        with monkeypatch.context() as patch:
            patch.setenv("GIT_CONFIG_GLOBAL", str(self.configuration))
            yield GitRunner(os.environ, SystemClock())


async def test_content_of_large_files_returns_although_git_lfs_is_installed(
    tmp_path: Path, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 8\n"
    (lead.top / "old.bin").write_text(pointer)
    (lead.top / ".gitattributes").write_text("*.bin filter=lfs\n")
    run_git(lead.top, "add", "-A")
    run_git(lead.top, "commit", "-qm", "pointer")
    with LargeFileProgram(tmp_path).install(monkeypatch) as git:
        checkout = await lead.start_member(git=git)
        assert (checkout.top / "old.bin").read_text() == pointer  # its content cannot be fetched there
        (checkout.top / "new.bin").write_text("precious")
        await lead.store(checkout)
        assert lead.show("new.bin") == "precious"
        assert lead.show("old.bin") == pointer.strip()
        assert checkout.problem == ""
        # Git reads a file again whose time is not before that of the index.
        os.utime(checkout.top / "new.bin", (1_000_000_000, 1_000_000_000))
        run_git(checkout.top, "add", "new.bin")
        run_git(checkout.top, "commit", "-qm", "with git-lfs")
        await lead.store(checkout)
        assert checkout.problem.endswith("not sent: new.bin")
        assert await checkout.build_checkpoint() == b""
        assert checkout.problem.endswith("not sent: new.bin")


async def test_changed_files_in_other_working_trees_of_the_member_are_named(
    tmp_path: Path, lead: Lead
) -> None:
    checkout = await lead.start_member()
    other = tmp_path / "other"
    run_git(checkout.top, "worktree", "add", "-q", "-b", "aside", str(other))
    assert await checkout.build_checkpoint() == b""
    assert checkout.problem == ""
    (other / "b.txt").write_text("two\n")
    await checkout.build_checkpoint()
    assert checkout.problem.endswith(f"not sent: {other}")
    run_git(other, "add", "-A")
    run_git(other, "commit", "-qm", "aside")
    await lead.store(checkout)
    assert checkout.problem == ""
    assert lead.show("b.txt", f"{REF}.branches/aside") == "two"
    shutil.rmtree(other)
    await checkout.build_checkpoint()
    assert checkout.problem == ""
