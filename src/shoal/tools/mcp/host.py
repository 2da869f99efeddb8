"""What a connection to an MCP server stands on, who calls through it, and how it can fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from shoal.core.clock import Clock, Deadline
from shoal.core.errors import ShoalError
from shoal.core.mcp import OfferedPrompt
from shoal.core.ports import Processes
from shoal.core.requests import ToolSchema
from shoal.core.tools import Site

IN_ALL = 20
"""How many times its deadline a call may take that keeps telling how far it is."""


class LinkLost(ShoalError):
    """There is no connection any more; the text is the reason, as the rest of a clause."""


class LinkRefused(ShoalError):
    """The server answered with an error of the protocol; the text is what it says."""


class NeedsLogin(ShoalError):
    """The server lets nobody in without a login."""


class Tokens(Protocol):
    """What the login to one server gave, kept between sessions."""

    def read(self) -> bytes:
        """Empty where there was no login."""
        ...

    def write(self, content: bytes) -> None: ...


class Host(Struct, frozen=True, kw_only=True):
    """The same for all servers of a session."""

    processes: Processes
    clock: Clock
    root: Path
    """The project."""
    env: Mapping[str, str]
    """What programs find in their environment, and what variables of configurations mean."""
    logs: Path
    """The directory of what servers write to their standard error."""
    deadline: float
    """Seconds that one call may take without a sign of life."""
    note: Callable[[str], None]
    tokens: Callable[[str, str], Tokens]
    """By the name and the address of a server."""
    version: str = ""
    """Ours, for the servers."""


class ListedTool(Struct, frozen=True, kw_only=True):
    name: str
    """As the server knows it."""
    schema: ToolSchema
    reads_only: bool


class Offer(Struct, frozen=True, kw_only=True):
    """What a server has."""

    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[OfferedPrompt, ...] = ()
    prompt_names: Mapping[str, str] = {}
    """Its own names of them, by ours."""
    resources: bool = False
    version: str = ""
    notes: tuple[str, ...] = ()
    """What of it cannot be used, and why."""


class Caller(Struct, kw_only=True):
    """One call at work: whom a question of the server is for, and how long it may still take."""

    site: Site
    deadline: Deadline
    seconds: float
    last: float
    """When it ends whatever it tells."""
    questions: int = 0

    def goes_on(self) -> None:
        """A sign of life."""
        self.deadline.extend(min(self.seconds, self.last - self.site.clock.monotonic()))

    def waits_for_a_person(self) -> None:
        self.deadline.extend(float("inf"))

    def question_id(self) -> str:
        self.questions += 1
        return f"{self.site.call_id}-{self.questions}"
