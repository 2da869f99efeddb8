"""What a tool is, what it may touch, and what it gives back."""

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
"""Names that models know for tools that have another name here."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What a tool gives back: text (and pictures) for the model, `data` for programs."""

    content: str | tuple[Text | Image, ...]
    is_error: bool = False
    data: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """Without the pictures."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


def failed(why: str) -> Outcome:
    """A failure the model can act on."""
    return Outcome(content=why, is_error=True)


def all_readable(top: str) -> Callable[[str], bool]:
    return lambda _: False


class Site(Struct, frozen=True, kw_only=True):
    """Everything one tool call may reach."""

    call_id: str
    calls: tuple[ToolUse, ...] = ()
    """All calls of the message that this one is part of."""
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
    """For a search below a directory: whether a file there is not for it. All are real paths."""
    sandbox: Sandbox | None = None
    """Holds the commands of this agent, in place of what holds those of the session."""
    hooks: Hooks = NO_HOOKS


class Tool(Protocol):
    @property
    def schema(self) -> ToolSchema: ...

    @property
    def reads_only(self) -> bool:
        """Whether a call changes nothing."""
        ...

    @property
    def side_by_side(self) -> bool:
        """Whether a call may run beside its neighbours; reads may, and what keeps its own order."""
        ...

    @property
    def deadline(self) -> float | None:
        """Seconds one call may take; None where the tool keeps its own deadline or waits for a person."""
        ...

    async def run(self, arguments: Mapping[str, Any], site: Site) -> Outcome:
        """Arguments of the wrong shape are a failed outcome that names them, not an exception."""
        ...
