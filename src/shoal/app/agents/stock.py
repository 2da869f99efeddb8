"""What every agent of a session is made from."""

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
    """What every agent of a session is made from."""

    files: AgentFiles
    outputs: Path
    definition: Callable[[str], Definition]
    """Raises `UnknownAgent` or `BadDefinition`."""
    model: Callable[[Agent, Order, Definition], Awaitable[Model]]
    system: Callable[[str, Path, bool], str]
    """The whole system prompt, from an agent's own part of it, where it works, and whether it is told what
    instruction files say."""
    memory: Callable[[Definition, Toolset, Iterable[str]], AgentMemory | None]
    """Raises `AgentRefused`."""
    known: Callable[[Definition], Preloaded]
    """What its definition lets an agent know from the start. Raises `AgentRefused`."""
    tools: Mapping[str, Tool]
    equip: Callable[[Definition, Sequence[str]], Awaitable[Kit]]
    """Those that one agent chooses from, beside the tools it had before; raises `AgentRefused`."""
    of_lead: Collection[str]
    """Tools that the lead alone has, and its forks see."""
    housing: Housing
    hooks: SessionHooks
    bounds: Bounds
    purse: Purse
    queue: Queue
    accept: Callable[[str, Agent], Awaitable[tuple[Ran, str]]]
    """Runs an acceptance command for an agent."""
    left: Callable[[AgentId], Awaitable[None]]
    """Told when an agent has ended, so that nothing of it is left."""
    tell: Tell
    clock: Clock
    ids: Ids
