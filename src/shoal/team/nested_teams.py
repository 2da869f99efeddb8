"""Nested teams of a session, whose members may lead teams up to a maximum depth.

Each team is flat and has one lead: a teammate that leads is `team-lead` to its own members and keeps its name
in the team above. Lead actions go to the team that it leads, all others to the team of which it is a member.
A team ends with its lead.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator

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
from shoal.core.teams.roster import TeamRoster
from shoal.core.teams.tasks import Task
from shoal.core.teams.team_operations import (
    TeammateSpawnResult,
    TeammateStatusSnapshot,
    TeamMessagePostReceipt,
)
from shoal.team.members.member_launcher import NullMemberLauncher
from shoal.team.session_teams import SessionTeams
from shoal.team.team_prompts import format_team_notice
from shoal.team.team_services import TeamServices


class TeamsByLeader:
    """Nested teams by the member that leads them."""

    def __init__(self) -> None:
        self.teams: dict[AgentId, SessionTeams] = {}
        self.session_teams: NestedTeams | None = None
        self._suspended: dict[AgentId, TeamName] = {}
        """Teams whose leads are down."""
        self._is_closing = False
        """True if they end with the session and can be resumed with it."""

    def keep_for_resume(self) -> None:
        """Let the teams end so that they can be resumed with the session."""
        self._is_closing = True

    def is_leading_working_team(self, agent: AgentId) -> bool:
        nested = self.teams.get(agent)
        return nested is not None and nested.is_working

    def find_lead_identity(self, agent: AgentIdentity, team: str) -> AgentIdentity | None:
        """Return the agent's identity as lead of that team; None if it does not lead it."""
        nested = self.teams.get(agent.agent)
        if nested is None or nested.led_team_name != team:
            return None
        return replace(agent, name=LEAD_NAME, team=team)

    async def build_briefing_of(self, agent: AgentId) -> str:
        nested = self.teams.get(agent)
        return "" if nested is None else await nested.build_lead_briefing()

    async def end_team_of(self, agent: AgentId) -> None:
        nested = self.teams.pop(agent, None)
        if nested is not None:
            await nested.end_team(resumable=self._is_closing)
        name = self._suspended.pop(agent, None)
        if name is not None and self.session_teams is not None and not self._is_closing:
            await self.session_teams.delete_nested_team(name)

    async def suspend_team_of(self, agent: AgentId) -> None:
        nested = self.teams.pop(agent, None)
        if nested is not None and nested.led_team_name:
            self._suspended[agent] = TeamName(nested.led_team_name)
            await nested.end_team(resumable=True)

    async def resume_team_of(self, agent: AgentId) -> None:
        name = self._suspended.get(agent)
        if name is not None and self.session_teams is not None and not self._is_closing:
            await self.session_teams.resume_nested_team(agent, name)
            del self._suspended[agent]


