"""Finds teams and members by the names that people and other programs use for them."""

from __future__ import annotations

from shoal.app.teams.team_store import TeamStore
from shoal.core.errors import InvalidName
from shoal.core.names import AgentName, TeamName, map_to_inbox_name, parse_agent_name, parse_team_name


async def find_team_name(store: TeamStore, text: str) -> TeamName | None:
    """Find a team by its directory or by its name as another program spells it; None if there is none.

    Other programs keep the team `My Team` in the directory `my-team`.
    """
    teams = await store.rosters.list_teams()
    mapped = map_to_inbox_name(text.strip())
    for candidate in (text, mapped, mapped.lower()):
        if candidate in teams:
            return TeamName(candidate)
    try:
        name = parse_team_name(text)
    except InvalidName:
        return None
    return name if name in teams else None


async def resolve_inbox_owner(store: TeamStore, team: TeamName, text: str) -> AgentName:
    """Return the name of the inbox of a member, given its name or id. Raises `InvalidName`."""
    roster = await store.rosters.read_team_roster(team)
    entry = None if roster is None else roster.resolve_member(text)
    return parse_agent_name(text) if entry is None else entry.inbox_name


async def resolve_task_owner(store: TeamStore, board: str, text: str) -> AgentName | None:
    """Return the owner as the roster spells it; None for a blank text. Raises `InvalidName`."""
    if not text.strip():
        return None
    if board in await store.rosters.list_teams():
        roster = await store.rosters.read_team_roster(TeamName(board))
        entry = None if roster is None else roster.resolve_member(text)
        if entry is not None:
            return entry.name
    return parse_agent_name(text)
