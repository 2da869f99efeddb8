"""Protocols between a team and its members, wherever they run."""

from __future__ import annotations

from typing import Protocol

from shoal.core.agents.subagents import ResolvedAgentSettings, RetainedWorktreeWork
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId
from shoal.core.names import AgentName
from shoal.core.teams.mail_bodies import ShutdownRequestMail
from shoal.core.teams.team_operations import MemberState, TeammateStatusSnapshot
from shoal.runs.progress_monitor import ProgressMonitor
from shoal.runs.run_outcome import AgentRunOutcome


class Member(Protocol):
    name: AgentName
    state: MemberState
    shutdown_request: ShutdownRequestMail | None
    """Shutdown request that is not answered yet."""
    stop_reason: str
    """Reason why it is being ended; empty if it is not."""
    resumable: bool
    """True if it ends with the session and can be resumed with it."""
    has_finished_work: bool
    """True if it has finished a working period since it was started."""

    @property
    def id(self) -> AgentId: ...

    @property
    def agent_started_event(self) -> AgentStarted: ...

    @property
    def resolved(self) -> ResolvedAgentSettings: ...

    @property
    def monitor(self) -> ProgressMonitor | None:
        """Counts its usage; None for a foreign program."""
        ...

    @property
    def pane(self) -> str:
        """Pane id as in the roster."""
        ...

    @property
    def is_busy(self) -> bool:
        """True if work or its end is still pending."""
        ...

    @property
    def can_claim_task(self) -> bool: ...

    async def is_confirmed_idle(self) -> bool:
        """Return True if a member that is not busy here is also idle where it runs and has no mail."""
        ...

    def to_teammate_status(self) -> TeammateStatusSnapshot: ...

    def is_waiting_for_answer(self, request: str, mail: str) -> bool:
        """Return True if it may still wait for the answer to a request; `mail` is its mail id if known."""
        ...

    async def run(self) -> AgentRunOutcome:
        """Run until it is ended; expected ends and crashes are returned as values."""
        ...

    def interrupt_turn(self) -> bool:
        """End its working period but not the member; return False if it is not working."""
        ...

    async def discard(self) -> None:
        """Release what it uses; it is not run."""
        ...

    async def clean_up(self) -> RetainedWorktreeWork | None:
        """Release its resources after `run`; return the work it leaves in a worktree, if any."""
        ...


class MemberObserver(Protocol):
    """Parts of the team that a member calls."""

    def set_roster_activity(self, name: AgentName, *, active: bool) -> None:
        """Show its activity in the roster soon."""
        ...

    def on_shutdown_requested(self, name: AgentName, request: ShutdownRequestMail) -> None: ...

    def notify_changed(self) -> None: ...


class RemoteMemberObserver(Protocol):
    """Parts of the team that a member in another process calls."""

    def notify_changed(self) -> None: ...

    def on_request_withdrawn(self, request: str) -> None:
        """Handle that it no longer waits for the answer to a request by mail."""
        ...

    def on_shutdown_agreed(self, name: AgentName, request: str) -> None: ...

    async def on_connection_lost(self, name: AgentName) -> None:
        """Handle a channel that ended without an end message, before the process is cleaned up."""
        ...
