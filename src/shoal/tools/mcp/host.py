"""Context of MCP connections, the calls that use them, and their errors."""

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
"""Limit of a call that keeps reporting progress, as a multiple of its deadline."""


class LinkLost(ShoalError):
    """The connection is gone; the text is the reason, phrased as the rest of a clause."""


class LinkRefused(ShoalError):
    """The server answered with a protocol error; the text is its message."""


class NeedsLogin(ShoalError):
    """The server requires a login."""


class Tokens(Protocol):
    """Stored login of one server, kept between sessions."""

    def read(self) -> bytes:
        """Return the stored bytes, empty if there was no login."""
        ...

    def write(self, content: bytes) -> None: ...


class Host(Struct, frozen=True, kw_only=True):
    """Dependencies and limits shared by all MCP servers of a session."""

    processes: Processes
    clock: Clock
    root: Path
    """Project root."""
    env: Mapping[str, str]
    """Environment of server programs; also expands variables in configurations."""
    logs: Path
    """Directory of the logs of server standard error."""
    deadline: float
    """Seconds that one call may take without reporting progress."""
    note: Callable[[str], None]
    tokens: Callable[[str, str], Tokens]
    """Returns the token store for a server's name and address."""
    version: str = ""
    """Our version, sent to servers."""


class ListedTool(Struct, frozen=True, kw_only=True):
    name: str
    """Name on the server."""
    schema: ToolSchema
    reads_only: bool


class Offer(Struct, frozen=True, kw_only=True):
    """Tools, prompts and resources that a server offers."""

    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[OfferedPrompt, ...] = ()
    prompt_names: Mapping[str, str] = {}
    """The server's own prompt names, by ours."""
    resources: bool = False
    version: str = ""
    notes: tuple[str, ...] = ()
    """Reasons why parts of it cannot be used."""


class Caller(Struct, kw_only=True):
    """One call in progress: who is asked the server's questions, and how long the call may still take."""

    site: Site
    deadline: Deadline
    seconds: float
    last: float
    """Time at which the call ends, whatever progress it reports."""
    questions: int = 0

    def goes_on(self) -> None:
        """Extend the deadline after a sign of progress."""
        self.deadline.extend(min(self.seconds, self.last - self.site.clock.monotonic()))

    def waits_for_a_person(self) -> None:
        self.deadline.extend(float("inf"))

    def question_id(self) -> str:
        self.questions += 1
        return f"{self.site.call_id}-{self.questions}"
