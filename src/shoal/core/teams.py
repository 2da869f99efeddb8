"""Team operations: the port through which tools use the team that a session leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.agents import Resolved
from shoal.core.ids import AgentId
from shoal.core.mail import Standing
from shoal.core.names import AgentName, TeamName
from shoal.core.roster import Team

if TYPE_CHECKING:
    from shoal.core.agents import Order
    from shoal.core.tools import Site

MemberState: TypeAlias = Literal["created", "running", "idle", "shutdown"]


class Spawned(Struct, frozen=True, kw_only=True):
    """Teammate that has joined; its prompt is the first message in its inbox."""

    teammate: AgentId
    """`{name}@{team}`."""
    name: AgentName
    team: TeamName
    color: str | None
    resolved: Resolved


class Posted(Struct, frozen=True, kw_only=True):
    """Message that is in an inbox."""

    sender: AgentName
    to: AgentName
    color: str | None
    """Color of the recipient."""
    standing: Standing


class Teammate(Struct, frozen=True, kw_only=True):
    """Current status of a member."""

    agent: AgentId
    name: AgentName
    kind: str
    state: MemberState
    color: str | None
    model: str
    pid: int | None = None
    """Process id of a member that runs in a separate process."""
    pane: str = "in-process"
    """Pane id as in the roster."""


class Teams(Protocol):
    """Operations on the session's team. Raise `AgentRequestRefused`, or `TeamStoreError` if storage fails."""

    async def create(self, name: str, *, description: str | None, kind: str | None, site: Site) -> Team:
        """Create a team; a name that is taken gets a number. A session leads one team at a time."""
        ...

    async def delete(self, site: Site) -> TeamName:
        """Delete the team and end its idle members. A working member prevents the deletion."""
        ...

    async def spawn(self, order: Order, site: Site) -> Spawned | None:
        """Start a teammate; return None if the request is not for a teammate."""
        ...

    async def send(
        self, to: str, text: str, summary: str, site: Site, *, fyi: bool = False
    ) -> tuple[Posted, ...] | None:
        """Send to a member, the lead or everybody (`*`). An `fyi` message wakes nobody.

        Returns None if no team is concerned.
        """
        ...

    async def ask_to_end(self, to: str, reason: str, site: Site) -> str:
        """Ask a member to shut down and return the request id. Without an answer it ends after the grace."""
        ...

    async def answer_end(self, request: str, reason: str, *, approve: bool, site: Site) -> None: ...

    async def answer_plan(
        self, to: str, request: str, feedback: str, *, approve: bool, site: Site
    ) -> AgentName: ...

    async def stop(self, name: str, site: Site) -> bool:
        """Stop a member immediately; return False if no member has that name."""
        ...

    def members(self) -> tuple[Teammate, ...]: ...
