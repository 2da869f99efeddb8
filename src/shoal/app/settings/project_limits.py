"""Detection of spending limits that a project's settings would raise above the user's."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.wire.settings import AgentLimits, Own

_LIMITS = (
    "max_turns",
    "max_budget_usd",
    "max_total_tokens",
    "max_requests",
    "max_seconds",
    "max_agents",
    "max_concurrent",
    "max_depth",
)


def raised_limits(own: Own, person: Own) -> Iterator[str]:
    """Yield the settings that raise a limit; a limit raises nothing if the user has none."""
    for key in _LIMITS:
        if _is_higher(getattr(own, key), getattr(person, key)):
            yield key
    if _asks_later(own.fan_out_preview, person.fan_out_preview):
        yield "fan_out_preview"
    if _are_higher(own.agent_limits, person.agent_limits):
        yield "agent_limits"
    mine = person.agent_type_limits
    if any(_are_higher(limits, mine[kind]) for kind, limits in own.agent_type_limits.items() if kind in mine):
        yield "agent_type_limits"


def _is_higher(theirs: float | None, mine: float | None) -> bool:
    """Return True if their limit is higher. None means no statement for theirs, and no limit for mine."""
    return theirs is not None and mine is not None and theirs > mine


def _are_higher(theirs: AgentLimits, mine: AgentLimits) -> bool:
    return any(_is_higher(getattr(theirs, key), getattr(mine, key)) for key in mine.__struct_fields__)


def _asks_later(theirs: int | None, mine: int | None) -> bool:
    """Return True if the user is asked later or never; here None means never."""
    return mine is not None and (theirs is None or theirs > mine)
