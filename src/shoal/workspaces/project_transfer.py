"""Commits of a project on their way to another machine and back, as git bundles."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from hashlib import sha256
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents.worktrees import MachineCheckoutPaths
from shoal.core.clock import Clock
from shoal.core.errors import WorktreeError
from shoal.core.ports import ProcessLauncher
from shoal.core.text.filenames import escape_filename
from shoal.workspaces.checkout import (
    GitCheckout,
    get_head_commit,
    has_uncommitted_changes,
    is_git_repository,
    refuse_required_repository_filters,
)
from shoal.workspaces.checkout_owner import CheckoutOwner, keep_unsent_files, remove_abandoned_checkouts
from shoal.workspaces.git_paths import find_link_of_git
from shoal.workspaces.git_program_settings import CHECK_FETCHED_OBJECTS
from shoal.workspaces.git_runner import GitDirectories, GitRunner
from shoal.workspaces.member_branches import (
    OWN_BRANCH,
    build_refspecs,
    list_own_branches,
    list_stored_branches,
    name_sent_branches,
    restore_branches,
)
from shoal.workspaces.project_remotes import (
    FETCHED_REF,
    RemoteCommit,
    fetch_remote_commit,
    find_remote_commit,
)
from shoal.workspaces.repository_lock import GitRepositoryLock
from shoal.workspaces.workspace_texts import format_workspace_notice

CHECKPOINT_REF = "refs/shoal/checkpoint"
_CARRIER_REF = "refs/shoal/carrier"
_KEPT_REFS = "refs/shoal/kept"
_REF_IN_THE_WAY = "cannot lock ref"
"""What git says if the name of one ref contains that of another."""
REMOTE_TIMEOUT = 20.0
"""Seconds to fetch from a remote. If this fails, the bundle is sent; a start has 50 seconds in total."""
_MAX_PROBLEM_LENGTH = 300
_MAX_KNOWN = 100
"""Commits that a machine names as known."""
_SHA256_DIGITS = 64
_ADDED_WITH_ERRORS = 1
"""Exit code of `git add --ignore-errors` if it could not add some files."""
_REPOSITORY_MODE = b"160000"
_CHECKOUTS = "/shoal/cluster/checkouts/"
_AUTHOR = ("user.name=Shoal", "user.email=shoal@localhost")
_WITHOUT_LFS = (
    *(f"filter.lfs.{name}=" for name in ("clean", "smudge", "process")),
    "filter.lfs.required=false",
)
"""On other machines, git stores files in commits: git-lfs would keep them in the checkout."""
_LFS_POINTER = re.compile(rb"version https://git-lfs[^\n]*\n(?:[^\n]*\n)*?oid sha256:([0-9a-f]{64})\n")


class ProjectOrigin(Struct, frozen=True, kw_only=True):
    """Commit from which a checkout on another machine starts."""

    project: str
    """First commit of the repository, which all its copies share."""
    commit: str
    inside: str
    """Relative directory in which the lead works."""
    name: str = "checkout"
    """Name of the checkout on the other machine."""
    remote: RemoteCommit | None = None
    """Where the other machine can fetch a part of the history; None if it gets everything as a bundle."""
    branches: Mapping[str, str] = {}
    """Other branches and stashes of earlier work, by their names next to the ref."""
    carrier: str = ""
    """Commit whose parents are the commit and those of the branches; empty without branches."""

    @property
    def sent_commit(self) -> str:
        """Commit that contains everything to send."""
        return self.carrier or self.commit

    @property
    def bundle_ref(self) -> str:
        """Ref of the commit in the bundle; a bundle for another checkout may be made at the same time."""
        return f"{_KEPT_REFS}/cluster-{self.commit}-{sha256(self.name.encode()).hexdigest()[:16]}"


class _WorkState(Struct, frozen=True):
    head: str
    tree: str
    """Tree of all files."""
    branches: Mapping[str, str]


class KnownCommits(Struct, frozen=True, kw_only=True):
    """Answer of a machine to the origin."""

    commits: tuple[str, ...] = ()
    machine: str = ""
    problem: str = ""
    """Why the machine cannot fetch from the remote; empty if it can, or has no reason to."""


def relocate_checkout_path(path: str, cwd: Path) -> str:
    """Return the same place in the checkout of this machine if a path is in that of another machine."""
    _, is_elsewhere, place = path.partition(_CHECKOUTS)
    home, is_here, own_place = str(cwd).partition(_CHECKOUTS)
    if not is_elsewhere or not is_here or place.split("/")[0] != own_place.split("/")[0]:
        return path
    return f"{home}{_CHECKOUTS}{place}"


async def find_project_origin(
    git: GitRunner,
    checkout: GitCheckout,
    ref: str,
    *,
    name: str,
    uncommitted: bool = False,
    uses_remote: bool = False,
) -> ProjectOrigin:
    """Return the commit of a ref, or HEAD if there is none or HEAD has it. Raises `WorktreeError`.

    With `uncommitted`, changes since HEAD are in one more commit, to which no ref points.
    """
    await _refuse_shallow_clone(git, checkout)
    await refuse_required_repository_filters(git, checkout)
    at = checkout.git_directories
    commit = await _find_unmerged_work(git, at, ref)
    if not commit:
        head = await get_head_commit(git, checkout)
        commit = await commit_all_files(git, at, head, "Uncommitted changes") if uncommitted else head
    branches = await list_stored_branches(git, at, ref)
    roots = (await git("rev-list", "--max-parents=0", commit, at=at)).text.split("\n")
    return ProjectOrigin(
        project=roots[-1],
        commit=commit,
        inside=checkout.inside,
        name=name,
        remote=await find_remote_commit(git, checkout, commit) if uses_remote else None,
        branches=branches,
        carrier=await create_carrier(git, at, commit, *branches.values()) if branches else "",
    )


async def _find_unmerged_work(git: GitRunner, at: GitDirectories, ref: str) -> str:
    """Return the commit of a ref; empty if there is none or HEAD contains it."""
    found = await git.try_run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", at=at)
    if found.status != 0:
        return ""
    is_merged = await git.try_run("merge-base", "--is-ancestor", found.text, "HEAD", at=at)
    return "" if is_merged.status == 0 else found.text


async def create_carrier(git: GitRunner, at: GitDirectories | Path, *parents: str) -> str:
    """Return a commit with the tree of the first of several commits, which contains all of them."""
    arguments = (part for parent in dict.fromkeys(parents) for part in ("-p", parent))
    return (
        await git(
            "commit-tree", f"{parents[0]}^{{tree}}", *arguments, "-m", "Carrier", at=at, settings=_AUTHOR
        )
    ).text


async def _refuse_shallow_clone(git: GitRunner, checkout: GitCheckout) -> None:
    """Raise `WorktreeError` if the history has an end: a bundle lacks the commits that another one needs."""
    found = await git("rev-parse", "--is-shallow-repository", at=checkout.git_directories)
    if found.text == "true":
        raise WorktreeError(format_workspace_notice("shallow_clone", repository=checkout.top))


async def bundle_project(
    git: GitRunner, checkout: GitCheckout, origin: ProjectOrigin, known: Sequence[str]
) -> bytes:
    """Return a bundle of the commit without what the other machine has; empty if it has everything."""
    excluded = [f"^{name}" for name in known if await _has_commit(git, checkout, name)]
    # The commit may be older than those that the machine has; git refuses an empty bundle.
    arguments = ("rev-list", "--max-count=1", origin.sent_commit, *excluded)
    if not (await git(*arguments, at=checkout.git_directories)).text:
        return b""
    ref = origin.bundle_ref
    await git("update-ref", ref, origin.sent_commit, at=checkout.git_directories)
    try:
        return (await git("bundle", "create", "-", ref, *excluded, at=checkout.git_directories)).out
    finally:
        await git("update-ref", "-d", ref, at=checkout.git_directories)


async def store_checkpoint(git: GitRunner, checkout: GitCheckout, bundle: bytes, ref: str) -> None:
    """Store the commits of a checkpoint under a ref, and its branches next to it. Raises `WorktreeError`."""
    refspecs = (f"+{CHECKPOINT_REF}:{ref}", *build_refspecs(ref))
    try:
        await fetch_bundle(git, checkout.top, bundle, *refspecs)
    except WorktreeError as error:
        if _REF_IN_THE_WAY not in str(error):
            raise
        # A deleted branch `a` is in the way of a branch `a/b`.
        await fetch_bundle(git, checkout.top, bundle, "--prune", *refspecs)


class MachineCheckout:
    """Checkout of a project on a machine of a cluster. Its objects are shared with other checkouts."""

    def __init__(self, git: GitRunner, home: Path, origin: ProjectOrigin) -> None:
        directory = home / "shoal" / "cluster"  # as in _CHECKOUTS
        self._git = git
        self._origin = origin
        self._repository = directory / "repositories" / f"{origin.project}.git"
        self.top = directory / "checkouts" / check_safe_name(origin.name)
        self._owner = CheckoutOwner(self.top)
        self._pushed = ""
        """Commit of the remote, once this machine has it."""
        self._sent: _WorkState | None = None
        """Last state that was bundled."""
        self._branches: dict[str, str] = {}
        """Branches and stashes that the checkout had at first."""
        self._unconfirmed: deque[str] = deque()
        """Commits of the checkpoints that the lead has not answered yet."""
        self._stored = ""
        """Commit of the last checkpoint that the lead has stored."""
        self._unsent: list[str] = []
        """Repositories in the last checkpoint whose files are not in it."""
        self._lfs_problem = ""
        """Files in the last checkpoint that git-lfs has replaced by pointers."""
        self._submodules: list[str] | None = None
        """Submodules of the commit, once they are known."""
        self.problem = ""
        """Why the last checkpoint lacks files; empty if it has all of them."""
        self.read_error = ""
        """What git said about files that it could not read for the last checkpoint."""
        self._is_refused = False
        """True if the lead could not store the last checkpoint."""

    @property
    def cwd(self) -> Path:
        return self.top / self._origin.inside

    @property
    def paths(self) -> MachineCheckoutPaths:
        return MachineCheckoutPaths(top=str(self.top), repository=str(self._repository))

    @property
    def _init_options(self) -> tuple[str, ...]:
        is_sha256 = len(self._origin.commit) == _SHA256_DIGITS
        return ("--quiet", "--object-format=sha256") if is_sha256 else ("--quiet",)

    async def list_known_commits(self) -> tuple[str, ...]:
        if not (self._repository / "HEAD").exists():
            await self._create_repository()
        listing = await self._git(
            *("for-each-ref", f"--count={_MAX_KNOWN}", "--sort=-creatordate", "--format=%(objectname)"),
            _KEPT_REFS,
            at=self._repository,
        )
        # It may be older than those that are listed.
        return tuple(filter(None, dict.fromkeys((self._pushed, *listing.text.split("\n")))))

    async def fetch_from_remote(
        self, clock: Clock, processes: ProcessLauncher, *, timeout: float = REMOTE_TIMEOUT
    ) -> str:
        """Fetch from the remote what this machine lacks; return why this fails, or an empty string."""
        remote = self._origin.remote
        if remote is None:
            return ""
        try:
            # The wait for another fetch counts: nobody waits for a silent server longer than that.
            async with clock.deadline(timeout), GitRepositoryLock(self._repository, clock).acquire():
                if not await self._has_kept_commit(remote.commit):
                    await self._fetch_through_new_repository(remote, timeout, processes)
        except TimeoutError:
            return format_workspace_notice("git_too_slow", command="fetch", seconds=f"{timeout:g}")
        except (WorktreeError, OSError) as error:
            return " ".join(str(error).split())[:_MAX_PROBLEM_LENGTH]
        self._pushed = remote.commit
        return ""

    async def _fetch_through_new_repository(
        self, remote: RemoteCommit, timeout: float, processes: ProcessLauncher
    ) -> None:
        """Fetch into another repository first, so that a fetch that is interrupted leaves nothing.

        It also has no configuration that an agent could have written.
        """
        async with self._create_new_repository() as created:
            _share_objects(created, self._repository)
            await fetch_remote_commit(self._git, remote, created, timeout, processes)
            refspec = f"+{FETCHED_REF}:{_KEPT_REFS}/{remote.commit}"
            await _fetch_file(self._git, self._repository, str(created), refspec)

    async def _has_kept_commit(self, commit: str) -> bool:
        """Return True if a ref has the commit and its history; an object alone may lack its parents."""
        found = await self._git.try_run(
            "for-each-ref", "--count=1", f"--contains={commit}", _KEPT_REFS, at=self._repository
        )
        return found.status == 0 and bool(found.text)

    async def _create_repository(self) -> None:
        """Create the repository elsewhere and move it: `git init` fails if another one runs in its place."""
        async with self._create_new_repository() as created:
            try:
                created.rename(self._repository)
            except OSError:  # another one was faster, or an earlier one did not finish
                if not (self._repository / "HEAD").exists():
                    place = self._repository
                    await self._git("init", *self._init_options, "--bare", str(place), at=place)

    @asynccontextmanager
    async def _create_new_repository(self) -> AsyncIterator[Path]:
        parent = self._repository.parent
        with ExitStack() as stack:
            with _report_file_errors():
                parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                directory = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix=".new-", dir=parent, ignore_cleanup_errors=True)
                )
                created = Path(directory) / self._repository.name
                created.mkdir(mode=0o700)
            await self._git("init", *self._init_options, "--bare", str(created), at=created)
            yield created

    async def create(self, bundle: bytes) -> None:
        """Create the checkout from the bundle. Raises `WorktreeError`."""
        kept = f"{_KEPT_REFS}/{self._origin.sent_commit}"
        if bundle:
            refspec = f"+{self._origin.bundle_ref}:{kept}"
            await fetch_bundle(self._git, self._repository, bundle, refspec)
        with _report_file_errors():
            await asyncio.to_thread(remove_abandoned_checkouts, self.top.parent)
            keep_unsent_files(self.top)
        shutil.rmtree(self.top, ignore_errors=True)
        with _report_file_errors():
            self.top.mkdir(mode=0o700, parents=True)
        try:
            await self._fill()
        except BaseException:
            self.remove()
            raise

    async def _fill(self) -> None:
        origin = self._origin
        await self._git("init", *self._init_options, str(self.top), at=self.top)
        with _report_file_errors():
            self._owner.claim()
        _share_objects(self.top / ".git", self._repository)
        arguments = ("checkout", "--quiet", "-B", OWN_BRANCH, origin.commit)
        await self._git(*arguments, at=self.top, settings=_WITHOUT_LFS)
        if origin.branches:
            await restore_branches(self._git, self.top, origin.branches)
            self._branches = await list_own_branches(self._git, self.top, origin.commit)
        with _report_file_errors():
            # The work may have moved the directory in which the lead works.
            self.cwd.mkdir(parents=True, exist_ok=True)

    def mark_unsent_files(self, *, has_some: bool) -> None:
        """Note on the disk, where it outlives this process, whether files could not be sent."""
        self._owner.mark_unsent_files(has_some=has_some)

    def remove(self) -> None:
        """Remove the checkout, unless a later process has made its own in the same place."""
        self._owner.remove()

    def note_answer(self, *, is_stored: bool) -> None:
        """Note whether the lead has stored the oldest checkpoint that it had not answered."""
        commit = self._unconfirmed.popleft() if self._unconfirmed else ""
        self._stored = commit if is_stored else ""
        self._is_refused = not is_stored
        if not is_stored:
            # Send everything again, although nothing may have changed since then.
            self._sent = None

    async def build_checkpoint(self) -> bytes:
        """Commit what changed, and return a bundle of it; empty if nothing has changed.

        The index and the branch of the agent stay as they are. Files that git cannot add are missing; then
        `problem` says why.
        """
        if (link := await asyncio.to_thread(find_link_of_git, self.top / ".git")) is not None:
            raise WorktreeError(format_workspace_notice("linked_git_directory", path=escape_filename(link)))
        found = await self._git.try_run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", at=self.top)
        # A new branch without a history has no commit yet.
        head = found.text if found.status == 0 else self._origin.commit
        tree, error = await _write_tree_of_readable_files(self._git, self._places, is_member=True)
        self.read_error = error
        unsent = [*await self._list_changed_submodules(), *await self._list_changed_worktrees()]
        self.problem = error or _describe_unsent_repositories(self._unsent, unsent) or self._lfs_problem
        head_tree = (await self._git("rev-parse", f"{head}^{{tree}}", at=self.top)).text
        state = _WorkState(head, tree, await list_own_branches(self._git, self.top, self._origin.commit))
        known = self._sent or _WorkState(self._origin.commit, head_tree, self._branches)
        if state == known and not self._is_refused:
            return b""
        self._unsent = await self._list_changed_repositories(tree)
        self._lfs_problem = await self._describe_unsent_lfs_files(tree)
        self.problem = error or _describe_unsent_repositories(self._unsent, unsent) or self._lfs_problem
        commit = head
        # git refuses an empty bundle: undone work needs a commit of its own.
        if tree != head_tree or not await self._has_more(head, self._origin.commit):
            arguments = ("commit-tree", tree, "-p", head, "-m", "Checkpoint")
            commit = (await self._git(*arguments, at=self.top, settings=_AUTHOR)).text
        await self._git("update-ref", CHECKPOINT_REF, commit, at=self.top)
        bundle = await self._bundle_work(commit, state.branches)
        self._sent = state
        self._unconfirmed.append(commit)
        return bundle

    async def _bundle_work(self, commit: str, branches: Mapping[str, str]) -> bytes:
        """Bundle what the lead lacks. A bundle has no ref to a commit that the lead is known to have."""
        refs = [CHECKPOINT_REF]
        known = [self._origin.commit]
        if branches != (self._branches if self._sent is None else self._sent.branches):
            refs += await name_sent_branches(self._git, self.top, branches)
        elif self._stored and await self._has_more(commit, self._origin.commit, self._stored):
            known.append(self._stored)
            # Otherwise git would send the files of the stored one again, which is not an ancestor.
            carrier = await create_carrier(self._git, self.top, commit, self._stored)
            await self._git("update-ref", _CARRIER_REF, carrier, at=self.top)
            refs.append(_CARRIER_REF)
        excluded = (f"^{each}" for each in known)
        return (await self._git("bundle", "create", "-", *refs, *excluded, at=self.top)).out

    async def _has_more(self, commit: str, *known: str) -> bool:
        """Return True if a commit is, or has, one that others do not contain."""
        arguments = ("rev-list", "--max-count=1", commit, *(f"^{each}" for each in known))
        return bool((await self._git(*arguments, at=self.top)).text)

    async def _list_changed_repositories(self, tree: str) -> list[str]:
        """Return the repositories that the agent created or moved on: a tree has only the commit's id."""
        changes = await self._git(
            "diff-tree", "-r", "-z", "--no-renames", self._origin.commit, tree, at=self.top
        )
        parts = changes.out.split(b"\0")
        return [
            os.fsdecode(name)
            for change, name in zip(parts[::2], parts[1::2], strict=False)
            if change.split(b" ")[1] == _REPOSITORY_MODE
        ]

    async def _list_changed_submodules(self) -> list[str]:
        """Return the submodules with files of the agent, which git does not add to the tree.

        Their directories are empty at first. The agent may also have filled one from its own repository.
        """
        if self._submodules is None:
            listing = await self._git("ls-tree", "-r", "-z", self._origin.commit, at=self.top)
            entries = (entry.partition("\t") for entry in listing.names)
            mode = _REPOSITORY_MODE.decode()
            self._submodules = [name for kind, _, name in entries if kind.startswith(mode)]
        return [name for name in self._submodules if await self._has_unsent_files(self.top / name)]

    async def _list_changed_worktrees(self) -> list[str]:
        """Return the agent's other working trees of this repository with uncommitted changes."""
        if not (self.top / ".git" / "worktrees").exists():
            return []
        # Git 2.31 has no -z here.
        listing = await self._git("worktree", "list", "--porcelain", at=self.top)
        entries = (line.partition(" ") for line in listing.text.split("\n"))
        others = [Path(value) for key, _, value in entries if key == "worktree"][1:]  # the first is this one
        return [str(path) for path in others if await has_uncommitted_changes(self._git, path)]

    async def _describe_unsent_lfs_files(self, tree: str) -> str:
        """Name the files that the agent committed with git-lfs, which keeps their content elsewhere."""
        objects = self.top / ".git" / "lfs" / "objects"
        if not objects.is_dir():
            return ""
        arguments = ("diff-tree", "-r", "-z", "--no-renames", "--diff-filter=d", "--name-only")
        names = (await self._git(*arguments, self._origin.commit, tree, at=self.top)).names
        pointers = []
        for name in names:
            content = await self._git.try_run("cat-file", "blob", f"{tree}:{name}", at=self.top)
            found = _LFS_POINTER.match(content.out)
            oid = found[1].decode() if found else ""
            if oid and (objects / oid[:2] / oid[2:4] / oid).exists():
                pointers.append(name)
        return format_workspace_notice("unsent_lfs_files", names=", ".join(pointers)) if pointers else ""

    async def _has_unsent_files(self, submodule: Path) -> bool:
        if is_git_repository(submodule):
            return await has_uncommitted_changes(self._git, submodule)
        return _has_entries(submodule)

    @property
    def _places(self) -> GitDirectories:
        entry = self.top / ".git"
        return GitDirectories(entry=entry, common=entry, tree=self.top)


