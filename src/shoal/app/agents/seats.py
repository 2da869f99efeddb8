"""What a seat in a team changes about an agent: its tools, its mode and its system prompt."""

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
"""Those a teammate has, whatever its definition says."""


def seated(identity: Identity, seat: Seat | None, mode: str) -> Identity:
    """`mode` is the permission mode it begins with: a plan that was approved is not asked for again."""
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
    """For a command line: the mode to be named, and whether permissions are skipped.

    Another program is held by these words alone, so they never say more than its lead may.
    """
    lead = authority.mode
    if wish in (None, "plan"):
        # That it plans first is a word of its own; afterwards it may what its lead may.
        return (lead if is_wider("default", than=lead) else None), lead == "bypassPermissions"
    mode = narrowed(lead, wish, may_skip=authority.may_skip)
    if mode == "bypassPermissions":
        return None, True
    return ("acceptEdits" if mode == "delegate" else mode), False


def own_part(definition: Definition, seat: Seat | None) -> str:
    """Of the system prompt: the definition's, and before it for a teammate how agents and its team work."""
    if seat is None:
        return definition.prompt
    return "\n\n".join(filter(None, (usual_prompt().strip(), seat.section, definition.prompt.strip())))
