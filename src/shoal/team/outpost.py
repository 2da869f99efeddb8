"""Hosts one member in its own process, with its mail and its channel to the lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent import Agent
from shoal.core.agents import Glimpse, KeptWork, Order, Reached
from shoal.core.arrivals import Item
from shoal.core.bodies import ShutdownRejected, ShutdownRequest
from shoal.core.caps import Started
from shoal.core.errors import AgentRefused, RecordError, ShoalError, StoreError
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, PERSON, AgentName, TeamName
from shoal.core.permissions import Mode, Suggestion
from shoal.core.record import TaskBoard
from shoal.core.roster import Member as Entered
from shoal.core.roster import Team
from shoal.core.signing import Seal
from shoal.core.teams import Teammate
from shoal.runs.endings import Ending
from shoal.runs.greeting import greeted
from shoal.team.activity import Activity
from shoal.team.authenticity import ForeignPrograms, Verifier
from shoal.team.briefing import as_entered, briefing
from shoal.team.doorkeeper import Doorkeeper
from shoal.team.footing import Footing
from shoal.team.joining import Joiner, closing
from shoal.team.lead_link import LeadLink
from shoal.team.mail_desk import MailDesk
from shoal.team.mailroom import Mailroom
from shoal.team.member import Member
from shoal.team.obituary import approved
from shoal.team.office import Office
from shoal.team.outpost_tools import OutpostTools
from shoal.team.taking_up import go_on
from shoal.wire import outpost as words

LEAD_GONE = "its lead is gone"


class Membership(Struct, frozen=True, kw_only=True):
    """Member and team that a process runs as."""

    name: AgentName
    team: TeamName
    order: Order | None
    """Request it was spawned with; None if it resumes from its transcript."""
    mode: Mode | None = None
    call: str = ""
    link: LeadLink | None = None
    """Channel to a Shoal lead; None if another program started this process."""
    session: str = ""
    """Session of a Shoal lead, of whose run this process is a part."""
    run: str = ""
    """Directory of the run."""
    transcript: str = ""
    """Transcript of the lead."""
    snapshot: str = ""
    """Snapshot of the person's shell, if the lead has one."""


