"""Adapts an agent's identity, tools, mode and system prompt to its team membership."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from shoal.app.basis.prompt import usual_prompt
from shoal.core.definitions import Definition, Toolset
from shoal.core.identity import Identity
from shoal.core.permissions import Mode
from shoal.policy.authority import is_wider, narrowed
from shoal.policy.permissions import RulePermissions
from shoal.runs.outfit import Seat
from shoal.tools.team import TEAM_TOOLS

_TEAM_TOOLS = ("SendMessage", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate")
"""Tools that every teammate has, whatever its definition says."""


def seated(identity: Identity, seat: Seat | None, mode: str) -> Identity:
    """Return its identity in the team.

    `mode` is its first permission mode: an approved plan is not required again.
    """
    if seat is None:
        return identity
    planning = seat.mode == "plan" == mode
    return replace(
        identity,
        team=seat.team,
        teammate=seat.form,
        parent_session=identity.session,
        plan_required=planning,
        name=seat.name,
    )


def seated_tools(toolset: Toolset, seat: Seat | None, offered: Iterable[str]) -> Toolset:
    if seat is None:
        return toolset
    wanted = {*toolset.names, *_TEAM_TOOLS, *(TEAM_TOOLS if seat.leads else ())}
    return replace(toolset, names=tuple(name for name in offered if name in wanted))


def seated_mode(authority: RulePermissions, definition: Definition, seat: Seat | None) -> Mode:
    wish = None if seat is None else seat.mode
    return narrowed(
        authority.mode,
        wish or definition.permission_mode,
        person_configured=wish is None and definition.source.trusted,
        may_skip=authority.may_skip,
    )


def worded_mode(authority: RulePermissions, wish: Mode | None) -> tuple[Mode | None, bool]:
    """Return the mode for a command line, and whether permissions are skipped.

    A foreign program is restricted by these arguments only, so they never exceed what its lead may do.
    """
    lead = authority.mode
    if wish in (None, "plan"):
        # Planning first has its own flag; afterwards it has the lead's mode.
        return (lead if is_wider("default", than=lead) else None), lead == "bypassPermissions"
    mode = narrowed(lead, wish, may_skip=authority.may_skip)
    if mode == "bypassPermissions":
        return None, True
    return ("acceptEdits" if mode == "delegate" else mode), False


def own_part(definition: Definition, seat: Seat | None) -> str:
    """Build its part of the system prompt; a teammate also gets the default prompt and the team section."""
    if seat is None:
        return definition.prompt
    return "\n\n".join(filter(None, (usual_prompt().strip(), seat.section, definition.prompt.strip())))
