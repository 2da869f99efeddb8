"""Commands in the background: what is known of one, how it ended, and who wants to hear of it."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.ids import AgentId

ShellOutcome: TypeAlias = Literal["completed", "failed", "killed"]


class ShellFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    shell: str
    agent: AgentId
    """Whose it is."""
    call: str
    """The tool call that started it."""
    command: str
    output: str = ""
    """The file that grows while it runs; nothing where none could be kept."""


class ShellEnd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a command in the background ended."""

    facts: ShellFacts
    status: ShellOutcome
    exit_code: int | None = None
    """Negative for a signal; None where nobody knows."""
    detail: str = ""
    """Why it ended so, where that is not plain."""
    tail: str = ""
    """The last of what it wrote."""
    quiet: bool = False
    """Whether its agent knows of it already: it ended the command itself, or is gone."""


class ShellNews(Protocol):
    """Whoever hears of commands in the background."""

    def started(self, facts: ShellFacts) -> None: ...

    def ended(self, end: ShellEnd) -> None: ...

    def stuck(self, facts: ShellFacts, tail: str) -> None:
        """It seems to wait for an answer that nobody can give. Told once of each."""
        ...

    def seen(self, facts: ShellFacts, by: AgentId, call: str) -> None:
        """A look at it showed its end."""
        ...


class Unheard:
    """Nobody wants to hear of them."""

    def started(self, facts: ShellFacts) -> None: ...

    def ended(self, end: ShellEnd) -> None: ...

    def stuck(self, facts: ShellFacts, tail: str) -> None: ...

    def seen(self, facts: ShellFacts, by: AgentId, call: str) -> None: ...
