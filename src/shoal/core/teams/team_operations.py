"""Team operations: the port through which tools use the team that a session leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.agents.subagents import ResolvedAgentSettings
from shoal.core.ids import AgentId
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailDeliveryState
from shoal.core.teams.roster import TeamRoster

if TYPE_CHECKING:
    from shoal.core.agents.subagents import SpawnRequest
    from shoal.core.conversation.tools import ToolContext

MemberState: TypeAlias = Literal["created", "running", "idle", "down", "shutdown"]
"""What a member is doing."""


class TeammateSpawnResult(Struct, frozen=True, kw_only=True):
    """Teammate that has joined; its prompt is the first message in its inbox."""

    teammate: AgentId
    """`{name}@{team}`."""
    name: AgentName
    team: TeamName
    color: str | None
    resolved: ResolvedAgentSettings


class TeamMessagePostReceipt(Struct, frozen=True, kw_only=True):
    """Message that is in an inbox."""

    sender: AgentName
    to: AgentName
    color: str | None
    """Color of the recipient."""
    standing: MailDeliveryState


class TeammateStatusSnapshot(Struct, frozen=True, kw_only=True):
    """Current status of a member."""

    agent: AgentId
    """Id of the member."""
    name: AgentName
    """Name of the member."""
    kind: str
    """Name of its definition."""
    state: MemberState
    """What it is doing."""
    color: str | None
    """Color of its name in user interfaces."""
    model: str
    """Its model."""
    pid: int | None = None
    """Process id of a member that runs in a separate process."""
    pane: str = "in-process"
    """Pane id as in the roster."""
    down_cause: str = ""
    """Reason why it is down; empty if it is not."""


class TeamOperations(Protocol):
    """Operations on the session's team. Raise `AgentRequestRefused`, or `TeamStoreError` if storage fails."""

    async def create_team(
        self, name: str, *, description: str | None, kind: str | None, context: ToolContext
    ) -> TeamRoster:
        """Create a team; a name that is taken gets a number. A session leads one team at a time."""
        ...

    async def delete_team(self, context: ToolContext) -> TeamName:
        """Delete the team and end its idle members. A working member prevents the deletion."""
        ...

    async def spawn_teammate(self, request: SpawnRequest, context: ToolContext) -> TeammateSpawnResult | None:
        """Start a teammate; return None if the request is not for a teammate."""
        ...

    async def send_message(
        self, to: str, text: str, summary: str, context: ToolContext, *, fyi: bool = False
    ) -> tuple[TeamMessagePostReceipt, ...] | None:
        """Send to a member, the lead or everybody (`*`). An `fyi` message does not wake anyone.

        Returns None if no team is concerned.
        """
        ...

    async def request_shutdown(self, to: str, reason: str, context: ToolContext) -> str:
        """Ask a member to shut down and return the request id. Without an answer it ends after the grace."""
        ...

    async def answer_shutdown_request(
        self, request: str, reason: str, *, approve: bool, context: ToolContext
    ) -> None: ...

    async def answer_plan_approval_request(
        self, to: str, request: str, feedback: str, *, approve: bool, context: ToolContext
    ) -> AgentName: ...

    async def stop_member(self, name: str, context: ToolContext) -> bool:
        """Stop a member immediately; return False if no member has that name."""
        ...

    def list_members(self) -> tuple[TeammateStatusSnapshot, ...]: ...

    async def list_external_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        """List the members that other programs run; their state is the one in the roster."""
        ...
