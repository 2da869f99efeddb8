"""Launches teammates outside their lead's process."""

from __future__ import annotations

from typing import Protocol

from shoal.core.agents import Order
from shoal.core.backends import Berth
from shoal.core.decisions import Mode
from shoal.core.roster import BackendType
from shoal.core.roster import Member as Entered


class Elsewhere(Protocol):
    async def prepare(self) -> None:
        """Start what the first teammate of a new team would have to wait for."""
        ...

    async def place(self, kind: str) -> BackendType:
        """Return the backend for a teammate of that type under current conditions."""
        ...

    def foreign(self, kind: str) -> bool:
        """Return True if agents of that type are a foreign program."""
        ...

    async def start(self, entered: Entered, order: Order | None, *, mode: Mode | None, call: str) -> Berth:
        """Start its process; without a request it resumes from its transcript. Raises `AgentRefused`."""
        ...

    async def aclose(self) -> None: ...


class NowhereElse:
    """Launcher of a session whose teammates all run in the lead's process."""

    async def prepare(self) -> None:
        return

    async def place(self, kind: str) -> BackendType:
        return "in-process"

    def foreign(self, kind: str) -> bool:
        return False

    async def start(self, entered: Entered, order: Order | None, *, mode: Mode | None, call: str) -> Berth:
        raise NotImplementedError

    async def aclose(self) -> None:
        return
