"""Supervises the team that a session leads: its members, its mail, and whether it is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import partial

from shoal.core.agents import Glimpse, Order
from shoal.core.arrivals import Item
from shoal.core.caps import Started
from shoal.core.errors import AgentRefused, RecordError, ShoalError, StoreError
from shoal.core.groups import outlive_cancel
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName, TaskId
from shoal.core.permissions import Suggestion
from shoal.core.roster import GUEST, Team, agent_id
from shoal.core.roster import Member as Entered
from shoal.core.signing import Seal
from shoal.core.tasks import any_claimable
from shoal.core.teams import Spawned, Teammate
from shoal.runs.endings import Ending
from shoal.runs.outfit import Outfit
from shoal.team.activity import Activity
from shoal.team.afar import Afar
from shoal.team.authenticity import ForeignPrograms, Verifier
from shoal.team.briefing import briefing
from shoal.team.departures import Departures, is_foreign
from shoal.team.doorkeeper import Doorkeeper
from shoal.team.footing import Footing
from shoal.team.intake import Intake, Joined
from shoal.team.joining import Joiner
from shoal.team.lead_mail import LeadMail
from shoal.team.mail_desk import MailDesk
from shoal.team.mailroom import Mailroom
from shoal.team.member import Member
from shoal.team.obituary import Lost, glimpse
from shoal.team.office import Office
from shoal.team.post import Post
from shoal.team.prompts import nobody_called


class LedTeam(Departures):
    """Supervisor of one team; `tasks` outlives it."""

    def __init__(self, on: Footing, team: Team, tasks: asyncio.TaskGroup) -> None:
        self.name = team.name
        self._team = team
        self._on = on
        self._tasks = tasks
        boxes = on.record.mailboxes(team.name)
        self._colors = {member.name: member.color for member in team.members}
        key = on.record.key(team.name)
        self.office = Office(boxes, self._colors, clock=on.clock, ids=on.ids, seal=Seal(team.name, key))
        verifier = Verifier(team.name, key, trusted=ForeignPrograms(boxes), policy=on.trust_unsigned)
        self._board = on.record.board(team.name)
        self._room = Mailroom(boxes, on.clock, on.note, self.changed)
        self._door = Doorkeeper(on, self._room, verifier, self.changed)
        self._lead_mail = LeadMail(on, self.office, self, tasks)
        self._joiner = Joiner(on, team, self.office, verifier)
        self._intake = Intake(on, self._joiner, self._board, self)
        self._activity = Activity(on.record.rosters, team.name, on.clock, on.note)
        self._posts: dict[AgentName, Post] = {}
        self._leaving: set[Post] = set()
        """Members that ended and whose end is not announced yet."""
        self._version = 0
        self._news = asyncio.Event()
        self._chores: list[asyncio.Task[None]] = []

    def start(self, delivered: Container[str] = ()) -> None:
        """Start delivering mail to the lead; its transcript already contains `delivered`."""
        pump = self._door.pump(LEAD_NAME, self._on.leader, self._lead_mail.bring, delivered)
        for chore in (pump, self._room.mark_what_is_settled(), self._activity.keep(), self._watch()):
            self._chores.append(self._tasks.create_task(chore))

    # Members

    async def spawn(self, order: Order, call: str) -> Spawned:
        (spawned,) = await self.enlist((order,), call)
        return spawned

    async def enlist(self, orders: Sequence[Order], call: str = "") -> tuple[Spawned, ...]:
        """Admit all before the first of them starts. If one fails, all are undone."""
        joined = await self._intake.join(orders, call)
        for each in joined:
            self._colors[each.entered.name] = each.entered.color
            self._begin(each)
        return tuple(each.spawned for each in joined)

    async def take_up(self, team: Team, tell: Callable[[Lost], None]) -> None:
        """Resume the members of an earlier process; a member that was cut off at work continues.

        `on_lost` is called for members that cannot be resumed before they leave the team. If that cannot be
        journaled, they stay for the next resume.
        """
        # Before anybody looks for a free task: claimed tasks stay with their owner.
        ours = [entered for entered in team.members if entered.agent_type != GUEST]
        held = {entered.name: await self._board.reclaim(entered.name) for entered in ours}
        told = await self.office.told(LEAD_NAME)
        async with asyncio.TaskGroup() as starting:
            taken = [
                starting.create_task(self._take_up(entered, held[entered.name], told))
                for entered in ours
                if entered.name != LEAD_NAME
            ]
        for lost in filter(None, (task.result() for task in taken)):
            tell(lost)
            if lost.out:
                await self._board.release_all(AgentName(lost.name))
                await self._on.record.rosters.leave(self.name, AgentName(lost.name))

    async def _take_up(self, entered: Entered, held: tuple[TaskId, ...], told: Container[str]) -> Lost | None:
        joined = await self._intake.take_up(entered, held, told)
        if isinstance(joined, Lost):
            return joined
        self._begin(joined)
        try:
            if (asked := await self._joiner.asked_to_end(entered)) is not None:
                self.asked_to_end(entered.name, asked)
        except ShoalError as error:
            self._on.note(f"Whether {entered.name} was asked to shut down cannot be read: {error}")
        return None

    def find(self, name: str) -> AgentName | None:
        """Return the name of a member, given its name or id."""
        post = self._posts.get(AgentName(name.removesuffix(f"@{self.name}")))
        return None if post is None else post.member.name

    async def guests(self) -> tuple[AgentName, ...]:
        """Return the names of external members, which joined by themselves and are only in the roster."""
        team = await self._on.record.rosters.read(self.name)
        members = () if team is None else team.members
        return tuple(each.name for each in members if each.agent_type == GUEST)

    async def guest(self, name: str) -> AgentName | None:
        return next((each for each in await self.guests() if name in (each, f"{each}@{self.name}")), None)

    def post_of(self, agent: AgentId) -> Post | None:
        post = self._posts.get(AgentName(agent.removesuffix(f"@{self.name}")))
        return post if post is not None and post.member.id == agent else None

    def color(self, name: AgentName) -> str | None:
        return self._colors.get(name)

    def names(self) -> tuple[AgentName, ...]:
        return tuple(self._posts)

    def members(self) -> tuple[Teammate, ...]:
        return tuple(post.member.teammate() for post in self._posts.values())

    async def briefing(self, name: AgentName) -> str:
        """Build the summary for a lead or member whose conversation no longer contains it."""
        try:
            team = await self._on.record.rosters.read(self.name)
            tasks = await self._board.unfinished(), len(await self._board.look())
        except (RecordError, StoreError) as error:
            return f"How your team {self.name} stands cannot be read now: {error}"
        return briefing(team or self._team, name, self.members(), *tasks)

    def entered(self, item: Item) -> None:
        """Settle mail that is now in an agent's transcript."""
        owner = LEAD_NAME if item.to == self._on.leader else AgentName(item.to.removesuffix(f"@{self.name}"))
        self._room.settled(item.id, owner)
        self.changed()

    def permit(self, update: Suggestion) -> None:
        """Send a session-wide permission to the members in other processes."""
        for post in self._posts.values():
            if isinstance(post.member, Afar):
                post.member.permit(update)

    async def close(self, *, stays: bool) -> tuple[Glimpse, ...]:
        """End all members and chores; return the members that were working. `resumable` keeps them."""
        posts = tuple(self._posts.values())
        busy = tuple(glimpse(self._on, post) for post in posts if post.member.state == "running")
        async with asyncio.TaskGroup() as ending:
            for post in posts:
                ending.create_task(self.end(post, "the session ended", silent=True, stays=stays))
            for post in tuple(self._leaving):
                ending.create_task(self._left(post))
        self._lead_mail.close()
        for chore in self._chores:
            chore.cancel()
        await self._room.flush()
        await self._activity.flush()
        return busy

    # Idle state

    @property
    def working(self) -> bool:
        # Active members first: then the rest of a large team need not be checked.
        if self._leaving or self._door.asking or self._activity.at_work:
            return True
        return any(
            post.member.is_busy or self._on.leads_at_work(post.member.id) for post in self._posts.values()
        )

    async def quiet(self) -> None:
        """Wait until no member works or has work left, then release what was held for the lead."""
        while True:
            version, news = self._version, self._news
            if await self._is_quiet():
                self._lead_mail.release()
                await self._activity.flush()
                return
            if version == self._version:
                await news.wait()

    def changed(self) -> None:
        self._version += 1
        news, self._news = self._news, asyncio.Event()
        news.set()
        self._on.changed()

    # For the mail

    def waits_for(self, name: AgentName, request: str, mail: str = "") -> bool:
        post = self._posts.get(name)
        return post is None or post.member.waits_for(request, mail)

    def is_idle(self, name: AgentName) -> None:
        post = self._posts.get(name)
        if post is not None and is_foreign(post.member):
            post.member.heard(idle=True)

    def has_mail(self, name: AgentName) -> None:
        """Mark a foreign program as working until its next idle notice: it reports no start."""
        post = self._posts.get(name)
        if post is not None and is_foreign(post.member):
            post.member.heard(idle=False)

    def is_ours(self, name: AgentName) -> bool:
        post = self._posts.get(name)
        return post is not None and not is_foreign(post.member)

    def agent_of(self, name: AgentName) -> AgentId:
        return AgentId(agent_id(name, self.name))

    def settled(self, mail: str) -> None:
        self._room.settled(mail, LEAD_NAME)

    def show_activity(self, name: AgentName, *, active: bool) -> None:
        self._activity.show(name, active=active)

    # For admission

    def desk(self, name: AgentName) -> MailDesk:
        return MailDesk(name, self.name, self.office, self._on.desk, self._lead_mail.withdraw)

    def member(self, outfit: Outfit, counted: Started) -> Member:
        desk = outfit.agent.surroundings.desk
        assert isinstance(desk, MailDesk)
        outfit.agent.briefing = partial(self.briefing, AgentName(outfit.agent.identity.name))
        return Member(self._on, outfit, counted, desk=desk, office=self.office, board=self._board, stage=self)

    def listened_to(self, member: Afar, counted: Started) -> Afar:
        """Connect a remote member's callbacks to this team."""
        name = member.name
        member.counted_as(counted)
        member.changed = self.changed
        member.withdrawn = self._lead_mail.withdraw
        member.agreed = lambda request: self.agreed_to_end(name, request)
        member.lost = lambda: self._hold_tasks(name)
        return member

    async def _hold_tasks(self, name: AgentName) -> None:
        """Keep the tasks of a lost process claimed until the member restarts or ends."""
        # Retried before the restart.
        with suppress(ShoalError):
            await self._board.reclaim(name)

    def _begin(self, joined: Joined) -> None:
        member, since = joined.member, self._on.clock.monotonic()
        post = self._posts[member.name] = Post(member, joined.entered, joined.counted, since=since)
        self._on.tell(member.started)
        if isinstance(member, Member):
            pump = self._door.pump(member.name, member.id, member.bring, joined.delivered)
            post.pump = self._tasks.create_task(pump)
        post.life = self._tasks.create_task(self._live(post))
        self.changed()

    async def _live(self, post: Post) -> None:
        end = await post.member.live()
        try:
            self._lead_mail.withdraw_all_of(post.member.name)
            while await self._revived(post):
                end = await post.member.live()
                self._lead_mail.withdraw_all_of(post.member.name)
        except asyncio.CancelledError:
            # It is ended while its next process starts.
            if not post.member.stopping:
                raise
            outlive_cancel()
            end = Ending(status="killed", text="", detail=post.member.stopping)
        post.life = None
        await self._leave(post, end)

    async def _revived(self, post: Post) -> bool:
        """Restart a member whose process died from its transcript; return True if it was restarted."""
        dead = post.member
        if not isinstance(dead, Afar) or not dead.died or dead.is_foreign or dead.stopping:
            return False
        if post.approved is not None or post.revivals >= self._on.revivals:
            return False
        post.revivals += 1
        try:
            await self._board.reclaim(dead.name)
            team = await self._on.record.rosters.read(self.name)
            entered = None if team is None else team.member(dead.name)
            if entered is None:
                return False
            place = await self._on.elsewhere.place(entered.agent_type)
            alive = self.listened_to(await self._joiner.again_elsewhere(entered, place), post.counted)
        except ShoalError as error:
            self._on.note(f"{dead.name} could not be started again: {error}")
            return False
        alive.request, alive.witness, post.member = dead.request, dead.witness, alive
        self._on.tell(alive.started)
        self._on.note(f"The process of {dead.name} died ({dead.died}); it goes on in a new one.")
        self.changed()
        return True

    async def _watch(self) -> None:
        """Release what was held for the lead whenever the team becomes quiet."""
        while True:
            news = self._news
            if self._lead_mail.holds and await self._is_quiet():
                self._lead_mail.release()
            await news.wait()

    async def _is_quiet(self) -> bool:
        """Return True if the team is quiet; repeats while the team changes during the check."""
        while True:
            version = self._version
            posts = tuple(self._posts.values())
            if self.working:
                return False
            if await self._room.holds_more():
                return False
            for post in posts:
                if not await post.member.at_rest():
                    return False
            if any(post.member.may_claim for post in posts) and await self._has_claimable():
                return False
            if version == self._version:
                return True

    async def _has_claimable(self) -> bool:
        try:
            return any_claimable({task.id: task for task in await self._board.unfinished()})
        except ShoalError as error:
            # Nobody can claim a task from it either.
            self._on.note(f"The board of {self.name} cannot be read: {error}")
            return False

    def refuse_stranger(self, name: str) -> AgentRefused:
        return AgentRefused(nobody_called(name, self.name, (LEAD_NAME, *self._posts)))
