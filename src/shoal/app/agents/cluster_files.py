"""Files of the lead's project for teammates on other machines, and the refs that contain their work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from shoal.app.agents.work_record import WorkRecord
from shoal.core.clock import Clock
from shoal.core.teams.member_backends import MemberLaunchArgs
from shoal.workspaces.checkout import GitCheckout, find_git_checkout
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.member_branches import build_work_ref, list_stored_branches
from shoal.workspaces.project_transfer import (
    KnownCommits,
    ProjectOrigin,
    bundle_project,
    find_project_origin,
    store_checkpoint,
)


class ClusterFiles:
    """Sends the last commit of the project, or the last work of the member if it worked before."""

    def __init__(
        self,
        cwd: Path,
        *,
        environ: Mapping[str, str],
        clock: Clock,
        report: Callable[[str], None],
        record: WorkRecord | None = None,
        uncommitted: bool = False,
        uses_remote: bool = True,
    ) -> None:
        """With `record`, work is also stored there before it counts as stored.

        With `uncommitted`, new members also get the changes that are not committed.

        With `uses_remote`, machines fetch what is already in a remote of the project.
        """
        self._uses_remote = uses_remote
        self._uncommitted = uncommitted
        self._cwd = cwd
        self._git = GitRunner(environ, clock)
        self._checkout: GitCheckout | None = None
        self._report = report
        self._reported: set[str] = set()
        self._record = record

    async def describe_origin(self, member: MemberLaunchArgs) -> bytes:
        name = f"{member.session}-{member.name}"
        checkout, ref = await self._find_checkout(), build_work_ref(member.session, member.name)
        if self._record is not None:
            await self._record.restore_work(checkout, member.name)
        return msgspec.json.encode(
            await find_project_origin(
                self._git,
                checkout,
                ref,
                name=name,
                uncommitted=self._uncommitted,
                uses_remote=self._uses_remote,
            )
        )

    async def build_bundle(self, origin: bytes, known: bytes) -> bytes:
        decoded = msgspec.json.decode(origin, type=ProjectOrigin)
        answer = msgspec.json.decode(known, type=KnownCommits)
        if answer.problem and decoded.remote is not None and self._uses_remote:
            # For the rest of the session: nobody else waits for it.
            self._uses_remote = False
            self._report(
                f"The machine {answer.machine} could not fetch the project from {decoded.remote.url} "
                f"({answer.problem.rstrip('.')}). From now on, this machine sends all commits itself. To "
                "stop trying, set shoal.cluster.fetch_from_remote to false."
            )
        return await bundle_project(self._git, await self._find_checkout(), decoded, answer.commits)

    async def store_checkpoint(self, member: MemberLaunchArgs, bundle: bytes) -> None:
        ref = build_work_ref(member.session, member.name)
        checkout = await self._find_checkout()
        await store_checkpoint(self._git, checkout, bundle, ref)
        if self._record is not None:
            await self._record.store_work(checkout, member.name)
        if ref not in self._reported:
            self._reported.add(ref)
            self._report(f"The work of {member.name} is stored as {ref}. Merge it: git merge {ref}")
        self._report_branches(
            member.name, await list_stored_branches(self._git, checkout.git_directories, ref), ref
        )

    def _report_branches(self, name: str, branches: Mapping[str, str], ref: str) -> None:
        for kind in sorted({branch.partition("/")[0] for branch in branches}):
            prefix = f"{ref}.{kind}"
            if prefix not in self._reported:
                self._reported.add(prefix)
                self._report(f"Other {kind} of {name} are stored. List them: git for-each-ref {prefix}")

    async def restore_all_work(self) -> None:
        """Recreate the refs that this repository lacks, such as another clone. Raises `WorktreeError`."""
        if self._record is not None:
            await self._record.restore_all(await self._find_checkout())

    async def find_work(self, session: str, name: str) -> str:
        """Return the ref with the work of a member or an agent; empty if there is none."""
        ref = build_work_ref(session, name)
        checkout = await self._find_checkout()
        found = await self._git.try_run("rev-parse", "--verify", "--quiet", ref, at=checkout.git_directories)
        return ref if found.status == 0 else ""

    async def _find_checkout(self) -> GitCheckout:
        if self._checkout is None:
            self._checkout = await find_git_checkout(self._git, self._cwd)
        return self._checkout
