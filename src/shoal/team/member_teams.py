"""The team as reached by the tools of a member in its own process."""

from __future__ import annotations

from shoal.core.agents.subagents import SpawnRequest
from shoal.core.conversation.tools import ToolContext
from shoal.core.errors import AgentRequestRefused
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.teams.mail_bodies import ShutdownRequestMail, format_peer_message_summary
from shoal.core.teams.roster import TeamRoster
from shoal.core.teams.team_operations import TeammateSpawnResult, TeamMessagePostReceipt
from shoal.runs.agent_registry import LEAD_NAMES
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.members.local_member import LocalMember
from shoal.team.team_services import TeamServices

_LEAD_ONLY = "Only the lead of the team can do that: ask team-lead."


class MemberTeamOperations:
    """Team operations of a member; it reads the roster on each call."""

    mail_sender: TeamMailPoster
    _member: LocalMember | None

    def __init__(self, services: TeamServices, team: TeamName) -> None:
        self._services = services
        self._team_name = team
        self._last_roster: TeamRoster | None = None
        """Roster as it was last read."""
        self.approved_request: ShutdownRequestMail | None = None
        """Shutdown request that it has approved."""
        self.has_rejected = False
        """True if it has already rejected a shutdown once."""

    async def apply_shutdown_answer(self, request: str, reason: str, *, approve: bool) -> None:
        raise NotImplementedError

    async def create_team(
        self, name: str, *, description: str | None, kind: str | None, context: ToolContext
    ) -> TeamRoster:
        raise AgentRequestRefused("Only the lead of a session can create a team.")

    async def delete_team(self, context: ToolContext) -> TeamName:
        raise AgentRequestRefused("Only the lead can delete its team.")

    async def spawn_teammate(self, request: SpawnRequest, context: ToolContext) -> TeammateSpawnResult | None:
        return None

    async def send_message(
        self, to: str, text: str, summary: str, context: ToolContext, *, fyi: bool = False
    ) -> tuple[TeamMessagePostReceipt, ...] | None:
        if not context.agent.is_teammate:
            return None
        team = await self._read_roster()
        sender, others = AgentName(context.agent.name), [each.name for each in team.members]
        others = [each for each in others if each != sender]
        if to == "*":
            if not others:
                raise AgentRequestRefused("There is nobody else in the team.")
            return tuple(
                [await self._post_message(team, sender, each, text, summary, fyi=fyi) for each in others]
            )
        recipient = LEAD_NAME if to in LEAD_NAMES else to.removesuffix(f"@{team.name}")
        if recipient == sender:
            raise AgentRequestRefused("That is you.")
        found = next((each for each in others if each == recipient), None)
        return (
            None
            if found is None
            else (await self._post_message(team, sender, found, text, summary, fyi=fyi),)
        )

    async def request_shutdown(self, to: str, reason: str, context: ToolContext) -> str:
        raise AgentRequestRefused("Only the lead can ask teammates to shut down.")

    async def answer_shutdown_request(
        self, request: str, reason: str, *, approve: bool, context: ToolContext
    ) -> None:
        if not context.agent.is_teammate:
            raise AgentRequestRefused("Only a teammate can answer a request to shut down.")
        await self.apply_shutdown_answer(request, reason, approve=approve)

    async def answer_plan_approval_request(
        self, to: str, request: str, feedback: str, *, approve: bool, context: ToolContext
    ) -> AgentName:
        raise AgentRequestRefused("Only the lead can answer plans.")

    async def stop_member(self, name: str, context: ToolContext) -> bool:
        team = await self._read_roster()
        if team.find_member(name.removesuffix(f"@{team.name}")) is not None:
            raise AgentRequestRefused(_LEAD_ONLY)
        return False

    async def _read_roster(self) -> TeamRoster:
        team = await self._services.store.rosters.read_team_roster(self._team_name)
        if team is None:
            raise AgentRequestRefused(f"The team {self._team_name} is gone.")
        self._last_roster = team
        return team

    async def _post_message(
        self, team: TeamRoster, sender: AgentName, to: AgentName, text: str, summary: str, *, fyi: bool
    ) -> TeamMessagePostReceipt:
        receipt = await self.mail_sender.post_text(sender, to, text, summary=summary, fyi=fyi)
        if self._member is not None and to != LEAD_NAME:
            self._member.last_message_summary = format_peer_message_summary(to, summary)
        entry = team.find_member(to)
        color = None if entry is None else entry.color
        return TeamMessagePostReceipt(sender=sender, to=to, color=color, standing=receipt.standing)
