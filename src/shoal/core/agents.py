"""Agents that agents start: what is asked for, what a run leaves, and what other agents may do with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.ids import AgentId
from shoal.core.usage import Usage

if TYPE_CHECKING:
    from shoal.core.tools import Site

End: TypeAlias = Literal["completed", "failed", "killed"]
Status: TypeAlias = Literal["running"] | End
Isolation: TypeAlias = Literal["worktree", "remote"]


OTHER_SESSION = "uds:"
"""Before the id of another live session of the same home, or the beginning of it, in an address."""
OTHER_MACHINE = "bridge:"


class Order(Struct, frozen=True, kw_only=True):
    """A call for an agent, as it was made. What is not said is for the definition, or the parent, to say."""

    description: str
    prompt: str
    kind: str | None = None
    model: str | None = None
    background: bool = False
    name: str | None = None
    team: str | None = None
    mode: str | None = None
    isolation: Isolation | None = None
    cwd: str | None = None
    effort: str | int | None = None
    only_tools: tuple[str, ...] = ()
    """Of the tools of its definition it has these alone; none is all of them."""
    lent: tuple[str, ...] = ()
    """Rules for what it may do without asking."""


class Ran(Struct, frozen=True, kw_only=True, gc=False):
    """A shell command and how it ended; None where its time was up."""

    command: str
    exit_code: int | None


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a run can show for its words, as the runtime saw it."""

    tool_calls: int = 0
    failed_calls: int = 0
    files: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    commands: tuple[Ran, ...] = ()
    """The last ones."""
    acceptance: Ran | None = None
    """The command that decides whether the work is done, as the runtime ran it."""


class KeptWork(Struct, frozen=True, kw_only=True):
    """Work that an agent left in a worktree of its own."""

    path: str
    branch: str
    ref: str = ""
    """Holds all of it, committed or not."""
    commits: int = 0


class Completion(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How a run ended. Its whole result is stored before this exists."""

    id: str
    agent: AgentId
    status: End
    kind: str
    description: str
    report_to: AgentId
    call: str
    """The tool call that started it."""
    name: str = ""
    background: bool = False
    text: str = ""
    """What it reports, at most so much as a conversation should take."""
    detail: str = ""
    """Why it ended so, where that is not plain."""
    size: int = 0
    """Characters of the whole result."""
    digest: str = ""
    """SHA-256 of the whole result."""
    result: str = ""
    """The file with the whole result, where `text` is only a part of it."""
    output: str = ""
    """The file that grew while it ran."""
    usage: Usage = Usage()
    requests: int = 0
    duration_ms: int = 0
    evidence: Evidence = Evidence()
    one_shot: bool = False
    worktree: KeptWork | None = None


class Resolved(Struct, frozen=True, kw_only=True):
    """What a spawn was given, as it was found."""

    kind: str
    model: str
    mode: str
    tools: tuple[str, ...]
    cwd: str
    source: str
    start_tokens: int = 0
    """About what its first request takes."""
    worktree: str = ""
    hooks: tuple[str, ...] = ()
    """The events at which somebody has a say in its work, each with who."""
    servers: tuple[str, ...] = ()
    """The MCP servers whose tools are among its own."""
    skills: tuple[str, ...] = ()
    """Those it knows from the start."""
    notes: tuple[str, ...] = ()


class Launched(Struct, frozen=True, kw_only=True):
    """It runs on by itself; a notification will tell how it ended."""

    agent: AgentId
    name: str
    description: str
    prompt: str
    output: Path
    resolved: Resolved
    moved: bool = False
    """It was waited for until now."""


class Glimpse(Struct, frozen=True, kw_only=True):
    """How an agent stands."""

    agent: AgentId
    kind: str
    name: str
    description: str
    status: Status
    parent: AgentId
    background: bool
    tool_calls: int
    tokens: int
    seconds: float
    doing: str = ""
    completion: Completion | None = None
    output: str = ""


class Reached(Struct, frozen=True, kw_only=True):
    """What became of a message: an agent at work hears it at its next step, one at rest is resumed."""

    to: AgentId
    name: str
    how: Literal["queued", "resumed"]
    output: str = ""


class Crew(Protocol):
    """The agents of a session, as the tools of one of them reach them. All raise `AgentRefused`."""

    async def start(self, order: Order, site: Site) -> Completion | Launched: ...

    async def send(self, to: str, text: str, summary: str, site: Site) -> tuple[Reached, ...]:
        """To a name, an id, or everyone at work (`*`)."""
        ...

    async def output(self, agent: str, *, seconds: float, site: Site) -> Glimpse:
        """How it stands, waiting for its end at most so long; who sees the end so is not notified of it."""
        ...

    async def stop(self, agent: str, site: Site) -> Glimpse: ...

    def agents(self) -> tuple[Glimpse, ...]:
        """Every one that was started, in order."""
        ...
