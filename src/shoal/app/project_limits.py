"""Which limits on spending hold when a project's settings name others than the person's own."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from shoal.wire.settings import AgentLimits, Own

_Number = TypeVar("_Number", int, float)


def held_limits(given: Own, trusted: Own) -> tuple[Own, tuple[str, ...]]:
    """A project's files may come from anyone: they may set lower limits, not higher ones."""
    types = dict.fromkeys((*trusted.agent_type_limits, *given.agent_type_limits))
    none = AgentLimits()
    held = replace(
        given,
        **{name: _lower(getattr(given, name), getattr(trusted, name)) for name in _LIMITS},
        agent_limits=_both(given.agent_limits, trusted.agent_limits),
        agent_type_limits={
            kind: _both(given.agent_type_limits.get(kind, none), trusted.agent_type_limits.get(kind, none))
            for kind in types
        },
    )
    told = (
        "The project's settings would raise limits on agents; only your own settings or a flag can. Not done."
    )
    return held, () if held == given else (told,)


_LIMITS = (
    "max_budget_usd",
    "max_total_tokens",
    "max_requests",
    "max_seconds",
    "max_agents",
    "max_concurrent",
    "max_depth",
    "fan_out_preview",
)


def _both(one: AgentLimits, other: AgentLimits) -> AgentLimits:
    return AgentLimits(
        usd=_lower(one.usd, other.usd),
        tokens=_lower(one.tokens, other.tokens),
        requests=_lower(one.requests, other.requests),
        seconds=_lower(one.seconds, other.seconds),
    )


def _lower(one: _Number | None, other: _Number | None) -> _Number | None:
    return min((value for value in (one, other) if value is not None), default=None)
