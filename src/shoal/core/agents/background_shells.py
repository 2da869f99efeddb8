"""Background shell commands: their facts, their results, and the observer port."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.ids import AgentId

ShellOutcome: TypeAlias = Literal["completed", "failed", "killed"]
"""How a background command ended."""


class BackgroundShell(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that runs in the background."""

    shell: str
    """Id of the command."""
    agent: AgentId
    """Agent that owns it."""
    call: str
    """Tool call that started it."""
    command: str
    """The command."""
    output: str = ""
    """Output file written while it runs; empty if none could be created."""


class BackgroundShellResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of a background command."""

    facts: BackgroundShell
    """The command."""
    status: ShellOutcome
    """How it ended."""
    exit_code: int | None = None
    """Negative for a signal; None if unknown."""
    detail: str = ""
    """Reason for the end, if it is not obvious."""
    tail: str = ""
    """End of its output."""
    quiet: bool = False
    """True if its agent needs no notification, because it ended the command itself or has ended."""


class BackgroundShellObserver(Protocol):
    """Observer of background commands."""

    def on_started(self, facts: BackgroundShell) -> None: ...

    def on_ended(self, end: BackgroundShellResult) -> None: ...

    def on_waiting_for_input(self, facts: BackgroundShell, tail: str) -> None:
        """Report, once per command, that it seems to be waiting for input that nobody can give."""
        ...

    def on_end_shown_to_agent(self, facts: BackgroundShell, by: AgentId, call: str) -> None:
        """Report that a status check showed its end."""
        ...


class NullBackgroundShellObserver:
    """Observer that ignores everything."""

    def on_started(self, facts: BackgroundShell) -> None: ...

    def on_ended(self, end: BackgroundShellResult) -> None: ...

    def on_waiting_for_input(self, facts: BackgroundShell, tail: str) -> None: ...

    def on_end_shown_to_agent(self, facts: BackgroundShell, by: AgentId, call: str) -> None: ...
