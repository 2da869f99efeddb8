"""Protocols between a team and its members, wherever they run."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Protocol

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.subagents import ResolvedAgentSettings, RetainedWorktreeWork
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId
from shoal.core.names import AgentName
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.teams.mail_bodies import ShutdownRequestMail
from shoal.core.teams.roster import RosterEntry
from shoal.core.teams.team_operations import MemberState, TeammateStatusSnapshot
from shoal.runs.progress_monitor import ProgressMonitor
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.mail.mail_authentication import InboundMail

if TYPE_CHECKING:
    from shoal.team.members.down_member import DownMember


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
    def is_foreign(self) -> bool:
        """True if it is a program that is not Shoal."""
        ...

    @property
    def agent(self) -> AgentRunner | None:
        """Its agent, if that runs in this process."""
        ...

    @property
    def delivered(self) -> Container[str]:
        """Ids of the items that its transcript contained when this process started its agent."""
        ...

    @property
    def reads_own_mail(self) -> bool:
        """True if its own process takes its mail."""
        ...

    @property
    def death_cause(self) -> str:
        """Cause of an unexpected end of its process, if it had one."""
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

    async def deliver_mail(self, received: InboundMail) -> bool:
        """Handle mail that this process took for it; return True if it is settled."""
        ...

    def on_message_sent(self, summary: str) -> None:
        """Handle a message that it sent to a member other than the lead."""
        ...

    def on_foreign_mail(self, *, is_idle: bool) -> None:
        """Infer the state of a foreign program from its mail, which is all that is known about it."""
        ...

    def send_permission_update(self, update: PermissionSuggestion) -> None:
        """Send a session-wide answer to its process, if it has one."""
        ...

    def create_placeholder(self, entry: RosterEntry, cause: str) -> DownMember:
        """Return what takes its place in the team after it failed, until it is started again."""
        ...

    def expect_restart(self) -> bool:
        """Let the team wait for its restart; return False if it is not down."""
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
