"""Handle of a running member: its tasks and the state of its shutdown."""

from __future__ import annotations

import asyncio

from shoal.core.bodies import ShutdownRequest
from shoal.core.caps import Started
from shoal.core.roster import Member as Entered
from shoal.team.mate import Mate


class Post:
    def __init__(self, member: Mate, entered: Entered, counted: Started, *, since: float) -> None:
        self.member = member
        self.entered = entered
        self.counted = counted
        self.since = since
        self.life: asyncio.Task[None] | None = None
        self.pump: asyncio.Task[None] | None = None
        self.grace: asyncio.Task[None] | None = None
        self.approved: ShutdownRequest | None = None
        self.rejected = False
        """True if it has already rejected a shutdown once."""
        self.silent = False
        """True if its end is not announced to the lead."""
        self.revivals = 0
        """Number of restarts after its process died."""
        self.gone = asyncio.Event()

    def end_grace(self) -> None:
        self.member.request = None
        if self.grace is not None:
            self.grace.cancel()
            self.grace = None
