"""Nested teams of a session, whose members may lead teams up to a maximum depth.

Each team is flat and has one lead: a teammate that leads is `team-lead` to its own members and keeps its name
in the team above. Lead actions go to the team that it leads, all others to the team of which it is a member.
A team ends with its lead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator

from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.identity import AgentIdentity
from shoal.core.agents.subagents import AgentMessageDeliveryReceipt, AgentStatusSnapshot, SpawnRequest
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.tools import ToolContext
from shoal.core.errors import AgentRequestRefused
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.teams.roster import TeamRoster
from shoal.core.teams.team_operations import (
    TeammateSpawnResult,
    TeammateStatusSnapshot,
    TeamMessagePostReceipt,
)
from shoal.team.members.local_member import LocalMember
from shoal.team.members.member_launcher import NullMemberLauncher
from shoal.team.session_teams import SessionTeams
from shoal.team.team_services import TeamServices


class NestedTeams(SessionTeams):
    """The lead's team, and the nested teams by their leading member."""

    def __init__(
        self, services: TeamServices, depth: int, mode_of: Callable[[AgentRunner], PermissionMode]
    ) -> None:
        self._depth = depth
        self._mode_of = mode_of
        self._stop_agents_of = services.stop_agents_of
        self._nested_teams: dict[AgentId, SessionTeams] = {}
        self._is_closing = False
        super().__init__(
            replace(
                services,
                stop_agents_of=self._end_led_team_and_agents,
                leads_working_team=self._leads_working_team,
                allows_nested_teams=depth > 1,
            )
        )

    # For leads

    async def create_team(
        self, name: str, *, description: str | None, kind: str | None, context: ToolContext
    ) -> TeamRoster:
        parent_teams = self._find_teams_containing_agent(context.agent.agent)
        if parent_teams is None:
            return await super().create_team(name, description=description, kind=kind, context=context)
        nested = self._nested_teams.get(context.agent.agent)
        if nested is None:
            nested = self._create_nested_teams(context.agent.agent, parent_teams)
        team = await SessionTeams.create_team(
            nested, name, description=description, kind=kind, context=context
        )
        self._nested_teams[context.agent.agent] = nested
        return team

    async def delete_team(self, context: ToolContext) -> TeamName:
        nested = self._nested_teams.get(context.agent.agent)
        if nested is not None:
            name = await nested.delete_team(context)
            del self._nested_teams[context.agent.agent]
            return name
        working_teams = [each.led_team_name for each in self._nested_teams.values() if each.is_working]
        if self.is_lead(context.agent) and working_teams:
            raise AgentRequestRefused(
                f"Members of your team lead teams that are still working: {', '.join(working_teams)}."
            )
        return await super().delete_team(context)

    async def spawn_teammate(self, request: SpawnRequest, context: ToolContext) -> TeammateSpawnResult | None:
        nested = self._nested_teams.get(context.agent.agent)
        return await (
            super().spawn_teammate(request, context)
            if nested is None
            else nested.spawn_teammate(request, context)
        )

    async def request_shutdown(self, to: str, reason: str, context: ToolContext) -> str:
        nested = self._nested_teams.get(context.agent.agent)
        if nested is None:
            return await super().request_shutdown(to, reason, context)
        return await nested.request_shutdown(to, reason, context)

    async def answer_plan_approval_request(
        self, to: str, request: str, feedback: str, *, approve: bool, context: ToolContext
    ) -> AgentName:
        nested = self._nested_teams.get(context.agent.agent)
        if nested is None:
            return await super().answer_plan_approval_request(
                to, request, feedback, approve=approve, context=context
            )
        return await nested.answer_plan_approval_request(
            to, request, feedback, approve=approve, context=context
        )

    async def stop_member(self, name: str, context: ToolContext) -> bool:
        nested = self._nested_teams.get(context.agent.agent)
        return await (
            super().stop_member(name, context) if nested is None else nested.stop_member(name, context)
        )

    # For everybody

    async def send_message(
        self, to: str, text: str, summary: str, context: ToolContext, *, fyi: bool = False
    ) -> tuple[TeamMessagePostReceipt, ...] | None:
        """Send to a member of the sender's own team first; `*` is the team that the sender leads."""
        nested, parent_teams = (
            self._nested_teams.get(context.agent.agent),
            self._find_teams_containing_agent(context.agent.agent),
        )
        if nested is not None and (to == "*" or nested.has_member(to)):
            return await nested.send_message(to, text, summary, context, fyi=fyi)
        if parent_teams is None or parent_teams is self:
            return await super().send_message(to, text, summary, context, fyi=fyi)
        return await parent_teams.send_message(to, text, summary, context, fyi=fyi)

    async def answer_shutdown_request(
        self, request: str, reason: str, *, approve: bool, context: ToolContext
    ) -> None:
        parent_teams = self._find_teams_containing_agent(context.agent.agent)
        if parent_teams is None or parent_teams is self:
            await super().answer_shutdown_request(request, reason, approve=approve, context=context)
        else:
            await parent_teams.answer_shutdown_request(request, reason, approve=approve, context=context)

    def list_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        return (
            *super().list_members(),
            *(each for below in self._nested_teams.values() for each in below.list_members()),
        )

    def find_lead_identity(self, agent: AgentIdentity, team: str) -> AgentIdentity | None:
        """Return the agent's identity as lead of that team; None if it does not lead it."""
        nested = self._nested_teams.get(agent.agent)
        if nested is None or nested.led_team_name != team:
            return None
        return replace(agent, name=LEAD_NAME, team=team)

    # For the session

    def find_agent(self, agent: AgentId) -> AgentRunner | None:
        runners = (below.find_agent(agent) for below in self._nested_teams.values())
        return super().find_agent(agent) or next(filter(None, runners), None)

    def on_item_entered(self, item: InboxItem) -> None:
        super().on_item_entered(item)
        for nested in self._nested_teams.values():
            nested.on_item_entered(item)

    async def send_user_message(self, to: str, text: str) -> AgentMessageDeliveryReceipt | None:
        nested = self._find_nested_teams_with_member(to)
        return await (
            super().send_user_message(to, text) if nested is None else nested.send_user_message(to, text)
        )

    async def end_member(self, name: str, why: str) -> bool:
        nested = self._find_nested_teams_with_member(name)
        return await (super().end_member(name, why) if nested is None else nested.end_member(name, why))

    def interrupt_member(self, name: str) -> bool | None:
        nested = self._find_nested_teams_with_member(name)
        return super().interrupt_member(name) if nested is None else nested.interrupt_member(name)

    async def shut_down_member(self, name: str, reason: str) -> bool:
        nested = self._find_nested_teams_with_member(name)
        return await (
            super().shut_down_member(name, reason)
            if nested is None
            else nested.shut_down_member(name, reason)
        )

    async def resume_team(
        self,
        session: str,
        delivered: Container[str],
        active_members: Collection[AgentStarted] = (),
        idle_members: Collection[AgentId] = (),
    ) -> TeamName | None:
        name = await super().resume_team(session, delivered, active_members, idle_members)
        rosters = self._services.store.rosters
        remaining = [
            team
            for each in await rosters.list_teams()
            if (team := await rosters.read_team_roster(each)) is not None
        ]
        remaining = [team for team in remaining if team.lead_session_id == session and team.name != name]
        while roster := next((team for team in remaining if self._find_team_leader(team) is not None), None):
            remaining.remove(roster)
            member = self._find_team_leader(roster)
            assert member is not None
            parent_teams = self._find_teams_containing_agent(member.id)
            assert parent_teams is not None
            nested = self._nested_teams[member.id] = self._create_nested_teams(member.id, parent_teams)
            await nested.resume_led_team(roster, member.prepared.delivered)
        return name

    # Nested teams

    def _iter_teams(self) -> Iterator[SessionTeams]:
        yield self
        yield from self._nested_teams.values()

    def _find_nested_teams_with_member(self, name: str) -> SessionTeams | None:
        """Return the nested teams with a member of that name or id; None if the lead's own team has it."""
        if self.has_member(name):
            return None
        return next((each for each in self._nested_teams.values() if each.has_member(name)), None)

    def _find_teams_containing_agent(self, agent: AgentId) -> SessionTeams | None:
        """Return the teams of which the agent is a member."""
        return next((each for each in self._iter_teams() if each.find_member_handle(agent) is not None), None)

    def _find_team_leader(self, team: TeamRoster) -> LocalMember | None:
        agent = AgentId(team.lead_agent_id)
        parent_teams = self._find_teams_containing_agent(agent)
        handle = None if parent_teams is None else parent_teams.find_member_handle(agent)
        return handle.member if handle is not None and isinstance(handle.member, LocalMember) else None

    def _create_nested_teams(self, leader: AgentId, parent_teams: SessionTeams) -> SessionTeams:
        depth = self._compute_nesting_depth(parent_teams) + 1
        if depth > self._depth:
            raise AgentRequestRefused(
                f"Teams can be nested {self._depth} deep here (the setting shoal.team_depth), and yours "
                f"would be at {depth}. Start sub-agents, or ask team-lead for teammates."
            )
        agent = parent_teams.find_agent(leader)
        if agent is None:
            raise AgentRequestRefused("A teammate in a separate process cannot lead a team.")
        services = replace(
            self._services,
            lead=lambda: agent,
            mode=lambda: self._mode_of(agent),
            creates_implicit_teams=lambda: False,
            launcher=NullMemberLauncher(),
            on_changed=parent_teams.notify_changed,
            allows_nested_teams=depth < self._depth,
        )
        return SessionTeams(services, self._tasks)

    def _compute_nesting_depth(self, teams: SessionTeams) -> int:
        depth = 1
        while teams is not self:
            leader = next(agent for agent, below in self._nested_teams.items() if below is teams)
            enclosing = self._find_teams_containing_agent(leader)
            assert enclosing is not None
            teams, depth = enclosing, depth + 1
        return depth

    def _leads_working_team(self, agent: AgentId) -> bool:
        nested = self._nested_teams.get(agent)
        return nested is not None and nested.is_working

    async def close(self) -> tuple[AgentStatusSnapshot, ...]:
        self._is_closing = True
        return await super().close()

    async def _end_led_team_and_agents(self, agent: AgentId, why: str) -> None:
        """End the team that an ended member led and the agents that it started."""
        nested = self._nested_teams.pop(agent, None)
        if nested is not None:
            await nested.end_team(resumable=self._is_closing)
        await self._stop_agents_of(agent, why)