class Outpost(OutpostTools):
    """Observer of its one member, and the team as that member's tools reach it."""

    def __init__(self, on: Footing, membership: Membership, working: Callable[[], bool]) -> None:
        """`has_working_agents` returns True if agents that the member started are working."""
        super().__init__(on, membership.team)
        self._is = membership
        self._link = membership.link
        self._working = working
        self.awaits_hooks: Callable[[], bool] = lambda: False
        """Returns True if hooks are running that may wake the member."""
        self._life: asyncio.Task[Ending] | None = None
        self._leaving = asyncio.Event()
        self._stands: words.Stands | None = None
        self._pings: asyncio.TaskGroup | None = None
        self._room = Mailroom(on.record.mailboxes(membership.team), on.clock, on.note, self._say_again)
        self._activity = Activity(on.record.rosters, membership.team, on.clock, on.note)
        # A foreign program that started this process is its lead, but has none of our keys.
        self._key = None if membership.link is None else on.record.key(membership.team)
        trusted = (LEAD_NAME,) if self._key is None else ForeignPrograms(on.record.mailboxes(membership.team))
        self._verifier = Verifier(membership.team, self._key, trusted=trusted, policy=on.trust_unsigned)
        self._door = Doorkeeper(on, self._room, self._verifier, self.changed)
        self._member: Member | None = None

    async def __aenter__(self) -> Outpost:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def serve(self) -> Ending:
        """Run the member to its end. Raises `AgentRefused` if it cannot be created."""
        team, entered = await self._place()
        self.office = Office(
            self._on.record.mailboxes(team.name),
            {each.name: each.color for each in team.members},
            clock=self._on.clock,
            ids=self._on.ids,
            seal=None if self._key is None else Seal(team.name, self._key),
        )
        member = self._member = await self._made(team, entered)
        if self._link is not None:
            prompt = "" if member.outfit.prompt is None else member.outfit.prompt.text
            ready = words.Ready(started=member.started, resolved=member.outfit.resolved, prompt=prompt)
            self._link.send(ready)
            self.changed()
        async with asyncio.TaskGroup() as tasks:
            self._pings = tasks
            life = self._life = tasks.create_task(member.live())
            pump = self._door.pump(member.name, member.id, member.bring, member.outfit.delivered)
            usual = (pump, self._room.mark_what_is_settled(), self._activity.keep())
            chores = [tasks.create_task(chore) for chore in usual]
            if self._link is not None:
                chores.append(tasks.create_task(self._listen(self._link)))
            end = await life
            for chore in chores:
                chore.cancel()
        await self._room.flush()
        await self._activity.flush()
        work = await self._put_away(member)
        await self._last_word(member, end, work)
        return end

    def leave(self, why: str, *, stays: bool = False) -> None:
        """Ask the member to end, whatever it is doing."""
        member, life = self._member, self._life
        if member is None or life is None:
            return
        member.stopping, member.stays = member.stopping or why, member.stays or stays
        self._leaving.set()
        # A task that is cancelled before its first step never runs, and would never report its end.
        asyncio.get_running_loop().call_soon(life.cancel)

    def permit(self, update: Suggestion) -> None:
        """Send a session-wide permission to the lead."""
        if self._link is not None:
            self._link.send(words.Permits(update=update))

    # Observer of the member

    def show_activity(self, name: AgentName, *, active: bool) -> None:
        self._activity.show(name, active=active)

    def asked_to_end(self, name: AgentName, request: ShutdownRequest) -> None:
        """Report the change; the lead enforces the grace."""
        self.changed()

    def changed(self) -> None:
        member = self._member
        if member is None or self._link is None:
            return
        state = "running" if member.state == "idle" and self._has_work(member) else member.state
        stands = words.Stands(state=state, claiming=member.claiming, claims=member.claims)
        if stands != self._stands:
            self._stands = stands
            self._link.send(stands)

    def _say_again(self) -> None:
        """Resend the status to a lead that saw waiting mail here which was then skipped."""
        self._stands = None
        self.changed()

    # Shutting down

    async def answer_end_of(self, request: str, reason: str, *, approve: bool) -> None:
        member = self._member
        asked = None if member is None else member.request
        if member is None or asked is None or request not in ("", asked.request_id):
            raise AgentRefused("There is no such request to shut down, or it was answered already.")
        if not approve and self.rejected:
            raise AgentRefused("The lead asks for the second time: finish what you must, and approve.")
        if approve:
            self.agreed = asked
            if self._link is not None:
                self._link.send(words.Agreed(request=asked.request_id))
            self.leave("it shut down as it was asked to")
            # This is the member's own tool call and ends with it: its model must not be called after this.
            await asyncio.Event().wait()
        self.rejected = True
        member.request = None
        body = ShutdownRejected(
            request_id=asked.request_id, sender=member.name, reason=reason, timestamp=self.office.now
        )
        await self.office.post_body(member.name, LEAD_NAME, body)

    # For the session

    def agent(self, agent: AgentId) -> Agent | None:
        member = self._member
        return member.agent if member is not None and member.id == agent else None

    def entered(self, item: Item) -> None:
        self._room.settled(item.id, self._is.name)
        self.changed()

    @property
    def working(self) -> bool:
        return self._member is not None and self._member.is_busy

    def members(self) -> tuple[Teammate, ...]:
        if self._seen is not None:
            return as_entered(self._seen)
        return () if self._member is None else (self._member.teammate(),)

    async def quiet(self) -> None:
        return

    async def close(self) -> tuple[Glimpse, ...]:
        return ()

    async def say(self, to: str, text: str) -> Reached | None:
        """Deliver a person's text to the member; None if it has another name."""
        member = self._member
        if member is None or to not in (member.name, member.id):
            return None
        await self.office.post_text(PERSON, member.name, text, kind="notice")
        return Reached(to=member.id, name=member.name, how="queued")

    def interrupt(self, name: str) -> bool | None:
        member, life = self._member, self._life
        if member is None or life is None or name not in (member.name, member.id):
            return None
        return member.interrupt(life)

    async def end(self, name: str, why: str) -> bool:
        if self._member is None or name not in (self._is.name, self._member.id):
            return False
        self.leave(why)
        return True

    async def _place(self) -> tuple[Team, Entered]:
        team = await self._on.record.rosters.read(self._is.team)
        entered = None if team is None else team.member(self._is.name)
        if team is None or entered is None:
            raise AgentRefused(f"There is no {self._is.name} in the team {self._is.team}.")
        return team, entered

    async def _made(self, team: Team, entered: Entered) -> Member:
        on, name = self._on, entered.name
        joiner = Joiner(on, team, self.office, self._verifier)
        desk = MailDesk(name, team.name, self.office, on.desk, self._withdrawn)
        newcomer = await joiner.newcomer(entered, self._is.mode, desk, self._is.call)
        order, board = self._is.order, on.record.board(team.name)
        if order is None:
            outfit = await on.outfitter.again(newcomer)
        else:
            order = replace(order, name=name, kind=entered.agent_type)
            outfit = await greeted(await on.outfitter.fresh(order, newcomer))
        outfit = closing(outfit, newcomer.witness)
        # With a foreign lead, nothing limits how many members work at once.
        counted = None if self._link is None else Started(kind=entered.agent_type, depth=1, works=False)
        member = Member(on, outfit, counted, desk=desk, office=self.office, board=board, stage=self)
        member.agent.briefing = partial(self._briefing, team, name, board)
        if order is None:
            told = await self.office.told(LEAD_NAME)
            await go_on(on, member, board, await board.reclaim(name), told)
            member.request = await joiner.asked_to_end(entered)
            if member.state == "idle" and entered.is_active:
                # Its earlier process died before it wrote this.
                self.show_activity(name, active=False)
        return member

    async def _briefing(self, joined: Team, name: AgentName, board: TaskBoard) -> str:
        try:
            team = await self._on.record.rosters.read(joined.name) or joined
            tasks = await board.unfinished(), len(await board.look())
            return briefing(team, name, as_entered(team), *tasks)
        except (RecordError, StoreError) as error:
            return f"How your team {joined.name} stands cannot be read now: {error}"

    def _withdrawn(self, request: str) -> None:
        if self._link is not None:
            self._link.send(words.Withdrawn(request=request))

    async def _listen(self, link: LeadLink) -> None:
        await link.listen(self._obey)
        self.leave(LEAD_GONE, stays=True)

    def _obey(self, said: words.Down) -> None:
        member, life = self._member, self._life
        assert member is not None
        assert life is not None
        assert self._pings is not None
        match said:
            case words.Ping(number=number):
                self._pings.create_task(self._pong(member, number))
            case words.Permits(update=update):
                self._on.permit(update)
            case words.Cut():
                member.interrupt(life)
            case words.Leave(why=why, stays=stays):
                self.leave(why, stays=stays)
            case words.Granted() | words.Answers():
                return

    async def _pong(self, member: Member, number: int) -> None:
        busy = self._has_work(member) or self._working() or await self._room.holds_more()
        if self._link is not None:
            self._link.send(words.Pong(number=number, busy=busy))

    def _has_work(self, member: Member) -> bool:
        at_work = member.state in ("running", "created") or member.claiming
        waits = bool(self._on.queue.size(member.id)) or self._door.asking > 0 or self.awaits_hooks()
        return at_work or waits

    async def _put_away(self, member: Member) -> KeptWork | None:
        work: KeptWork | None = None
        try:
            try:
                await self._on.stop_agents_of(member.id, "the teammate that started it ended")
            finally:
                work = await member.finish()
        except ShoalError as error:
            self._on.note(f"Not everything of {member.name} could be put away: {error}")
        return work

    async def _last_word(self, member: Member, end: Ending, work: KeptWork | None) -> None:
        if self._link is not None:
            left = words.Left(status=end.status, text=end.text, detail=end.detail, work=work)
            self._link.send(left)
        elif self.agreed is not None:
            _, entered = await self._place()
            pane, backend = entered.tmux_pane_id, entered.backend_type or ""
            body = approved(self.agreed, member.name, pane, backend, self.office.now)
            await self.office.post_body(member.name, LEAD_NAME, body)
