"""Identity of the agent that the running code serves; the async context carries it into every tool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.ids import LEAD, AgentId, SessionId

Form: TypeAlias = Literal["in-process", "process"]


class Identity(Struct, frozen=True, kw_only=True):
    session: SessionId
    agent: AgentId = LEAD
    name: str = "lead"
    team: str | None = None
    color: str | None = None
    parent: AgentId | None = None
    kind: str = "lead"
    depth: int = 0
    """Number of agents between it and the person."""
    teammate: Form | None = None
    """Execution form of a teammate; None for a lead and for the agents that members start."""
    parent_session: SessionId | None = None
    """Session of its lead, for a teammate."""
    plan_required: bool = False
    """True if it needs an approved plan before it changes anything."""

    @property
    def is_lead(self) -> bool:
        return self.agent == LEAD and self.teammate is None

    @property
    def is_teammate(self) -> bool:
        return self.teammate is not None

    @property
    def is_in_process(self) -> bool:
        """True for a teammate in the process of its lead."""
        return self.teammate == "in-process"


class Place(Protocol):
    @property
    def cwd(self) -> Path: ...


class _Serving(Struct, frozen=True):
    """Two nested contexts: the member that owns the work, and the agent that does it."""

    member: Identity
    run: Identity
    place: Place | None


_serving: ContextVar[_Serving | None] = ContextVar("shoal_serving", default=None)


def current_identity() -> Identity:
    """Return the agent that the running code serves. Raises `LookupError` outside of one."""
    return _current().run


def current_member() -> Identity:
    """Return the lead or teammate that owns the work; for a sub-agent, the one that started it."""
    return _current().member


def current_cwd() -> Path:
    """Return the agent's current working directory."""
    place = _current().place
    if place is None:
        raise LookupError("no agent with a directory is running in this context")
    return place.cwd


def assume(identity: Identity, place: Place | None = None) -> None:
    """Set the identity of the running task and of every task it starts from now on."""
    _serving.set(_serving_as(identity, place))


@contextmanager
def acting_as(identity: Identity, place: Place | None = None) -> Iterator[None]:
    """Run the block, including the tasks it starts, as this agent."""
    token = _serving.set(_serving_as(identity, place))
    try:
        yield
    finally:
        _serving.reset(token)


def _serving_as(identity: Identity, place: Place | None) -> _Serving:
    before = _serving.get()
    is_member = identity.is_lead or identity.is_teammate or before is None
    member = identity if is_member or before is None else before.member
    return _Serving(member, identity, place or (before.place if before else None))


def _current() -> _Serving:
    serving = _serving.get()
    if serving is None:
        raise LookupError("no agent is running in this context")
    return serving
