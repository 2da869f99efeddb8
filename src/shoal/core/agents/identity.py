"""Identity of the agent that the running code serves; the async context carries it into every tool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.core.keyword_checks import CheckedStruct, check_keywords

TeammateForm: TypeAlias = Literal["in-process", "process"]
"""Where a teammate runs: in the process of its lead, or in a separate one."""


class AgentIdentity(CheckedStruct, frozen=True, kw_only=True):
    """Identity of an agent: its session, its name and type, and its place in a team."""

    session: SessionId
    """Id of the session."""
    agent: AgentId = LEAD_ID
    """Id of the agent; `lead` for the lead."""
    name: str = "lead"
    """Name of the agent."""
    team: str | None = None
    """Name of its team; None if it has none."""
    color: str | None = None
    """Color of its name in user interfaces."""
    parent: AgentId | None = None
    """Id of the agent that started it."""
    kind: str = "lead"
    """Name of its definition."""
    depth: int = 0
    """Number of agents between it and the user."""
    teammate: TeammateForm | None = None
    """Execution form of a teammate; None for a lead and for the agents that members start."""
    parent_session: SessionId | None = None
    """Session of its lead, for a teammate."""
    plan_required: bool = False
    """True if it needs an approved plan before it changes anything."""

    @property
    def is_lead(self) -> bool:
        """True for the lead of a session."""
        return self.agent == LEAD_ID and self.teammate is None

    @property
    def is_teammate(self) -> bool:
        """True for a member of a team that is not its lead."""
        return self.teammate is not None

    @property
    def is_in_process(self) -> bool:
        """True for a teammate in the process of its lead."""
        return self.teammate == "in-process"


class HasCwd(Protocol):
    """Anything with a current directory."""

    @property
    def cwd(self) -> Path:
        """Current directory."""
        ...


class _IdentityContext(Struct, frozen=True):
    """Two nested contexts: the member that owns the work, and the agent that does it."""

    member: AgentIdentity
    run: AgentIdentity
    workspace: HasCwd | None


_identity_context: ContextVar[_IdentityContext | None] = ContextVar("shoal_serving", default=None)


def current_identity() -> AgentIdentity:
    """Return the agent that the running code serves. Raises `LookupError` outside an agent."""
    return _current_identity_context().run


def current_member() -> AgentIdentity:
    """Return the lead or teammate that owns the work; for a sub-agent, the one that started it."""
    return _current_identity_context().member


def current_cwd() -> Path:
    """Return the agent's current working directory."""
    workspace = _current_identity_context().workspace
    if workspace is None:
        raise LookupError("no agent with a directory is running in this context")
    return workspace.cwd


def assume_identity(identity: AgentIdentity, workspace: HasCwd | None = None) -> None:
    """Set the identity of the running task and of every task it starts from now on."""
    _identity_context.set(_build_identity_context(identity, workspace))


@check_keywords("shoal.acting_as()")
@contextmanager
def acting_as(identity: AgentIdentity, workspace: HasCwd | None = None) -> Iterator[None]:
    """Run the block, including the tasks it starts, as this agent."""
    token = _identity_context.set(_build_identity_context(identity, workspace))
    try:
        yield
    finally:
        _identity_context.reset(token)


def _build_identity_context(identity: AgentIdentity, workspace: HasCwd | None) -> _IdentityContext:
    outer = _identity_context.get()
    is_member = identity.is_lead or identity.is_teammate or outer is None
    member = identity if is_member or outer is None else outer.member
    return _IdentityContext(member, identity, workspace or (outer.workspace if outer else None))


def _current_identity_context() -> _IdentityContext:
    context = _identity_context.get()
    if context is None:
        raise LookupError("no agent is running in this context")
    return context
