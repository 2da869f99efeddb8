"""Time limits of a session: they end everything that a program started, and refuse new work afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.session.session_cleanup import stop_all_work
from shoal.core.budgets.limits import format_limit_amount

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class SessionTimeLimit(Struct, frozen=True):
    """A deadline, or the time limit of the budget."""

    seconds: float
    """Seconds until it passes."""
    sentence: str
    """Says that it has passed."""


def find_time_limit(session: Session, deadline: float | None) -> SessionTimeLimit | None:
    """Return the limit that passes first."""
    limits: list[SessionTimeLimit] = []
    if deadline is not None:
        limits.append(
            SessionTimeLimit(session.seconds_until_deadline, f"the deadline of {deadline:g} s has passed")
        )
    left = session.budget_seconds_left
    if left is not None:
        amount = format_limit_amount("seconds", session.budget_limits.max_seconds or 0)
        limits.append(SessionTimeLimit(left, f"the time limit of {amount} for the whole run has passed"))
    return min(limits, key=lambda limit: limit.seconds, default=None)


async def stop_work_at_time_limit(session: Session, lock: asyncio.Lock, limit: SessionTimeLimit) -> None:
    """Wait for the limit, then stop all workflows, teammates and agents, and refuse new ones."""
    await session.clock.sleep(max(0.0, limit.seconds))
    session.workflows.agents.stop_starting(limit.sentence)
    await stop_all_work(session, lock, limit.sentence)
