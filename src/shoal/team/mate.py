"""Protocols between a team and its members, wherever they run."""

from __future__ import annotations

from typing import Protocol

from shoal.core.agents import KeptWork
from shoal.core.bodies import ShutdownRequest
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId
from shoal.core.names import AgentName
from shoal.core.teams import MemberState, Teammate
from shoal.runs.endings import Ending


class Mate(Protocol):
    name: AgentName
    state: MemberState
    request: ShutdownRequest | None
    """Shutdown request that is not answered yet."""
    stopping: str
    """Reason why it is being ended; empty if it is not."""
    stays: bool
    """True if it ends with the session and can be resumed with it."""

    @property
    def id(self) -> AgentId: ...

    @property
    def started(self) -> AgentStarted: ...

    @property
    def pane(self) -> str:
        """Pane id as in the roster."""
        ...

    @property
    def is_busy(self) -> bool:
        """True if work or its end is still pending."""
        ...

    @property
    def may_claim(self) -> bool: ...

    async def at_rest(self) -> bool:
        """Return True if a member that is not busy here is also idle where it runs and has no mail."""
        ...

    def teammate(self) -> Teammate: ...

    def waits_for(self, request: str, mail: str) -> bool:
        """Return True if it may still wait for the answer to a request; `mail` is its mail id if known."""
        ...

    async def live(self) -> Ending:
        """Run until it is ended; expected ends and crashes are returned as values."""
        ...

    async def finish(self) -> KeptWork | None:
        """Release its resources after `run`; return the work it leaves in a worktree, if any."""
        ...


class Stage(Protocol):
    """Parts of the team that a member calls."""

    def show_activity(self, name: AgentName, *, active: bool) -> None:
        """Show its activity in the roster soon."""
        ...

    def asked_to_end(self, name: AgentName, request: ShutdownRequest) -> None: ...

    def changed(self) -> None: ...
