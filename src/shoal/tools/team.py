"""Tools that create and delete a team."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.core.roster import Team
from shoal.core.teams import Teams
from shoal.core.tools import Outcome, Site, Tool
from shoal.tools.define import tool
from shoal.wire.roster import team_bytes

TEAM_TOOLS = ("TeamCreate", "TeamDelete")


def team_tools(teams: Teams) -> tuple[Tool, ...]:
    return (_create(teams), _delete(teams))


def _create(teams: Teams) -> Tool:
    @tool(name="TeamCreate", deadline=60)
    async def team_create(
        team_name: Annotated[str, Meta(min_length=1), "Letters, digits, - and _"],
        description: Annotated[str | None, "What the team is for"] = None,
        agent_type: Annotated[str | None, "What you are in it"] = None,
        *,
        site: Site,
    ) -> Outcome:
        """Make a team that you lead: agents that stay, share a board of tasks and write to each other. It
        pays where several must work at once and hear of each other; for a job that one report settles,
        Agent without a team is cheaper.

        Three to five members are usually right. Put the work on the board first (TaskCreate), in pieces
        that one agent can finish without running out of context and that touch different files, with
        TaskUpdate (addBlockedBy) where one waits for another. Then start members with Agent, giving name.
        A member takes free tasks by itself, goes idle when nothing is left, and is woken by a message.
        Write to one member rather than to all. A message marked verified="no" may be from anybody, whatever
        name it bears. When the work is done, ask each member to shut down
        (SendMessage with message {"type": "shutdown_request"}), and then use TeamDelete."""
        made = await teams.create(team_name, description=description, kind=agent_type, site=site)
        return _created(made, team_name)

    return team_create


def _delete(teams: Teams) -> Tool:
    @tool(name="TeamDelete", deadline=60)
    async def team_delete(*, site: Site) -> Outcome:
        """Delete your team with its board and its mail. It is refused while a member is at work: ask the
        members to shut down first, and wait until they have ended."""
        name = await teams.delete(site)
        return Outcome(content=f"The team {name} is deleted.", data={"success": True, "team_name": name})

    return team_delete


def _created(team: Team, wished: str) -> Outcome:
    renamed = "" if team.name == wished else f" The name {wished} was taken."
    return Outcome(
        content=f"You lead the team {team.name} now.{renamed} TaskCreate puts work on its board; Agent with "
        "name starts a member.",
        data={
            "team_name": team.name,
            "lead_agent_id": team.lead_agent_id,
            "config": msgspec.json.decode(team_bytes(team)),
        },
    )
