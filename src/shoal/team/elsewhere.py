"""Where teammates run that do not run in their lead's process."""

from __future__ import annotations

from typing import Protocol

from shoal.core.agents import Order
from shoal.core.backends import Berth
from shoal.core.decisions import Mode
from shoal.core.roster import BackendType
from shoal.core.roster import Member as Entered


class Elsewhere(Protocol):
    async def prepare(self) -> None:
        """A team is made: start what its first teammate would have to wait for."""
        ...

    async def place(self, kind: str) -> BackendType:
        """Where a teammate of that type is to run, as things are now."""
        ...

    def foreign(self, kind: str) -> bool:
        """Whether agents of that type are another program."""
        ...

    async def start(self, entered: Entered, order: Order | None, *, mode: Mode | None, call: str) -> Berth:
        """Without an order it goes on from its transcript. Raises `AgentRefused`."""
        ...

    async def aclose(self) -> None: ...


class NowhereElse:
    """All teammates run in the lead's process."""

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