class NestedTeams(SessionTeams):
    """The lead's team, and the nested teams by their leading member."""

    def __init__(self, services: TeamServices, depth: int, by_leader: TeamsByLeader) -> None:
        self._depth = depth
        self._by_leader = by_leader
        self._nested_teams = by_leader.teams
        super().__init__(
            replace(
                services,
                led_teams=by_leader,
                policy=replace(services.policy, allows_nested_teams=depth > 1),
            )
        )
        by_leader.session_teams = self

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
                format_team_notice("working_teams", names=", ".join(map(str, working_teams)))
            )
        return await super().delete_team(context)

    async def spawn_teammate(self, request: SpawnRequest, context: ToolContext) -> TeammateSpawnResult | None:
        return await SessionTeams.spawn_teammate(self._get_teams_led_by(context), request, context)

    async def request_shutdown(self, to: str, reason: str, context: ToolContext) -> str:
        return await SessionTeams.request_shutdown(self._get_teams_led_by(context), to, reason, context)

    async def answer_plan_approval_request(
        self, to: str, request: str, feedback: str, *, approve: bool, context: ToolContext
    ) -> AgentName:
        return await SessionTeams.answer_plan_approval_request(
            self._get_teams_led_by(context), to, request, feedback, approve=approve, context=context
        )

    async def stop_member(self, name: str, context: ToolContext) -> bool:
        return await SessionTeams.stop_member(self._get_teams_led_by(context), name, context)

    # For everybody

    async def send_message(
        self, to: str, text: str, summary: str, context: ToolContext, *, fyi: bool = False
    ) -> tuple[TeamMessagePostReceipt, ...] | None:
        """Send to a member of the sender's own team first; `*` is the team that the sender leads."""
        teams = self._nested_teams.get(context.agent.agent)
        if teams is None or (to != "*" and not teams.has_member(to)):
            teams = self._find_teams_containing_agent(context.agent.agent) or self
        return await SessionTeams.send_message(teams, to, text, summary, context, fyi=fyi)

    async def answer_shutdown_request(
        self, request: str, reason: str, *, approve: bool, context: ToolContext
    ) -> None:
        teams = self._find_teams_containing_agent(context.agent.agent) or self
        await SessionTeams.answer_shutdown_request(teams, request, reason, approve=approve, context=context)

    def restart_member(self, name: str) -> bool | None:
        return SessionTeams.restart_member(self._get_teams_with_member(name), name)

    async def list_unfinished_tasks(self) -> tuple[Task, ...]:
        found = list(await super().list_unfinished_tasks())
        for nested in self._nested_teams.values():
            found += await nested.list_unfinished_tasks()
        return tuple(found)

    def list_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        return (
            *super().list_members(),
            *(each for below in self._nested_teams.values() for each in below.list_members()),
        )

    async def list_external_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        nested = [
            each for below in self._nested_teams.values() for each in await below.list_external_members()
        ]
        return (*await super().list_external_members(), *nested)

    # For the session

    def find_agent(self, agent: AgentId) -> AgentRunner | None:
        runners = (below.find_agent(agent) for below in self._nested_teams.values())
        return super().find_agent(agent) or next(filter(None, runners), None)

    def on_item_entered(self, item: InboxItem) -> None:
        super().on_item_entered(item)
        for nested in self._nested_teams.values():
            nested.on_item_entered(item)

    async def send_user_message(self, to: str, text: str) -> AgentMessageDeliveryReceipt | None:
        return await SessionTeams.send_user_message(self._get_teams_with_member(to), to, text)

    async def end_member(self, name: str, why: str) -> bool:
        return await SessionTeams.end_member(self._get_teams_with_member(name), name, why)

    def interrupt_member(self, name: str) -> bool | None:
        return SessionTeams.interrupt_member(self._get_teams_with_member(name), name)

    async def shut_down_member(self, name: str, reason: str) -> bool:
        return await SessionTeams.shut_down_member(self._get_teams_with_member(name), name, reason)

    async def resume_team(
        self,
        session: str,
        delivered: Container[str],
        active_members: Collection[AgentStarted] = (),
        idle_members: Collection[AgentId] = (),
    ) -> TeamName | None:
        name = await super().resume_team(session, delivered, active_members, idle_members)
        rosters = self._services.runtime.team_store.rosters
        remaining = [
            team
            for each in await rosters.list_teams()
            if (team := await rosters.read_team_roster(each)) is not None
        ]
        remaining = [team for team in remaining if team.lead_session_id == session and team.name != name]
        while roster := next((team for team in remaining if self._has_local_leader(team)), None):
            remaining.remove(roster)
            await self._resume_team_below(AgentId(roster.lead_agent_id), roster)
        return name

    async def resume_nested_team(self, leader: AgentId, name: TeamName) -> None:
        """Resume a nested team whose lead was restarted."""
        roster = await self._services.runtime.team_store.rosters.read_team_roster(name)
        if roster is not None and self._has_local_leader(roster):
            await self._resume_team_below(leader, roster)

    async def delete_nested_team(self, name: TeamName) -> None:
        """Delete a nested team whose members have ended."""
        await self._services.runtime.team_store.rosters.delete_team(name)
        await self._services.runtime.team_store.close_team_stores(name)

    async def _resume_team_below(self, leader: AgentId, roster: TeamRoster) -> None:
        parent_teams = self._find_teams_containing_agent(leader)
        handle = None if parent_teams is None else parent_teams.find_member_handle(leader)
        assert parent_teams is not None
        assert handle is not None
        nested = self._nested_teams[leader] = self._create_nested_teams(leader, parent_teams)
        await nested.resume_led_team(roster, handle.member.delivered)

    # Nested teams

    def _iter_teams(self) -> Iterator[SessionTeams]:
        yield self
        yield from self._nested_teams.values()

    def _get_teams_led_by(self, context: ToolContext) -> SessionTeams:
        """Return the nested teams that the caller leads, else the lead's own."""
        return self._nested_teams.get(context.agent.agent, self)

    def _get_teams_with_member(self, name: str) -> SessionTeams:
        """Return the first teams with a member of that name or id, else the lead's own."""
        return next((each for each in self._iter_teams() if each.has_member(name)), self)

    def _find_teams_containing_agent(self, agent: AgentId) -> SessionTeams | None:
        """Return the teams of which the agent is a member."""
        return next((each for each in self._iter_teams() if each.find_member_handle(agent) is not None), None)

    def _has_local_leader(self, team: TeamRoster) -> bool:
        """Return True if a member in this process leads the team."""
        return self.find_agent(AgentId(team.lead_agent_id)) is not None

    def _create_nested_teams(self, leader: AgentId, parent_teams: SessionTeams) -> SessionTeams:
        depth = self._compute_nesting_depth(parent_teams) + 1
        if depth > self._depth:
            raise AgentRequestRefused(format_team_notice("team_too_deep", maximum=self._depth, depth=depth))
        agent = parent_teams.find_agent(leader)
        if agent is None:
            raise AgentRequestRefused(format_team_notice("process_cannot_lead"))
        services = replace(
            self._services,
            lead=lambda: agent,
            launcher=NullMemberLauncher(),
            policy=replace(
                self._services.policy, implicit_teams=False, allows_nested_teams=depth < self._depth
            ),
        )
        return SessionTeams(services, self._tasks, parent_teams.notify_changed)

    def _compute_nesting_depth(self, teams: SessionTeams) -> int:
        depth = 1
        while teams is not self:
            leader = next(agent for agent, below in self._nested_teams.items() if below is teams)
            enclosing = self._find_teams_containing_agent(leader)
            assert enclosing is not None
            teams, depth = enclosing, depth + 1
        return depth

    async def close(self) -> tuple[AgentStatusSnapshot, ...]:
        self._by_leader.keep_for_resume()
        return await super().close()
