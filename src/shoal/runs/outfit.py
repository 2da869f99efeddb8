"""Prepared agents, and the port that prepares them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from shoal.agent.agent import Agent
from shoal.core.agents import KeptWork, Order, Ran, Resolved
from shoal.core.arrivals import Item
from shoal.core.events import AgentStarted
from shoal.core.identity import Form
from shoal.core.ids import AgentId
from shoal.core.messages import Message
from shoal.core.permissions import Mode
from shoal.core.ports import Desk
from shoal.runs.witness import Witness

Check: TypeAlias = Callable[[], Awaitable[tuple[Ran, str]]]


async def _nothing_left() -> KeptWork | None:
    return None


async def _no_commits() -> tuple[str, ...]:
    return ()


class Outfit(Struct, frozen=True, kw_only=True):
    agent: Agent
    started: AgentStarted
    resolved: Resolved
    prompt: Message | None
    """Its first prompt; None if that waits in its queue."""
    delivered: frozenset[str] = frozenset()
    """Ids of the items that its transcript already contains."""
    answered: frozenset[str] = frozenset()
    """Ids of the calls that have results in its transcript."""
    one_shot: bool = False
    witness: Witness | None = None
    """Monitor of a teammate."""
    check: Check | None = None
    """Runs the acceptance command; returns its result and the end of its output."""
    commits: Callable[[], Awaitable[tuple[str, ...]]] = _no_commits
    finish: Callable[[], Awaitable[KeptWork | None]] = _nothing_left
    """Releases its resources; returns the work it leaves in a worktree, if any."""

    def knows(self, item: Item) -> bool:
        """Return True if the item is already in the agent's transcript."""
        return item.id in self.delivered or item.instead_of in self.answered


class Seat(Struct, frozen=True, kw_only=True):
    """Team membership of an agent that will be a teammate."""

    team: str
    name: str
    color: str | None
    mode: Mode | None
    """Requested mode; never wider than the lead's."""
    section: str
    """Section of its system prompt about the team."""
    desk: Desk
    """Forwards its questions to the lead."""
    leads: bool = False
    """True if it may lead another team."""
    form: Form = "in-process"


class Newcomer(Struct, frozen=True, kw_only=True):
    """Agent to prepare, with its parent and its monitor."""

    agent: AgentId
    parent: Agent
    call: str
    witness: Witness
    seat: Seat | None = None
    """Assignment of a teammate; None for an agent for one job."""


class Outfitter(Protocol):
    """Prepares agents. On `AgentRequestRefused`, which names what is unavailable, nothing is left behind."""

    def witness(self, agent: AgentId) -> Witness: ...

    async def fresh(self, order: Order, newcomer: Newcomer) -> Outfit: ...

    async def fork(self, order: Order, newcomer: Newcomer) -> Outfit:
        """Prepare a copy of the parent that continues from the requesting reply with all the parent has."""
        ...

    async def again(self, newcomer: Newcomer) -> Outfit:
        """Prepare an ended agent from its transcript, also after its process died."""
        ...

    def output(self, agent: AgentId) -> Path: ...
