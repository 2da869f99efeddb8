"""Tools that create and delete a team."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.teams.roster import TeamRoster
from shoal.core.teams.team_operations import TeamOperations
from shoal.tools.function_tool import tool
from shoal.wire.roster_codec import encode_new_team_roster

TEAM_TOOLS = ("TeamCreate", "TeamDelete")


def build_team_tools(teams: TeamOperations) -> tuple[Tool, ...]:
    return (_build_team_create_tool(teams), _build_team_delete_tool(teams))


def _build_team_create_tool(teams: TeamOperations) -> Tool:
    @tool(name="TeamCreate", deadline=60)
    async def team_create(
        team_name: Annotated[str, Meta(min_length=1), "Letters, digits, - and _"],
        description: Annotated[str | None, "What the team is for"] = None,
        agent_type: Annotated[str | None, "What you are in it"] = None,
        *,
        context: ToolContext,
    ) -> ToolOutput:
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
        roster = await teams.create_team(team_name, description=description, kind=agent_type, context=context)
        return _format_created_team(roster, team_name)

    return team_create


def _build_team_delete_tool(teams: TeamOperations) -> Tool:
    @tool(name="TeamDelete", deadline=60)
    async def team_delete(*, context: ToolContext) -> ToolOutput:
        """Delete your team with its board and its mail. It is refused while a member is at work: ask the
        members to shut down first, and wait until they have ended."""
        name = await teams.delete_team(context)
        return ToolOutput(content=f"The team {name} is deleted.", data={"success": True, "team_name": name})

    return team_delete


def _format_created_team(team: TeamRoster, requested_name: str) -> ToolOutput:
    rename_note = "" if team.name == requested_name else f" The name {requested_name} was taken."
    return ToolOutput(
        content=f"You lead the team {team.name} now.{rename_note} TaskCreate puts work on its board; "
        "Agent with name starts a member.",
        data={
            "team_name": team.name,
            "lead_agent_id": team.lead_agent_id,
            "config": msgspec.json.decode(encode_new_team_roster(team)),
        },
    )
