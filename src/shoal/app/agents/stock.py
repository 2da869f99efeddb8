"""Services from which every agent of a session is created."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.agent.agent import Agent, Bounds, Tell
from shoal.app.agents.files import AgentFiles
from shoal.app.agents.memory import AgentMemory
from shoal.app.hooks.hooking import SessionHooks
from shoal.app.mcp.servers import Kit
from shoal.app.quarters.quarters import Housing
from shoal.app.skills.invoking import Preloaded
from shoal.core.agents import Order, Ran
from shoal.core.budget import Purse
from shoal.core.clock import Clock
from shoal.core.definitions import Definition, Toolset
from shoal.core.ids import AgentId, Ids
from shoal.core.ports import Model
from shoal.core.tools import Tool
from shoal.runs.queue import Queue


class Stock(Struct, frozen=True, kw_only=True):
    """Services from which every agent of a session is created."""

    files: AgentFiles
    outputs: Path
    definition: Callable[[str], Definition]
    """Raises `UnknownAgent` or `BadDefinition`."""
    model: Callable[[Agent, Order, Definition], Awaitable[Model]]
    system: Callable[[str, Path, bool], str]
    """Builds the system prompt from an agent's own part, its directory, and whether to add instructions."""
    memory: Callable[[Definition, Toolset, Iterable[str]], AgentMemory | None]
    """Raises `AgentRefused`."""
    known: Callable[[Definition], Preloaded]
    """Preloads the skills of a definition. Raises `AgentRefused`."""
    tools: Mapping[str, Tool]
    equip: Callable[[Definition, Sequence[str]], Awaitable[Kit]]
    """Opens the tools of one agent, given the tools it had before. Raises `AgentRefused`."""
    of_lead: Collection[str]
    """Tools that only the lead has, and its forks see."""
    housing: Housing
    hooks: SessionHooks
    bounds: Bounds
    purse: Purse
    queue: Queue
    accept: Callable[[str, Agent], Awaitable[tuple[Ran, str]]]
    """Runs an acceptance command for an agent."""
    left: Callable[[AgentId], Awaitable[None]]
    """Cleans up after an agent has ended."""
    tell: Tell
    clock: Clock
    ids: Ids
