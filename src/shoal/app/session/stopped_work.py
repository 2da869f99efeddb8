"""Background work that a person stopped."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.agents import AgentStatusSnapshot
from shoal.core.background_shells import BackgroundShell


class StoppedAgentsAndCommands(Struct, frozen=True, kw_only=True):
    """Agents and commands that were stopped."""

    agents: tuple[AgentStatusSnapshot, ...]
    commands: tuple[BackgroundShell, ...]

    @property
    def ids(self) -> list[str]:
        return [*(each.agent for each in self.agents), *(each.shell for each in self.commands)]
