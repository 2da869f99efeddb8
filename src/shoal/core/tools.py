"""Tool port: a tool, the context of a call, and its output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.hooks import NO_HOOKS, Hooks
from shoal.core.identity import Identity
from shoal.core.messages import Image, Text, ToolUse
from shoal.core.requests import ToolSchema

if TYPE_CHECKING:
    from shoal.core.clock import Clock
    from shoal.core.ids import Ids
    from shoal.core.ports import Desk, Processes, Results, Workspace
    from shoal.core.sandbox import Sandbox

Progress: TypeAlias = Callable[[str], Awaitable[None]]


ALIASES = {"Task": "Agent"}
"""Other names that models use for tools, mapped to the names here."""


class Outcome(Struct, frozen=True, kw_only=True):
    """Output of a tool: text (and images) for the model, `data` for programs."""

    content: str | tuple[Text | Image, ...]
    is_error: bool = False
    data: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """Text without the images."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


def failed(why: str) -> Outcome:
    """Create an error output that the model can act on."""
    return Outcome(content=why, is_error=True)


def all_readable(top: str) -> Callable[[str], bool]:
    return lambda _: False


class Site(Struct, frozen=True, kw_only=True):
    """Everything one tool call may use."""

    call_id: str
    calls: tuple[ToolUse, ...] = ()
    """All calls of the message that contains this one."""
    agent: Identity
    workspace: Workspace
    processes: Processes
    desk: Desk
    results: Results
    clock: Clock
    ids: Ids
    progress: Progress
    env: Mapping[str, str]
    unreadable: Callable[[str], Callable[[str], bool]] = all_readable
    """Returns a filter for a search below a directory: True for files it may not read. All are real paths."""
    sandbox: Sandbox | None = None
    """Sandbox of this agent, instead of the session's."""
    hooks: Hooks = NO_HOOKS


class Tool(Protocol):
    @property
    def schema(self) -> ToolSchema: ...

    @property
    def reads_only(self) -> bool:
        """True if a call changes nothing."""
        ...

    @property
    def side_by_side(self) -> bool:
        """True if a call may run concurrently with others: reads, and tools that order themselves."""
        ...

    @property
    def deadline(self) -> float | None:
        """Seconds that one call may take; None if the tool has its own deadline or waits for a person."""
        ...

    async def run(self, arguments: Mapping[str, Any], site: Site) -> Outcome:
        """Run a call. Invalid arguments give an error output that names them, not an exception."""
        ...
