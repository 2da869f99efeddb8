"""Nested teams of a session, whose members may lead teams up to a maximum depth.

Each team is flat and has one lead: a teammate that leads is `team-lead` to its own members and keeps its name
in the team above. Lead actions go to the team that it leads, all others to the team of which it is a member.
A team ends with its lead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator

from msgspec.structs import replace

from shoal.agent.agent import Agent
from shoal.core.agents import Glimpse, Order, Reached
from shoal.core.arrivals import Item
from shoal.core.decisions import Mode
from shoal.core.errors import AgentRefused
from shoal.core.events import AgentStarted
from shoal.core.identity import Identity
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.roster import Team
from shoal.core.teams import Posted, Spawned, Teammate
from shoal.core.tools import Site
from shoal.team.elsewhere import NowhereElse
from shoal.team.footing import Footing
from shoal.team.member import Member
from shoal.team.teams import SessionTeams


class NestedTeams(SessionTeams):
    """The lead's team, and the nested teams by their leading member."""

    def __init__(self, on: Footing, depth: int, mode_of: Callable[[Agent], Mode]) -> None:
        self._depth = depth
        self._mode_of = mode_of
        self._stop_agents_of = on.stop_agents_of
        self._below: dict[AgentId, SessionTeams] = {}
        self._ending = False
        super().__init__(
            replace(on, stop_agents_of=self._end_below, leads_at_work=self._leads_at_work, nests=depth > 1)
        )

    # For leads

    async def create(self, name: str, *, description: str | None, kind: str | None, site: Site) -> Team:
        above = self._with_member(site.agent.agent)
        if above is None:
            return await super().create(name, description=description, kind=kind, site=site)
        below = self._below.get(site.agent.agent)
        if below is None:
            below = self._made_for(site.agent.agent, above)
        team = await SessionTeams.create(below, name, description=description, kind=kind, site=site)
        self._below[site.agent.agent] = below
        return team

    async def delete(self, site: Site) -> TeamName:
        below = self._below.get(site.agent.agent)
        if below is not None:
            name = await below.delete(site)
            del self._below[site.agent.agent]
            return name
        working = [each.led_name for each in self._below.values() if each.working]
        if self.leads(site.agent) and working:
            raise AgentRefused(f"Members of your team lead teams that are at work: {', '.join(working)}.")
        return await super().delete(site)

    async def spawn(self, order: Order, site: Site) -> Spawned | None:
        below = self._below.get(site.agent.agent)
        return await (super().spawn(order, site) if below is None else below.spawn(order, site))

    async def ask_to_end(self, to: str, reason: str, site: Site) -> str:
        below = self._below.get(site.agent.agent)
        if below is None:
            return await super().ask_to_end(to, reason, site)
        return await below.ask_to_end(to, reason, site)

    async def answer_plan(
        self, to: str, request: str, feedback: str, *, approve: bool, site: Site
    ) -> AgentName:
        below = self._below.get(site.agent.agent)
        if below is None:
            return await super().answer_plan(to, request, feedback, approve=approve, site=site)
        return await below.answer_plan(to, request, feedback, approve=approve, site=site)

    async def stop(self, name: str, site: Site) -> bool:
        below = self._below.get(site.agent.agent)
        return await (super().stop(name, site) if below is None else below.stop(name, site))

    # For everybody

    async def send(
        self, to: str, text: str, summary: str, site: Site, *, fyi: bool = False
    ) -> tuple[Posted, ...] | None:
        """Send to a member of the sender's own team first; `*` is the team that the sender leads."""
        below, above = self._below.get(site.agent.agent), self._with_member(site.agent.agent)
        if below is not None and (to == "*" or below.has(to)):
            return await below.send(to, text, summary, site, fyi=fyi)
        if above is None or above is self:
            return await super().send(to, text, summary, site, fyi=fyi)
        return await above.send(to, text, summary, site, fyi=fyi)

    async def answer_end(self, request: str, reason: str, *, approve: bool, site: Site) -> None:
        above = self._with_member(site.agent.agent)
        if above is None or above is self:
            await super().answer_end(request, reason, approve=approve, site=site)
        else:
            await above.answer_end(request, reason, approve=approve, site=site)

    def members(self) -> tuple[Teammate, ...]:
        return (*super().members(), *(each for below in self._below.values() for each in below.members()))

    def led_as(self, agent: Identity, team: str) -> Identity | None:
        """Return the agent's identity as lead of that team; None if it does not lead it."""
        below = self._below.get(agent.agent)
        if below is None or below.led_name != team:
            return None
        return replace(agent, name=LEAD_NAME, team=team)

    # For the session

    def agent(self, agent: AgentId) -> Agent | None:
        found = (below.agent(agent) for below in self._below.values())
        return super().agent(agent) or next(filter(None, found), None)

    def entered(self, item: Item) -> None:
        super().entered(item)
        for below in self._below.values():
            below.entered(item)

    async def say(self, to: str, text: str) -> Reached | None:
        below = self._below_with(to)
        return await (super().say(to, text) if below is None else below.say(to, text))

    async def end(self, name: str, why: str) -> bool:
        below = self._below_with(name)
        return await (super().end(name, why) if below is None else below.end(name, why))

    def interrupt(self, name: str) -> bool | None:
        below = self._below_with(name)
        return super().interrupt(name) if below is None else below.interrupt(name)

    async def shut_down(self, name: str, reason: str) -> bool:
        below = self._below_with(name)
        return await (super().shut_down(name, reason) if below is None else below.shut_down(name, reason))

    async def resume(
        self,
        session: str,
        delivered: Container[str],
        serving: Collection[AgentStarted] = (),
        resting: Collection[AgentId] = (),
    ) -> TeamName | None:
        name = await super().resume(session, delivered, serving, resting)
        rosters = self._on.record.rosters
        left = [team for each in await rosters.list() if (team := await rosters.read(each)) is not None]
        left = [team for team in left if team.lead_session_id == session and team.name != name]
        while found := next((team for team in left if self._leader_of(team) is not None), None):
            left.remove(found)
            member = self._leader_of(found)
            assert member is not None
            above = self._with_member(member.id)
            assert above is not None
            below = self._below[member.id] = self._made_for(member.id, above)
            await below.take_up(found, member.outfit.delivered)
        return name

    # Nested teams

    def _all(self) -> Iterator[SessionTeams]:
        yield self
        yield from self._below.values()

    def _below_with(self, name: str) -> SessionTeams | None:
        """Return the nested teams with a member of that name or id; None if the lead's own team has it."""
        if self.has(name):
            return None
        return next((each for each in self._below.values() if each.has(name)), None)

    def _with_member(self, agent: AgentId) -> SessionTeams | None:
        """Return the teams of which the agent is a member."""
        return next((each for each in self._all() if each.post_of(agent) is not None), None)

    def _leader_of(self, team: Team) -> Member | None:
        agent = AgentId(team.lead_agent_id)
        above = self._with_member(agent)
        post = None if above is None else above.post_of(agent)
        return post.member if post is not None and isinstance(post.member, Member) else None

    def _made_for(self, leader: AgentId, above: SessionTeams) -> SessionTeams:
        depth = self._depth_of(above) + 1
        if depth > self._depth:
            raise AgentRefused(
                f"Teams are {self._depth} deep here at most (the setting shoal.team_depth), and yours would "
                f"be {depth}. Start agents of your own, or ask team-lead for teammates."
            )
        agent = above.agent(leader)
        if agent is None:
            raise AgentRefused("A teammate in a process of its own leads no team.")
        footing = replace(
            self._on,
            lead=lambda: agent,
            mode=lambda: self._mode_of(agent),
            implicit=lambda: False,
            elsewhere=NowhereElse(),
            changed=above.changed,
            nests=depth < self._depth,
        )
        return SessionTeams(footing, self._tasks)

    def _depth_of(self, teams: SessionTeams) -> int:
        depth = 1
        while teams is not self:
            leader = next(agent for agent, below in self._below.items() if below is teams)
            found = self._with_member(leader)
            assert found is not None
            teams, depth = found, depth + 1
        return depth

    def _leads_at_work(self, agent: AgentId) -> bool:
        below = self._below.get(agent)
        return below is not None and below.working

    async def close(self) -> tuple[Glimpse, ...]:
        self._ending = True
        return await super().close()

    async def _end_below(self, agent: AgentId, why: str) -> None:
        """End the team that an ended member led and the agents that it started."""
        below = self._below.pop(agent, None)
        if below is not None:
            await below.end_team(stays=self._ending)
        await self._stop_agents_of(agent, why)
