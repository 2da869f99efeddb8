"""Handle of a running member: its tasks and the state of its shutdown."""

from __future__ import annotations

import asyncio

from shoal.core.budgets.limits import AgentSlot
from shoal.core.teams.mail_bodies import ShutdownRequestMail
from shoal.core.teams.roster import RosterEntry
from shoal.team.members.member_protocol import Member


class MemberHandle:
    def __init__(self, member: Member, entry: RosterEntry, slot: AgentSlot, *, started_at: float) -> None:
        self.member = member
        self.entry = entry
        self.slot = slot
        self.started_at = started_at
        self.run_task: asyncio.Task[None] | None = None
        self.mail_task: asyncio.Task[None] | None = None
        self.grace_task: asyncio.Task[None] | None = None
        self.approved_request: ShutdownRequestMail | None = None
        self.has_rejected = False
        """True if it has already rejected a shutdown once."""
        self.silent = False
        """True if its end is not announced to the lead."""
        self.restarts = 0
        """Number of restarts after its process died."""
        self.gone = asyncio.Event()

    def clear_shutdown_request_and_grace(self) -> None:
        self.member.shutdown_request = None
        if self.grace_task is not None:
            self.grace_task.cancel()
            self.grace_task = None
