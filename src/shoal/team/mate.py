"""A member as its team has it, wherever it runs."""

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
    """To shut down, not answered yet."""
    stopping: str
    """Why it is being ended, if it is."""
    stays: bool
    """It ends with the session, and is taken up again with it."""

    @property
    def id(self) -> AgentId: ...

    @property
    def started(self) -> AgentStarted: ...

    @property
    def pane(self) -> str:
        """As the roster names it."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether something is still to come of it: work, or its end."""
        ...

    @property
    def may_claim(self) -> bool: ...

    async def at_rest(self) -> bool:
        """Asked of one that is not busy: whether it is so where it runs, and has no mail to take."""
        ...

    def teammate(self) -> Teammate: ...

    def waits_for(self, request: str, mail: str) -> bool:
        """Whether it may still wait for the answer to what it asked by this mail, if it is known by which."""
        ...

    async def live(self) -> Ending:
        """Until it is ended; expected ends are values, and so is a crash."""
        ...

    async def finish(self) -> KeptWork | None:
        """After its life: gives back what it was given; the work it leaves in a worktree, if any."""
        ...


class Stage(Protocol):
    """What a member needs of its team."""

    def show_activity(self, name: AgentName, *, active: bool) -> None:
        """In the roster, before long."""
        ...

    def asked_to_end(self, name: AgentName, request: ShutdownRequest) -> None: ...

    def changed(self) -> None: ...
