"""Where a teammate runs that does not run in its lead's process, and how it is kept in hand there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from shoal.core.decisions import Mode
from shoal.core.ids import AgentId
from shoal.core.names import AgentName, TeamName
from shoal.core.roster import BackendType

MARKS = {
    "CLAUDECODE": "1",
    "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
}
"""In the environment of every agent. Who it is never stands there."""


class Papers(Struct, frozen=True, kw_only=True):
    """Who a teammate's process is, as its command line says it to ours and to foreign programs alike."""

    agent: AgentId
    """`{name}@{team}`."""
    name: AgentName
    team: TeamName
    color: str | None
    session: str
    """Of the lead."""
    kind: str
    model: str
    plan_mode_required: bool = False
    mode: Mode | None = None
    allowed: tuple[str, ...] = ()
    disallowed: tuple[str, ...] = ()
    skip_permissions: bool = False
    max_budget_usd: float | None = None
    """Of its own, where it shares no purse with its lead."""
    settings: str | None = None
    plugin_dirs: tuple[str, ...] = ()


class Wanted(Struct, frozen=True, kw_only=True):
    """A teammate to be started."""

    papers: Papers
    cwd: Path
    env: Mapping[str, str]
    brief: bytes = b""
    """What one of ours is handed beside its papers, by its line and never by its command line."""
    program: tuple[str, ...] = ()
    """The words of a foreign program, before its papers; none for one of ours."""
    split: bool = True
    """Whether a pane is split off the lead's window, where there are panes; else it gets a window."""


class Line(Protocol):
    """A wire between a lead and one teammate's process; messages keep their order, and none is cut."""

    def send(self, message: bytes) -> None:
        """Never waits; to one whose other end is gone it does nothing."""
        ...

    async def receive(self) -> bytes | None:
        """The next message; None when the other end is gone."""
        ...

    def close(self) -> None: ...


class Berth(Protocol):
    """The place of one teammate that was started."""

    @property
    def pid(self) -> int: ...

    @property
    def pane(self) -> str:
        """As the roster names it: `%N`, or the backend's type where there is no pane."""
        ...

    @property
    def line(self) -> Line | None:
        """None to a foreign program."""
        ...

    async def over(self) -> str:
        """Until its process is gone; how it ended, as a clause ("it was killed by signal 9")."""
        ...

    async def stop(self, *, grace: float = 2.0) -> None:
        """TERM to its process group, KILL after the grace; its process and its pane are gone then."""
        ...


class Backend(Protocol):
    """Raises `ProcessError`, saying what is missing and what to do."""

    @property
    def type(self) -> BackendType: ...

    async def unavailable(self) -> str:
        """Why it cannot be used here, and what to do; empty where it can."""
        ...

    async def prepare(self) -> None:
        """Start what the first teammate would have to wait for, without waiting for it to be there."""
        ...

    async def spawn(self, wanted: Wanted) -> Berth: ...

    def alive(self, berth: Berth) -> bool: ...

    async def aclose(self) -> None:
        """End everything it started."""
        ...


class Pane(Struct, frozen=True, kw_only=True):
    """A pane to be opened, and what runs in it."""

    title: str
    color: str | None
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """Set in the pane, beside what it has of its own."""
    split: bool = True


class PaneEnd(Struct, frozen=True, kw_only=True):
    """How a pane went away."""

    status: int | None = None
    """Of what ran in it, negative for a signal; None where the pane was closed, or nobody knows."""
    all_gone: bool = False
    """Every pane of this program went with it: its server ended."""


class Panes(Protocol):
    """A program that shows panes. Raises `ProcessError`, saying what is missing and what to do."""

    @property
    def type(self) -> BackendType: ...

    async def unavailable(self) -> str: ...

    async def open(self, pane: Pane) -> str:
        """Its id, once what runs in it has been started."""
        ...

    async def close(self, pane: str) -> None:
        """One that `open` made; one that is gone already is no error."""
        ...

    async def alive(self, pane: str) -> bool: ...

    def pid(self, pane: str) -> int:
        """Of what runs in it: the leader of its process group."""
        ...

    async def over(self, pane: str) -> PaneEnd:
        """Until it is gone, whoever closed it."""
        ...

    async def aclose(self) -> None:
        """Close what `open` made, and nothing else."""
        ...
