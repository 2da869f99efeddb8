"""The team that a session leads, as the tools of its agents reach it."""

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
    """A teammate that has joined; its prompt is the first message of its inbox."""

    teammate: AgentId
    """`{name}@{team}`."""
    name: AgentName
    team: TeamName
    color: str | None
    resolved: Resolved


class Posted(Struct, frozen=True, kw_only=True):
    """A message that is in somebody's inbox."""

    sender: AgentName
    to: AgentName
    color: str | None
    """Of whom it is for."""
    standing: Standing


class Teammate(Struct, frozen=True, kw_only=True):
    """How a member stands."""

    agent: AgentId
    name: AgentName
    kind: str
    state: MemberState
    color: str | None
    model: str
    pid: int | None = None
    """Of a process of its own."""
    pane: str = "in-process"
    """As the roster names it."""


class Teams(Protocol):
    """All raise `AgentRefused`, or a `RecordError` where the record between agents cannot be had."""

    async def create(self, name: str, *, description: str | None, kind: str | None, site: Site) -> Team:
        """A name that is taken gets a number; a session leads one team at a time."""
        ...

    async def delete(self, site: Site) -> TeamName:
        """Idle members end; one at work keeps the team."""
        ...

    async def spawn(self, order: Order, site: Site) -> Spawned | None:
        """None where the call is not for a teammate."""
        ...

    async def send(
        self, to: str, text: str, summary: str, site: Site, *, fyi: bool = False
    ) -> tuple[Posted, ...] | None:
        """To a member, the lead or everybody (`*`), whom an `fyi` does not wake; None where no team is
        concerned."""
        ...

    async def ask_to_end(self, to: str, reason: str, site: Site) -> str:
        """Ask a member to shut down; the request's id. Without an answer it is ended after the grace."""
        ...

    async def answer_end(self, request: str, reason: str, *, approve: bool, site: Site) -> None: ...

    async def answer_plan(
        self, to: str, request: str, feedback: str, *, approve: bool, site: Site
    ) -> AgentName: ...

    async def stop(self, name: str, site: Site) -> bool:
        """End a member whatever it does; False where there is none of that name."""
        ...

    def members(self) -> tuple[Teammate, ...]: ...
