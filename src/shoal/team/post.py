"""A member at its post: what keeps it going, and how it is to end."""

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
        """It has refused to shut down once already."""
        self.silent = False
        """The lead need not be told of its end."""
        self.revivals = 0
        """How often its process died and it went on in another."""
        self.gone = asyncio.Event()

    def end_grace(self) -> None:
        self.member.request = None
        if self.grace is not None:
            self.grace.cancel()
            self.grace = None