async def commit_all_files(git: GitRunner, places: GitDirectories, head: str, message: str) -> str:
    """Return a commit on top of HEAD with all files; HEAD itself if nothing has changed."""
    tree = await write_tree_of_all_files(git, places)
    if tree == (await git("rev-parse", f"{head}^{{tree}}", at=places)).text:
        return head
    arguments = ("commit-tree", tree, "-p", head, "-m", message)
    return (await git(*arguments, at=places, settings=_AUTHOR)).text


async def write_tree_of_all_files(git: GitRunner, places: GitDirectories) -> str:
    """Return a tree of all files that git does not ignore, without touching the index."""
    tree, error = await _write_tree_of_readable_files(git, places)
    if error:
        raise WorktreeError(error)
    return tree


async def _write_tree_of_readable_files(
    git: GitRunner, places: GitDirectories, *, is_member: bool = False
) -> tuple[str, str]:
    """Return a tree of the files that git can add, and what it says about the others.

    For a member, also changes of files that git was told to leave alone: its checkout will be removed.
    """
    with _report_file_errors(), tempfile.TemporaryDirectory(dir=places.entry) as directory:
        index = Path(directory) / "index"
        if (places.entry / "index").exists():
            # Keep its time: git rereads a file whose time is not before that of the index.
            shutil.copy2(places.entry / "index", index)
        with_index = replace(places, index=index)
        settings = _WITHOUT_LFS if is_member else ()
        if is_member:
            await _remove_index_marks(git, with_index)
        added = await git.try_run("add", "--all", "--ignore-errors", at=with_index, settings=settings)
        error = format_workspace_notice("git_failed", command="add", error=added.error.strip())
        if added.status not in (0, _ADDED_WITH_ERRORS):
            raise WorktreeError(error)
        tree = (await git("write-tree", at=with_index)).text
        return tree, error if added.status else ""


