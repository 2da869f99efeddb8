"""An agent made ready for a job, and who makes it so."""

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
    """What it is to do; None where that waits in its queue."""
    delivered: frozenset[str] = frozenset()
    """What its transcript shows it has got already."""
    answered: frozenset[str] = frozenset()
    """Its calls that have their results there."""
    one_shot: bool = False
    witness: Witness | None = None
    """Who has seen it work, for a teammate."""
    check: Check | None = None
    """Runs the command that decides whether the work is done: how it ended, and the end of what it wrote."""
    commits: Callable[[], Awaitable[tuple[str, ...]]] = _no_commits
    finish: Callable[[], Awaitable[KeptWork | None]] = _nothing_left
    """Gives back what it was given; the work it leaves in a worktree, if any."""

    def knows(self, item: Item) -> bool:
        """Whether what waits for the agent is in its transcript already."""
        return item.id in self.delivered or item.instead_of in self.answered


class Seat(Struct, frozen=True, kw_only=True):
    """The place in a team of an agent that is to be a member of it."""

    team: str
    name: str
    color: str | None
    mode: Mode | None
    """What the call for it asks for; never wider than what the lead has."""
    section: str
    """What its system prompt says about the team."""
    desk: Desk
    """Takes its questions to the lead."""
    leads: bool = False
    """Whether it may lead a team of its own."""
    form: Form = "in-process"


class Newcomer(Struct, frozen=True, kw_only=True):
    """Who is to be made ready, for whom, and who watches it."""

    agent: AgentId
    parent: Agent
    call: str
    witness: Witness
    seat: Seat | None = None
    """Of a teammate; None for an agent for one job."""


class Outfitter(Protocol):
    """All raise `AgentRefused`, naming what cannot be had; then nothing is left behind."""

    def witness(self, agent: AgentId) -> Witness: ...

    async def fresh(self, order: Order, newcomer: Newcomer) -> Outfit: ...

    async def fork(self, order: Order, newcomer: Newcomer) -> Outfit:
        """A copy of the parent: it goes on from the reply that asks for it, with all the parent has."""
        ...

    async def again(self, newcomer: Newcomer) -> Outfit:
        """As it was when it ended, or when its process died: from its transcript."""
        ...

    def output(self, agent: AgentId) -> Path: ...
