"""Workspace, permissions, processes and shells of the lead."""

from __future__ import annotations

from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.basis.basis import Basis
from shoal.app.basis.session_record import Record
from shoal.app.options import Options
from shoal.app.quarters.confines import sandbox
from shoal.app.session.permitting import session_permissions
from shoal.backends.processes import GuardedProcesses
from shoal.core.events import FileChanged
from shoal.core.filenames import shown
from shoal.core.ids import LEAD
from shoal.core.sandbox import Sandbox
from shoal.policy.permissions import RulePermissions
from shoal.runs.desk import FileDesk
from shoal.tools.shells import Shells
from shoal.workspaces.local import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class Reach(Struct, frozen=True, kw_only=True):
    workspace: LocalWorkspace
    permissions: RulePermissions
    desk: FileDesk
    processes: GuardedProcesses
    shells: Shells
    sandbox: Sandbox
    granted: tuple[Path, ...]


async def reach_of(basis: Basis, record: Record, session: Session, leave: AsyncExitStack) -> Reach:
    options, settings = basis.options, basis.settings
    granted = (*options.add_dirs, *settings.standing.directories)

    def changed(turn: int, path: Path) -> None:
        session.emit(FileChanged(agent=LEAD, turn=turn, path=shown(path)))

    workspace = LocalWorkspace(basis.cwd, granted=granted, checkpoints=record.checkpoints, changed=changed)
    desk = FileDesk(
        record.directory / "questions",
        clock=options.clock,
        emit=session.emit,
        attended=options.attended,
        patience=settings.own.question_patience,
    )
    processes = GuardedProcesses(options.clock)
    leave.push_async_callback(processes.aclose)
    shells = Shells(
        processes=processes,
        clock=options.clock,
        home=settings.home,
        env=settings.tool_environment,
        mark=_mark(options, record),
        stuck_after=settings.own.stuck_after,
        note=session.note,
    )
    permissions = session_permissions(options, settings, workspace, record.directory, session)
    confined = sandbox(settings, workspace, record.directory, session.note, permissions.denied_paths)
    shells.confine(confined)
    permissions.sandboxed = lambda _: confined.vouches
    return Reach(
        workspace=workspace,
        permissions=permissions,
        desk=desk,
        processes=processes,
        shells=await _entered(shells, options, leave),
        sandbox=confined,
        granted=granted,
    )


def _mark(options: Options, record: Record) -> str:
    """Build a mark that successive processes of a session or teammate share, but no two at once."""
    member = options.membership
    who = f"{record.directory} {'' if member is None else f'{member.name}@{member.team}'}"
    return sha256(who.encode("utf-8", "replace")).hexdigest()[:8]


async def _entered(shells: Shells, options: Options, leave: AsyncExitStack) -> Shells:
    await leave.enter_async_context(shells)
    if (lead := options.membership) is not None and lead.snapshot:
        shells.commands.given = Path(lead.snapshot)
    if options.attended:
        # Prepared while the person types; an unattended run starts a shell only when needed.
        shells.prepare()
    return shells
