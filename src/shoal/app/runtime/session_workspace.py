"""The workspace of a session, and the allocator of workspaces for its agents."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from shoal.app.config.session_config import OpenedSessionStore, SessionConfig
from shoal.app.isolation.agent_workspace import AgentFileWriteLeases, WorkspaceAllocator
from shoal.app.runtime.event_bus import EventBus
from shoal.core.events import FileChanged
from shoal.core.ids import LEAD_ID
from shoal.core.text.filenames import escape_filename
from shoal.workspaces.confined_checkout import ConfinedCheckout, open_confined_checkout
from shoal.workspaces.local_workspace import LocalWorkspace


def open_member_checkout(config: SessionConfig) -> ConfinedCheckout | None:
    """Open the checkout to which this session is confined, if it runs an agent on a machine of a cluster."""
    membership = config.options.membership
    if membership is None or membership.checkout is None:
        return None
    return open_confined_checkout(membership.checkout, config.cwd, session=config.history.session)


def create_lead_workspace(
    config: SessionConfig,
    store: OpenedSessionStore,
    granted: tuple[Path, ...],
    events: EventBus,
    leases: AgentFileWriteLeases,
    checkout: ConfinedCheckout | None,
) -> LocalWorkspace:
    """Create the workspace of the lead, or of the agent that the process runs in its checkout."""

    def emit_file_changed(turn: int, path: Path) -> None:
        events.emit_event(FileChanged(agent=LEAD_ID, turn=turn, path=escape_filename(path)))

    if checkout is not None:
        return checkout.create_workspace(
            granted=granted,
            extra_writable=(config.settings.home / "plans",),
            checkpoints=store.checkpoints,
            on_change=emit_file_changed,
            write_guard=leases.create_write_guard(LEAD_ID),
            user=config.settings.user,
        )
    return LocalWorkspace(
        config.cwd,
        granted=granted,
        checkpoints=store.checkpoints,
        on_change=emit_file_changed,
        write_guard=leases.create_write_guard(LEAD_ID),
        user=config.settings.user,
    )


def create_workspace_allocator(
    config: SessionConfig,
    store: OpenedSessionStore,
    events: EventBus,
    exit_stack: AsyncExitStack,
    checkout: ConfinedCheckout | None,
) -> WorkspaceAllocator:
    allocator = WorkspaceAllocator(
        config.settings,
        store.directory,
        config.options.clock,
        emit=events.emit_event,
        note=events.note,
        turn=lambda: events.turn,
        shared_objects=() if checkout is None else checkout.shared_objects,
    )
    exit_stack.callback(allocator.close)
    return allocator
