"""The team as reached by the tools of a member in its own process."""

from __future__ import annotations

from shoal.core.agents import Order
from shoal.core.bodies import ShutdownRequest, summary_to
from shoal.core.errors import AgentRefused
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.roster import Team
from shoal.core.teams import Posted, Spawned
from shoal.core.tools import Site
from shoal.runs.roll import LEAD_NAMES
from shoal.team.footing import Footing
from shoal.team.member import Member
from shoal.team.office import Office

_LEADS = "Only the lead of the team can do that: ask team-lead."


class OutpostTools:
    """Team operations of a member; it reads the roster on each call."""

    office: Office
    _member: Member | None

    def __init__(self, on: Footing, team: TeamName) -> None:
        self._on = on
        self._team_name = team
        self._seen: Team | None = None
        """Roster as it was last read."""
        self.agreed: ShutdownRequest | None = None
        """Shutdown request that it has approved."""
        self.rejected = False
        """True if it has already rejected a shutdown once."""

    async def answer_end_of(self, request: str, reason: str, *, approve: bool) -> None:
        raise NotImplementedError

    async def create(self, name: str, *, description: str | None, kind: str | None, site: Site) -> Team:
        raise AgentRefused("Only the lead of a session makes a team.")

    async def delete(self, site: Site) -> TeamName:
        raise AgentRefused("Only the lead deletes its team.")

    async def spawn(self, order: Order, site: Site) -> Spawned | None:
        return None

    async def send(
        self, to: str, text: str, summary: str, site: Site, *, fyi: bool = False
    ) -> tuple[Posted, ...] | None:
        if not site.agent.is_teammate:
            return None
        team = await self._roster()
        me, others = AgentName(site.agent.name), [each.name for each in team.members]
        others = [each for each in others if each != me]
        if to == "*":
            if not others:
                raise AgentRefused("Nobody is in the team beside you.")
            return tuple([await self._post(team, me, each, text, summary, fyi=fyi) for each in others])
        wanted = LEAD_NAME if to in LEAD_NAMES else to.removesuffix(f"@{team.name}")
        if wanted == me:
            raise AgentRefused("That is you.")
        found = next((each for each in others if each == wanted), None)
        return None if found is None else (await self._post(team, me, found, text, summary, fyi=fyi),)

    async def ask_to_end(self, to: str, reason: str, site: Site) -> str:
        raise AgentRefused("Only the lead asks teammates to shut down.")

    async def answer_end(self, request: str, reason: str, *, approve: bool, site: Site) -> None:
        if not site.agent.is_teammate:
            raise AgentRefused("Only a teammate answers a request to shut down.")
        await self.answer_end_of(request, reason, approve=approve)

    async def answer_plan(
        self, to: str, request: str, feedback: str, *, approve: bool, site: Site
    ) -> AgentName:
        raise AgentRefused("Only the lead answers plans.")

    async def stop(self, name: str, site: Site) -> bool:
        team = await self._roster()
        if team.member(name.removesuffix(f"@{team.name}")) is not None:
            raise AgentRefused(_LEADS)
        return False

    async def _roster(self) -> Team:
        team = await self._on.record.rosters.read(self._team_name)
        if team is None:
            raise AgentRefused(f"The team {self._team_name} is gone.")
        self._seen = team
        return team

    async def _post(
        self, team: Team, sender: AgentName, to: AgentName, text: str, summary: str, *, fyi: bool
    ) -> Posted:
        receipt = await self.office.post_text(sender, to, text, summary=summary, fyi=fyi)
        if self._member is not None and to != LEAD_NAME:
            self._member.told = summary_to(to, summary)
        there = team.member(to)
        color = None if there is None else there.color
        return Posted(sender=sender, to=to, color=color, standing=receipt.standing)
