"""Background work that a person stopped."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.agents import Glimpse
from shoal.core.shells import ShellFacts


class Stopped(Struct, frozen=True, kw_only=True):
    """Agents and commands that were stopped."""

    agents: tuple[Glimpse, ...]
    commands: tuple[ShellFacts, ...]

    @property
    def ids(self) -> list[str]:
        return [*(each.agent for each in self.agents), *(each.shell for each in self.commands)]