async def _remove_index_marks(git: GitRunner, places: GitDirectories) -> None:
    """Make git look at files that are marked as unchanged, and at existing ones that it should skip."""
    listing = await git("ls-files", "-v", "-z", at=places)
    marked = [(entry[0], entry[2:]) for entry in listing.names if entry[0] != "H"]
    skipped = [name for tag, name in marked if tag in "Ss" and _exists(places.tree / name)]
    unchanged = [name for tag, name in marked if tag.islower()]
    for option, names in (("--no-skip-worktree", skipped), ("--no-assume-unchanged", unchanged)):
        if names:
            paths = b"".join(os.fsencode(name) + b"\0" for name in names)
            await git("update-index", option, "-z", "--stdin", at=places, stdin=paths)


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _has_entries(directory: Path) -> bool:
    try:
        return not directory.is_symlink() and any(directory.iterdir())
    except OSError:
        return False  # removed or replaced, which is in the tree


def _describe_unsent_repositories(*lists: Sequence[str]) -> str:
    names = ", ".join(dict.fromkeys(chain.from_iterable(lists)))
    return format_workspace_notice("unsent_repositories", names=names) if names else ""


def check_safe_name(name: str) -> str:
    """Return the name of a directory. Raises ValueError if it is a path."""
    if not name or name.startswith(".") or "/" in name:
        raise ValueError(f"{name!r} is not the name of a checkout")
    return name


