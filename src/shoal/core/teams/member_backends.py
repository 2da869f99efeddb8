"""Backends that run teammates outside the lead's process, and the handles to control them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from shoal.core.agents.subagents import ResourceRequest
from shoal.core.ids import AgentId
from shoal.core.names import AgentName, TeamName
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.teams.roster import BackendType

AGENT_ENVIRONMENT_MARKS = {
    "CLAUDECODE": "1",
    "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
}
"""Environment variables of every agent. Its identity is never among them."""


class MemberLaunchArgs(Struct, frozen=True, kw_only=True):
    """Identity and settings of a teammate process, as on the command line of our and foreign programs."""

    agent: AgentId
    """`{name}@{team}`."""
    name: AgentName
    team: TeamName
    color: str | None
    session: str
    """Session id of the lead."""
    kind: str
    model: str
    plan_mode_required: bool = False
    mode: PermissionMode | None = None
    allowed: tuple[str, ...] = ()
    disallowed: tuple[str, ...] = ()
    skip_permissions: bool = False
    max_budget_usd: float | None = None
    """Separate budget, if it does not share the lead's."""
    settings: str | None = None
    plugin_dirs: tuple[str, ...] = ()


class MemberProcessLaunchSpec(Struct, frozen=True, kw_only=True):
    """Everything needed to start a teammate process."""

    launch_args: MemberLaunchArgs
    cwd: Path
    env: Mapping[str, str]
    bootstrap: bytes = b""
    """Bootstrap message for our own program, sent over its channel and never on the command line."""
    program: tuple[str, ...] = ()
    """Command of a foreign program, before the launch arguments; empty for our own."""
    split: bool = True
    """True to split a pane off the lead's window, if there are panes; else it gets a new window."""
    resources: ResourceRequest = ResourceRequest()
    """What it needs, if it runs on a machine of a cluster."""


class MemberChannel(Protocol):
    """Channel between a lead and one teammate process; messages stay in order and complete."""

    def send(self, message: bytes) -> None:
        """Send without waiting; does nothing if the other end is gone."""
        ...

    async def receive(self) -> bytes | None:
        """Return the next message; None when the other end is gone."""
        ...

    def close(self) -> None: ...


class MemberProcess(Protocol):
    """Handle of one started teammate process."""

    @property
    def pid(self) -> int: ...

    @property
    def pane(self) -> str:
        """Pane id as in the roster: `%N`, or the backend type if there is no pane."""
        ...

    @property
    def channel(self) -> MemberChannel | None:
        """Channel to the process; None for a foreign program."""
        ...

    async def wait_until_exit(self) -> str:
        """Wait until the process is gone; return how it ended as a clause ("it was killed by signal 9")."""
        ...

    async def stop(self, *, grace: float = 2.0) -> None:
        """Send TERM to its process group, KILL after the grace; on return, process and pane no longer
        exist."""
        ...


class MemberBackend(Protocol):
    """Starts teammate processes. Raises `ProcessError`, saying what is missing and what to do."""

    @property
    def type(self) -> BackendType: ...

    async def explain_unavailable(self) -> str:
        """Return why it cannot be used here, and what to do; empty if it can."""
        ...

    async def start_setup(self) -> None:
        """Begin the setup that the first teammate would have to wait for, without waiting for it."""
        ...

    async def spawn_member(self, launch: MemberProcessLaunchSpec) -> MemberProcess: ...

    def is_process_alive(self, process: MemberProcess) -> bool: ...

    async def aclose(self) -> None:
        """Stop everything it started."""
        ...


class MemberFiles(Protocol):
    """Files of a project that teammates on other machines work on. Raises `WorktreeError`."""

    async def describe_origin(self, member: MemberLaunchArgs) -> bytes:
        """Return what a machine needs to know to name the commits that it has."""
        ...

    async def build_bundle(self, origin: bytes, known: bytes) -> bytes:
        """Return what a machine is missing that answered the origin with `known`; empty if nothing.

        Raises `msgspec.MsgspecError` for another kind of answer.
        """
        ...

    async def store_checkpoint(self, member: MemberLaunchArgs, bundle: bytes) -> None:
        """Store the work of a teammate."""
        ...


class PaneSpec(Struct, frozen=True, kw_only=True):
    """Pane to open, and the program that runs in it."""

    title: str
    color: str | None
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """Additional environment variables of the pane."""
    split: bool = True


class PaneTerminal(Struct, frozen=True, kw_only=True):
    """Terminal of a pane: its device, and the value of TERM in the pane."""

    path: str
    term: str


class PaneExit(Struct, frozen=True, kw_only=True):
    """End of a pane."""

    status: int | None = None
    """Exit status of its program, negative for a signal; None if the pane was closed, or unknown."""
    all_gone: bool = False
    """True if all panes ended with it because the server ended."""


class TerminalMultiplexer(Protocol):
    """Program that shows panes. Raises `ProcessError`, saying what is missing and what to do."""

    @property
    def type(self) -> BackendType: ...

    async def explain_unavailable(self) -> str: ...

    async def open_pane(self, pane: PaneSpec) -> str:
        """Open a pane; return its id once its program has started."""
        ...

    async def close_pane(self, pane: str) -> None:
        """Close a pane that `open_pane` created; does nothing if it is already gone."""
        ...

    async def is_pane_alive(self, pane: str) -> bool: ...

    def find_pane_pid(self, pane: str) -> int:
        """Return the pid of its program, the leader of its process group."""
        ...

    def find_pane_terminal(self, pane: str) -> PaneTerminal | None:
        """Return the terminal of a pane; None if the program does not name it."""
        ...

    async def wait_for_pane_exit(self, pane: str) -> PaneExit:
        """Wait until the pane is gone, even if another program closed it."""
        ...

    async def aclose(self) -> None:
        """Close the panes that `open_pane` created, and nothing else."""
        ...
