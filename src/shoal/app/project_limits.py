"""Which limits on spending a project's settings would raise above the person's own."""

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
    "fan_out_preview",
)


def raised_limits(given: Own, person: Own) -> Iterator[str]:
    """The settings that set a limit higher than the person's own settings do, or take it away."""
    for key in _LIMITS:
        if _higher(getattr(given, key), getattr(person, key)):
            yield key
    if _any_higher(given.agent_limits, person.agent_limits):
        yield "agent_limits"
    none = AgentLimits()
    if any(
        _any_higher(limits, person.agent_type_limits.get(kind, none))
        for kind, limits in given.agent_type_limits.items()
    ):
        yield "agent_type_limits"


def _any_higher(given: AgentLimits, person: AgentLimits) -> bool:
    return any(_higher(getattr(given, key), getattr(person, key)) for key in AgentLimits.__struct_fields__)


def _higher(given: float | None, person: float | None) -> bool:
    return person is not None and (given is None or given > person)