async def _has_commit(git: GitRunner, checkout: GitCheckout, name: str) -> bool:
    if not name.isalnum():
        return False
    found = await git.try_run("cat-file", "-e", f"{name}^{{commit}}", at=checkout.git_directories)
    return found.status == 0


async def fetch_bundle(git: GitRunner, repository: Path, bundle: bytes, *refspecs: str) -> None:
    """Fetch from a bundle. Raises `WorktreeError`, for example if the repository lacks what it needs."""
    with _report_file_errors(), tempfile.TemporaryDirectory(prefix="shoal-bundle-") as directory:
        path = os.path.join(directory, "project.bundle")  # noqa: PTH118 - git gets a text
        with open(path, "wb") as file:  # noqa: ASYNC230, PTH123
            file.write(bundle)
        await _fetch_file(git, repository, path, *refspecs)


async def _fetch_file(git: GitRunner, repository: Path, path: str, *refspecs: str) -> None:
    """Fetch from a bundle or a repository on this machine."""
    await git(
        *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", path, *refspecs),
        at=repository,
        settings=CHECK_FETCHED_OBJECTS,
    )


def _share_objects(repository: Path, owner: Path) -> None:
    with _report_file_errors():
        (repository / "objects" / "info" / "alternates").write_text(f"{owner / 'objects'}\n")


@contextmanager
def _report_file_errors() -> Iterator[None]:
    """Raise `WorktreeError` for a full disk, or for what the commands of an agent left in its checkout."""
    try:
        yield
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        problem = f"{place}{error.strerror or error}"
        raise WorktreeError(format_workspace_notice("project_not_copied", error=problem)) from error
