"""Tools that create and delete a team."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.teams.roster import TeamRoster
from shoal.core.teams.team_operations import TeamOperations
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.tool_texts import format_tool_text
from shoal.wire.roster_codec import encode_new_team_roster

TEAM_TOOLS = ("TeamCreate", "TeamDelete")


def build_team_tools(teams: TeamOperations) -> tuple[Tool, ...]:
    return (_build_team_create_tool(teams), _build_team_delete_tool(teams))


def _build_team_create_tool(teams: TeamOperations) -> Tool:
    @builtin_tool(name="TeamCreate", deadline=60)
    async def team_create(
        team_name: Annotated[str, Meta(min_length=1)],
        description: str | None = None,
        agent_type: str | None = None,
        *,
        context: ToolContext,
    ) -> ToolOutput:
        roster = await teams.create_team(team_name, description=description, kind=agent_type, context=context)
        return _format_created_team(roster, team_name)

    return team_create


def _build_team_delete_tool(teams: TeamOperations) -> Tool:
    @builtin_tool(name="TeamDelete", deadline=60)
    async def team_delete(*, context: ToolContext) -> ToolOutput:
        name = await teams.delete_team(context)
        return ToolOutput(
            content=format_tool_text("TeamDelete", "deleted", team=name),
            data={"success": True, "team_name": name},
        )

    return team_delete


def _format_created_team(team: TeamRoster, requested_name: str) -> ToolOutput:
    rename_note = (
        ""
        if team.name == requested_name
        else f" {format_tool_text('TeamCreate', 'name_taken', name=requested_name)}"
    )
    return ToolOutput(
        content=format_tool_text("TeamCreate", "created", team=team.name, note=rename_note),
        data={
            "team_name": team.name,
            "lead_agent_id": team.lead_agent_id,
            "config": msgspec.json.decode(encode_new_team_roster(team)),
        },
    )
