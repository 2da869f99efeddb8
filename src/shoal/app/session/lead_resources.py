"""Workspace, permissions, processes and shells of the lead."""

from __future__ import annotations

from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.config.session_config import SessionConfig
from shoal.app.config.session_store import SessionFileStores
from shoal.app.isolation.sandbox_policies import create_sandbox
from shoal.app.options import Options
from shoal.app.session.session_permissions import create_session_permissions
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.events import FileChanged
from shoal.core.filenames import escape_filename
from shoal.core.ids import LEAD_ID
from shoal.core.sandbox import Sandbox
from shoal.policy.permission_engine import PermissionEngine
from shoal.runs.question_broker import FileQuestionBroker
from shoal.tools.shell_supervisor import BackgroundShellSupervisor
from shoal.workspaces.local_workspace import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class LeadResources(Struct, frozen=True, kw_only=True):
    workspace: LocalWorkspace
    permissions: PermissionEngine
    question_broker: FileQuestionBroker
    processes: GuardedProcessLauncher
    shells: BackgroundShellSupervisor
    sandbox: Sandbox
    granted_directories: tuple[Path, ...]


async def open_lead_resources(
    config: SessionConfig, store: SessionFileStores, session: Session, exit_stack: AsyncExitStack
) -> LeadResources:
    options, settings = config.options, config.settings
    granted = (*options.add_dirs, *settings.permission_rules.directories)

    def emit_file_changed(turn: int, path: Path) -> None:
        session.emit_event(FileChanged(agent=LEAD_ID, turn=turn, path=escape_filename(path)))

    workspace = LocalWorkspace(
        config.cwd, granted=granted, checkpoints=store.checkpoints, on_change=emit_file_changed
    )
    question_broker = FileQuestionBroker(
        store.directory / "questions",
        clock=options.clock,
        emit=session.emit_event,
        attended=options.attended,
        answer_timeout=settings.own.question_patience,
    )
    processes = GuardedProcessLauncher(options.clock)
    exit_stack.push_async_callback(processes.aclose)
    shells = BackgroundShellSupervisor(
        processes=processes,
        clock=options.clock,
        home=settings.home,
        env=settings.tool_environment,
        mark=_build_process_owner_mark(options, store),
        stuck_after=settings.own.stuck_after,
        note=session.note,
    )
    permissions = create_session_permissions(options, settings, workspace, store.directory, session)
    sandbox = create_sandbox(
        settings, workspace, store.directory, session.note, permissions.list_denied_paths
    )
    shells.set_sandbox(sandbox)
    permissions.is_sandboxed = lambda _: sandbox.can_skip_permission_question
    return LeadResources(
        workspace=workspace,
        permissions=permissions,
        question_broker=question_broker,
        processes=processes,
        shells=await _open_shell_supervisor(shells, options, exit_stack),
        sandbox=sandbox,
        granted_directories=granted,
    )


def _build_process_owner_mark(options: Options, store: SessionFileStores) -> str:
    """Build a mark that successive processes of a session or teammate share, but no two at once."""
    membership = options.membership
    owner = f"{store.directory} {'' if membership is None else f'{membership.name}@{membership.team}'}"
    return sha256(owner.encode("utf-8", "replace")).hexdigest()[:8]


async def _open_shell_supervisor(
    shells: BackgroundShellSupervisor, options: Options, exit_stack: AsyncExitStack
) -> BackgroundShellSupervisor:
    await exit_stack.enter_async_context(shells)
    if (membership := options.membership) is not None and membership.snapshot:
        shells.launcher.shared_snapshot = Path(membership.snapshot)
    if options.attended:
        # Prepared while the person types; an unattended run starts a shell only when needed.
        shells.prepare_snapshot()
    return shells
