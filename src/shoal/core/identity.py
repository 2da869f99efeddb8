"""Which agent the running code serves; it travels with the async context into every tool."""

from __future__ import annotations

from contextvars import ContextVar

from msgspec import Struct

from shoal.core.ids import LEAD, AgentId, SessionId


class Identity(Struct, frozen=True, kw_only=True):
    session: SessionId
    agent: AgentId = LEAD
    name: str = "lead"
    team: str | None = None
    color: str | None = None
    parent: AgentId | None = None
    kind: str = "lead"
    depth: int = 0
    """How many agents stand between it and the person."""

    @property
    def is_lead(self) -> bool:
        return self.agent == LEAD

    @property
    def is_teammate(self) -> bool:
        """Whether it is a member of a team, rather than an agent that one of a team started."""
        return self.team is not None and self.agent == f"{self.name}@{self.team}"


_current: ContextVar[Identity | None] = ContextVar("shoal_identity", default=None)


def current_identity() -> Identity:
    identity = _current.get()
    if identity is None:
        raise LookupError("no agent is running in this context")
    return identity


def assume(identity: Identity) -> None:
    """Give the running task, and every task it starts from now on, this identity."""
    _current.set(identity)
