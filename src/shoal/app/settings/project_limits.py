"""Detection of spending limits that a project's settings would raise above the user's."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.wire.settings_codec import AgentLimitSettings, ShoalSettings

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


def find_limits_raised_by_project(own: ShoalSettings, person: ShoalSettings) -> Iterator[str]:
    """Yield the settings that raise a limit; a limit raises nothing if the user has none."""
    for key in _LIMITS:
        if _is_higher_limit(getattr(own, key), getattr(person, key)):
            yield key
    if _has_higher_preview_threshold(own.fan_out_preview, person.fan_out_preview):
        yield "fan_out_preview"
    if _has_any_higher_agent_limit(own.agent_limits, person.agent_limits):
        yield "agent_limits"
    user_limits = person.agent_type_limits
    if any(
        _has_any_higher_agent_limit(limits, user_limits[kind])
        for kind, limits in own.agent_type_limits.items()
        if kind in user_limits
    ):
        yield "agent_type_limits"


def _is_higher_limit(project_limit: float | None, user_limit: float | None) -> bool:
    """Return True if their limit is higher. None means no statement for theirs, and no limit for mine."""
    return project_limit is not None and user_limit is not None and project_limit > user_limit


def _has_any_higher_agent_limit(project_limits: AgentLimitSettings, user_limits: AgentLimitSettings) -> bool:
    return any(
        _is_higher_limit(getattr(project_limits, key), getattr(user_limits, key))
        for key in user_limits.__struct_fields__
    )


def _has_higher_preview_threshold(project_limit: int | None, user_limit: int | None) -> bool:
    """Return True if the user is asked later or never; here None means never."""
    return user_limit is not None and (project_limit is None or project_limit > user_limit)
