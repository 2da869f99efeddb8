"""The team of a session: created and deleted by its lead, used by the tools of all its agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Sequence
from functools import partial
from types import TracebackType

from msgspec.structs import replace

from shoal.agent.agent import Agent
from shoal.core.agents import Glimpse, Order, Reached
from shoal.core.arrivals import Item
from shoal.core.bodies import (
    PlanApprovalResponse,
    ShutdownRequest,
    shutdown_request_id,
    summary_to,
)
from shoal.core.errors import AgentRefused, BadName
from shoal.core.events import AgentStarted
from shoal.core.groups import leave
from shoal.core.identity import Identity, assume
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, PERSON, RESERVED, AgentName, TeamName, agent_name, team_name
from shoal.core.permissions import Suggestion
from shoal.core.roster import Newcomer, Team, agent_id
from shoal.core.teams import Posted, Spawned, Teammate
from shoal.core.tools import Site
from shoal.runs.roll import LEAD_NAMES
from shoal.team.afar import Afar
from shoal.team.footing import Footing
from shoal.team.joining import end_mark
from shoal.team.led import LedTeam
from shoal.team.letters import Letter
from shoal.team.member import Member
from shoal.team.obituary import Lost, obituary
from shoal.team.post import Post
from shoal.wire.notices import reminder

_SHORT = 8
"""Characters of the session id in the name of an implicit team."""
_NO_TEAM = "There is no team here. TeamCreate makes one."


class SessionTeams:
    """Team operations of a session, entered while the session is open."""

    def __init__(self, on: Footing, tasks: asyncio.TaskGroup | None = None) -> None:
        """With `tasks` it is not entered: its tasks end with that group."""
        self._on = on
        self._tasks = tasks or asyncio.TaskGroup()
        self._led: LedTeam | None = None
        self._making = asyncio.Lock()
        self._alone: Identity | None = None
        """Identity of the lead before it led a team."""

    async def __aenter__(self) -> SessionTeams:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
            await self._on.elsewhere.aclose()
        finally:
            await leave(self._tasks, kind, error, trace)

    # For the lead

    async def create(self, name: str, *, description: str | None, kind: str | None, site: Site) -> Team:
        if not self.leads(site.agent):
            raise AgentRefused(
                "Only the lead of a session makes a team: "
                "teams are one deep here (the setting shoal.team_depth)."
            )
        if self._led is not None:
            raise AgentRefused(
                f"You lead the team {self._led.name} already, and you lead one team at a time. "
                "Shut its members down and delete it first."
            )
        if site.agent.is_lead and site.agent.team is not None:
            raise AgentRefused(f"You work in the team {site.agent.team} already.")
        return await self.found(name, description=description, kind=kind)

    async def found(self, name: str, *, description: str | None, kind: str | None = None) -> Team:
        """Create the lead's team if it leads none yet."""
        lead = self._on.lead()
        me = Newcomer(
            name=LEAD_NAME,
            agent_type=kind or LEAD_NAME,
            model=lead.model.card.id,
            cwd=str(lead.surroundings.workspace.cwd),
            prompt="",
        )
        try:
            wished = team_name(name)
        except BadName as error:
            raise AgentRefused(str(error)) from error
        team = await self._on.record.rosters.create(
            wished,
            lead=me,
            session=lead.identity.session,
            description=description,
            leader=None if lead.identity.is_lead else lead.identity.agent,
        )
        await self._on.elsewhere.prepare()
        self._lead(team).start()
        return team

    async def delete(self, site: Site) -> TeamName:
        led = self._here()
        if not self.leads(site.agent):
            raise AgentRefused("Only the lead deletes its team.")
        busy = [each.name for each in led.members() if each.state in ("running", "created")]
        if busy:
            raise AgentRefused(
                f"The team {led.name} still has active members: {', '.join(busy)}. Ask them to shut down "
                "first (SendMessage with a shutdown_request); when they have ended, delete it again."
            )
        await self.disband()
        return led.name

    async def disband(self) -> None:
        """End all members and delete the team."""
        await self.end_team(stays=False)
        lead = self._on.lead()
        lead.briefing = None
        if self._alone is not None:
            lead.identity = self._alone
            assume(lead.identity)

    async def end_team(self, *, stays: bool) -> None:
        """End the team and its members; with `resumable` it can be resumed."""
        led = self._here()
        await led.close(stays=stays)
        if not stays:
            await self._on.record.rosters.delete(led.name)
            await self._on.record.forget(led.name)
        self._led = None

    async def spawn(self, order: Order, site: Site) -> Spawned | None:
        if not self.leads(site.agent) and site.agent.is_teammate:
            return None
        if order.name is None and order.team is None:
            return None
        if order.team is None and site.agent.is_lead and site.agent.team is None and self._on.implicit():
            await self._make_implied(site)
        if order.team is None and (self._led is None or not self.leads(site.agent)):
            return None
        led = self._here()
        if order.team not in (None, led.name):
            raise AgentRefused(f"You lead the team {led.name}, not {order.team!r}.")
        if not self.leads(site.agent):
            raise AgentRefused("Only the lead spawns teammates.")
        if order.name is None:
            raise AgentRefused("A teammate needs a name: give it as `name`.")
        return await led.spawn(order, site.call_id)

    async def resume(
        self,
        session: str,
        delivered: Container[str],
        serving: Collection[AgentStarted] = (),
        resting: Collection[AgentId] = (),
    ) -> TeamName | None:
        """Resume the team that an earlier process of the session led.

        `active_members` are the teammates without an end in the journal, `idle_members` those that ended with
        their process. The lead does not know of others, which had not started yet.
        """
        rosters = self._on.record.rosters
        there: set[AgentId] = set()
        known = {*resting, *(started.agent for started in serving)}

        def tell(lost: Lost) -> None:
            if lost.agent in known:
                ended = lost.ended(self._on.ids.short(), self._on.leader)
                self._on.emit(ended)
                self._on.queue.put(obituary(self._on.leader, ended.completion.id, ended.notice))

        for name in await rosters.list():
            team = await rosters.read(name)
            own = team is not None and team.lead_agent_id == agent_id(LEAD_NAME, team.name)
            if team is not None and own and team.lead_session_id == session:
                there = {AgentId(entered.agent_id) for entered in team.members}
                await self.take_up(team, delivered, tell)
                break
        for each in serving:
            if each.parent == self._on.leader and each.agent not in there:
                tell(Lost.untold(each))
        return None if self._led is None else self._led.name

    async def take_up(
        self, team: Team, delivered: Container[str], tell: Callable[[Lost], None] = lambda _: None
    ) -> None:
        """Resume a team; `delivered` is in its lead's transcript, `on_lost` is called for lost members."""
        led = self._lead(team)
        await led.take_up(team, tell)
        led.start(delivered)
        await self._brief(led)

    # For everybody

    async def send(
        self, to: str, text: str, summary: str, site: Site, *, fyi: bool = False
    ) -> tuple[Posted, ...] | None:
        led, me = self._led, self._name_of(site.agent)
        if led is None:
            return None
        of_the_team = self.leads(site.agent) or site.agent.is_teammate
        if to == "*" and of_the_team:
            others = [each for each in (LEAD_NAME, *led.names(), *await led.guests()) if each != me]
            if not others:
                raise AgentRefused("Nobody is in the team beside you.")
            return tuple([await self._post(led, me, each, text, summary, fyi=fyi) for each in others])
        if site.agent.is_teammate and not self.leads(site.agent) and to in LEAD_NAMES:
            return (await self._post(led, me, LEAD_NAME, text, summary, fyi=fyi),)
        found = led.find(to) or await led.guest(to)
        if found is None:
            return None
        if found == me:
            raise AgentRefused("That is you.")
        return (await self._post(led, me, found, text, summary, fyi=fyi),)

    async def ask_to_end(self, to: str, reason: str, site: Site) -> str:
        led = self._here()
        if not self.leads(site.agent):
            raise AgentRefused("Only the lead asks teammates to shut down.")
        post = self._post_named(to)
        if post is None:
            raise led.refuse_stranger(to)
        return await self._ask_to_end(led, post, reason)

    async def answer_end(self, request: str, reason: str, *, approve: bool, site: Site) -> None:
        led = self._here()
        post = led.post_of(site.agent.agent)
        if post is None:
            raise AgentRefused("Only a teammate answers a request to shut down.")
        await led.answer_end(post, request, reason, approve=approve)

    async def answer_plan(
        self, to: str, request: str, feedback: str, *, approve: bool, site: Site
    ) -> AgentName:
        led = self._here()
        if not self.leads(site.agent):
            raise AgentRefused("Only the lead answers plans.")
        found = led.find(to)
        if found is None:
            raise led.refuse_stranger(to)
        if self._on.approver() != "lead":
            raise AgentRefused("A person or a setting approves plans here, not you.")
        if not led.waits_for(found, request):
            raise AgentRefused(f"{found} has no open plan {request!r}, or it was answered already.")
        body = PlanApprovalResponse(
            request_id=request,
            approved=approve,
            timestamp=led.office.now,
            permission_mode=self._on.mode() if approve else None,
            feedback=None if approve else feedback,
        )
        await led.office.post_body(LEAD_NAME, found, body)
        return found

    async def stop(self, name: str, site: Site) -> bool:
        if self._led is None or self._led.find(name) is None:
            return False
        if not self.leads(site.agent):
            raise AgentRefused("Only the lead ends teammates.")
        return await self.end(name, "it was stopped by team-lead")

    def members(self) -> tuple[Teammate, ...]:
        return () if self._led is None else self._led.members()

    # For the session

    async def enlist(self, orders: Sequence[Order]) -> tuple[Spawned, ...]:
        """Add members without a call of the lead; all are admitted before the first of them starts."""
        return await self._here().enlist(orders)

    async def shut_down(self, name: str, reason: str) -> bool:
        """Shut a member down for a person; it is ended after the grace. False if there is none."""
        led, post = self._led, self._post_named(name)
        if led is None or post is None:
            return False
        await self._ask_to_end(led, post, reason)
        try:
            async with self._on.clock.deadline(self._on.grace):
                await post.gone.wait()
        except TimeoutError:
            await led.end(post, f"{reason}, and it did not agree within {self._on.grace:g} s")
        return True

    def agent(self, agent: AgentId) -> Agent | None:
        """Return the runner of a teammate in this process."""
        post = self.post_of(agent)
        return post.member.agent if post is not None and isinstance(post.member, Member) else None

    def entered(self, item: Item) -> None:
        if self._led is not None:
            self._led.entered(item)

    async def say(self, to: str, text: str) -> Reached | None:
        """Deliver a person's text to a teammate; None if there is none of that name."""
        found = None if self._led is None else self._led.find(to)
        if self._led is None or found is None:
            return None
        await self._led.office.post_text(PERSON, found, text, kind="notice")
        return Reached(to=self._led.agent_of(found), name=found, how="queued")

    async def end(self, name: str, why: str) -> bool:
        """End a teammate at once; False if there is none of that name."""
        post = self._post_named(name)
        if self._led is None or post is None:
            return False
        await self._led.end(post, why)
        return True

    def interrupt(self, name: str) -> bool | None:
        """End a teammate's working period; False if it did not work, None if there is no such teammate."""
        post = self._post_named(name)
        if post is None:
            return None
        if isinstance(post.member, Afar):
            return post.member.interrupt()
        assert isinstance(post.member, Member)
        return post.life is not None and post.member.interrupt(post.life)

    def leads(self, agent: Identity) -> bool:
        """Return True if the agent leads this team, or would create it."""
        return agent.agent == self._on.leader

    @property
    def led_name(self) -> str:
        return "" if self._led is None else self._led.name

    def has(self, name: str) -> bool:
        """Return True if a member has that name or id."""
        return self._led is not None and self._led.find(name) is not None

    def post_of(self, agent: AgentId) -> Post | None:
        return None if self._led is None else self._led.post_of(agent)

    def changed(self) -> None:
        """Notify waiters that a member's state changed."""
        if self._led is not None:
            self._led.changed()

    def permit(self, update: Suggestion) -> None:
        """Send a session-wide permission to the members in other processes."""
        if self._led is not None:
            self._led.permit(update)

    @property
    def working(self) -> bool:
        return self._led is not None and self._led.working

    async def quiet(self) -> None:
        """Wait until no teammate works or has work left."""
        if self._led is not None:
            await self._led.quiet()

    async def close(self) -> tuple[Glimpse, ...]:
        """End every teammate so that it can be resumed; return those that were working."""
        led, self._led = self._led, None
        return () if led is None else await led.close(stays=True)

    async def _make_implied(self, site: Site) -> None:
        """Create one implicit team, even if several calls of one message ask for it."""
        async with self._making:
            if self._led is None:
                name = f"session-{site.agent.session[:_SHORT]}"
                await self.create(name, description=None, kind=None, site=site)

    def _lead(self, team: Team) -> LedTeam:
        led = self._led = LedTeam(self._on, team, self._tasks)
        lead = self._on.lead()
        lead.briefing = partial(led.briefing, LEAD_NAME)
        if lead.identity.is_lead:
            self._alone = lead.identity
            lead.identity = replace(lead.identity, name=LEAD_NAME, team=team.name)
            assume(lead.identity)
        return led

    async def _brief(self, led: LedTeam) -> None:
        """Queue a briefing for the lead's next turn: what it knew before may be outdated."""
        text = reminder(await led.briefing(LEAD_NAME))
        letter = Letter(rank=0, by="runtime", text=text, wakes=False)
        self._on.queue.put(letter.item(self._on.ids.short(), self._on.leader))

    async def _ask_to_end(self, led: LedTeam, post: Post, reason: str) -> str:
        name = post.member.name
        request = shutdown_request_id(self._on.clock.now(), name)
        body = ShutdownRequest(request_id=request, sender=LEAD_NAME, reason=reason, timestamp=led.office.now)
        ident = f"{end_mark(post.entered)}{self._on.ids.short()}"
        await led.office.post_body(LEAD_NAME, name, body, ident=ident)
        led.asked_elsewhere(name, body)
        return request

    def _post_named(self, name: str) -> Post | None:
        """Return the handle of the member with this name or id."""
        led = self._led
        found = None if led is None else led.find(name)
        return None if led is None or found is None else led.post_of(led.agent_of(found))

    def _here(self) -> LedTeam:
        if self._led is None:
            raise AgentRefused(_NO_TEAM)
        return self._led

    def _name_of(self, agent: Identity) -> AgentName:
        if self.leads(agent):
            return LEAD_NAME
        try:
            name = agent_name(agent.name)
        except BadName:
            return AgentName(agent.agent)
        # A one-job agent may have a reserved name; it must not send mail under it.
        return AgentName(agent.agent) if name in RESERVED else name

    async def _post(
        self, led: LedTeam, sender: AgentName, to: AgentName, text: str, summary: str, *, fyi: bool
    ) -> Posted:
        receipt = await led.office.post_text(sender, to, text, summary=summary, fyi=fyi)
        if not fyi:
            led.has_mail(to)
        post = led.post_of(led.agent_of(sender))
        if post is not None and isinstance(post.member, Member) and to != LEAD_NAME:
            post.member.told = summary_to(to, summary)
        return Posted(sender=sender, to=to, color=led.color(to), standing=receipt.standing)
