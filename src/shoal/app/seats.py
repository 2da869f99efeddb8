"""What a seat in a team changes about an agent: its tools, its mode and its system prompt."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from shoal.core.definitions import Definition, Toolset
from shoal.core.identity import Identity
from shoal.core.permissions import Mode
from shoal.policy.authority import narrowed
from shoal.policy.permissions import RulePermissions
from shoal.runs.outfit import Seat

_TEAM_TOOLS = ("SendMessage", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate")
"""Those a teammate has, whatever its definition says."""


def seated(identity: Identity, seat: Seat | None) -> Identity:
    if seat is None:
        return identity
    return replace(
        identity, team=seat.team, teammate=seat.form, plan_required=seat.mode == "plan", name=seat.name
    )


def seated_tools(toolset: Toolset, seat: Seat | None, offered: Iterable[str]) -> Toolset:
    if seat is None:
        return toolset
    wanted = {*toolset.names, *_TEAM_TOOLS}
    return replace(toolset, names=tuple(name for name in offered if name in wanted))


def seated_mode(authority: RulePermissions, definition: Definition, seat: Seat | None) -> Mode:
    wish = None if seat is None else seat.mode
    return narrowed(
        authority.mode,
        wish or definition.permission_mode,
        person_configured=wish is None and definition.source.trusted,
        may_skip=authority.may_skip,
    )


def own_part(definition: Definition, seat: Seat | None) -> str:
    """Of the system prompt: the definition's, and for a teammate what it must know of its team before it."""
    return definition.prompt if seat is None else f"{seat.section}\n\n{definition.prompt}".strip()
