"""External program in Shoal's teams: the lead of teams it creates, or a member of a team it joins."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from shoal.app.teams.record import AgentsRecord
from shoal.core.bodies import ShutdownRequest
from shoal.core.clock import Clock, iso
from shoal.core.envelopes import enveloped
from shoal.core.errors import AgentRefused, NoSuchInbox, NoSuchTeam
from shoal.core.ids import Ids, SessionId
from shoal.core.mail import Mail, Receipt
from shoal.core.names import LEAD_NAME, AgentName, TaskId, TeamName, agent_name, team_name
from shoal.core.roster import GUEST, Member, Newcomer, Team
from shoal.core.signing import Seal, Verdict
from shoal.stores.files.locks import SeatLock, is_held
from shoal.wire.bodies import body_of, body_text

MOST_AT_ONCE = 50
MOST_CHARACTERS = 100_000
"""Maximum characters per batch of messages; a longer message comes alone."""


class Seat(Struct, frozen=True, kw_only=True):
    """Name of the program in one team."""

    team: TeamName
    name: AgentName

    @property
    def leads(self) -> bool:
        return self.name == LEAD_NAME


class Letter(Struct, frozen=True, kw_only=True):
    mail: Mail
    verdict: Verdict
    kind: str
    """`message`, or the type of a protocol message."""


class Guest:
    """Team access of an external program. Its mail is signed with the team's key."""

    def __init__(self, record: AgentsRecord, *, clock: Clock, ids: Ids, cwd: Path) -> None:
        self._record = record
        self._clock = clock
        self._ids = ids
        self._cwd = cwd
        self._seats: dict[TeamName, Seat] = {}
        self._locks: dict[Seat, SeatLock] = {}
        self._shown: dict[Seat, tuple[str, ...]] = {}
        self.session = ids.uuid()
        """Lead session id of the teams it creates."""
        self.attempts: dict[tuple[TeamName, TaskId], str] = {}
        """Attempt ids of the tasks it holds."""

    # Identity

    async def sit(self, team: str, name: str) -> Seat:
        """Take over a member or the lead, or join as a new member. Raises `AgentRequestRefused`."""
        seat = Seat(team=team_name(team), name=agent_name(name))
        found = await self.team(seat.team)
        entered = found.member(seat.name)
        self._take_seat(seat)
        if seat.leads:
            self._refuse_a_led_team(found)
        elif entered is None:
            await self._enter(seat)
        elif entered.agent_type != GUEST:
            raise AgentRefused(
                f"{seat.name} is a member of {seat.team} that Shoal runs itself. Take another name."
            )
        self._seats[seat.team] = seat
        await self._hold_again(seat)
        return seat

    def seat(self, team: str | None) -> Seat:
        """Return the identity in the named team, or in the only one. Raises `AgentRequestRefused`."""
        if team is None and len(self._seats) == 1:
            return next(iter(self._seats.values()))
        known = ", ".join(self._seats) or "none"
        if team is None:
            raise AgentRefused(f"Which team? Name it. You are in: {known}.")
        seat = self._seats.get(team_name(team))
        if seat is None:
            raise AgentRefused(
                f"You are not in the team {team}. You are in: {known}. team_create makes a team that you "
                "lead; to join one, this server is started with --team NAME --as NAME."
            )
        return seat

    def seats(self) -> tuple[Seat, ...]:
        return tuple(self._seats.values())

    # Teams

    async def create(self, name: str, description: str | None) -> Team:
        lead = Newcomer(name=LEAD_NAME, agent_type=LEAD_NAME, model="", cwd=str(self._cwd), prompt="")
        team = await self._record.rosters.create(
            team_name(name), lead=lead, session=self.session, description=description
        )
        seat = self._seats[team.name] = Seat(team=team.name, name=LEAD_NAME)
        self._take_seat(seat)
        return team

    async def team(self, name: str) -> Team:
        """Return the team. Raises `TeamNotFound`."""
        found = await self._record.rosters.read(team_name(name))
        if found is None:
            known = ", ".join(await self._record.rosters.list()) or "none"
            raise NoSuchTeam(f"There is no team {name}. There are: {known}.")
        return found

    async def delete(self, seat: Seat) -> None:
        """Delete the team. Raises `TeamBusy` while a member works, `AgentRequestRefused` for non-leads."""
        if not seat.leads:
            raise AgentRefused(f"Only its lead deletes the team {seat.team}.")
        await self._record.rosters.delete(seat.team)
        await self._record.forget(seat.team)
        del self._seats[seat.team]
        self._locks.pop(seat).release()

    async def called(self, seat: Seat, newcomer: Newcomer) -> Member:
        """Add a member that Shoal will run; its prompt is its first message."""
        if not seat.leads:
            raise AgentRefused(f"Only its lead starts members of the team {seat.team}.")
        return await self._record.join(seat.team, newcomer)

    async def gone(self, team: TeamName, name: AgentName) -> None:
        """Remove a member that has ended, and release its tasks."""
        await self._record.board(team).release_all(name)
        await self._record.rosters.leave(team, name)

    # Mail

    async def send(
        self, seat: Seat, to: str, text: str, summary: str, *, fyi: bool = False
    ) -> tuple[Receipt, ...]:
        team = await self.team(seat.team)
        others = [member.name for member in team.members if member.name != seat.name]
        wanted = others if to == "*" else [agent_name(to.removesuffix(f"@{team.name}"))]
        if not set(wanted) <= set(others) or not wanted:
            raise AgentRefused(f"{to!r} is nobody to write to. In {team.name} are: {', '.join(others)}.")
        me = team.member(seat.name)
        color = None if me is None else me.color
        receipts = []
        for each in wanted:
            mail = self._mail(seat, text, summary=summary or None, color=color, fyi=fyi)
            mail = enveloped(mail, "broadcast" if to == "*" else "message", from_lead=seat.leads)
            try:
                receipts.append(await self._record.post(team.name, each, mail))
            except NoSuchInbox as error:
                raise AgentRefused(f"{each} has no inbox in {team.name}: {error}") from error
        return tuple(receipts)

    async def ask_to_end(self, seat: Seat, to: str, reason: str) -> str:
        """Ask a member to shut down; return the request id. The answer comes by mail."""
        if not seat.leads:
            raise AgentRefused("Only the lead asks members to shut down.")
        team, name = await self.team(seat.team), agent_name(to)
        if team.member(name) is None:
            raise AgentRefused(f"There is no {name} in the team {team.name}.")
        body = ShutdownRequest(
            request_id=f"shutdown-{self._ids.short()}@{name}",
            sender=seat.name,
            reason=reason,
            timestamp=iso(self._clock.now()),
        )
        mail = enveloped(self._mail(seat, body_text(body)), ShutdownRequest, from_lead=True)
        await self._record.post(team.name, name, mail)
        return body.request_id

    async def take(self, seat: Seat, *, wait: float, limit: int) -> tuple[Letter, ...]:
        """Return the oldest unread mail; wait for some if there is none.

        Messages of the previous call are marked as read now, when the program shows that it is alive. A
        program that dies before gets them again.
        """
        boxes = self._record.mailboxes(seat.team)
        await self.team(seat.team)
        await boxes.open(seat.name, foreign=not seat.leads)
        if shown := self._shown.pop(seat, ()):
            await boxes.mark(seat.name, shown)
        mail = await boxes.take(seat.name, limit=min(limit, MOST_AT_ONCE))
        if not mail and wait > 0:
            try:
                async with self._clock.deadline(wait):
                    await boxes.wait(seat.name)
            except TimeoutError:
                return ()
            mail = await boxes.take(seat.name, limit=min(limit, MOST_AT_ONCE))
        letters = tuple(self._letter(seat, each) for each in _at_once(mail))
        self._shown[seat] = tuple(letter.mail.id for letter in letters)
        if seat.leads:
            for letter in letters:
                if letter.kind == "shutdown_approved" and letter.verdict != "forged":
                    await self.gone(seat.team, letter.mail.sender)
        return letters

    def _letter(self, seat: Seat, mail: Mail) -> Letter:
        body = body_of(mail)
        return Letter(
            mail=mail,
            verdict=Seal(seat.team, self._record.key(seat.team)).verdict(mail, seat.name),
            kind="message" if body is None else str(body.__struct_config__.tag),
        )

    def _mail(
        self,
        seat: Seat,
        text: str,
        *,
        summary: str | None = None,
        color: str | None = None,
        fyi: bool = False,
    ) -> Mail:
        return Mail(
            id=self._ids.uuid(),
            sender=seat.name,
            text=text,
            timestamp=iso(self._clock.now()),
            summary=summary,
            color=color,
            fyi=fyi,
        )

    # Joining

    def _take_seat(self, seat: Seat) -> None:
        # An inbox has one reader.
        if seat not in self._locks:
            self._locks[seat] = SeatLock(self._record.home, seat.team, seat.name)

    def _refuse_a_led_team(self, team: Team) -> None:
        if is_held(self._record.home, SessionId(team.lead_session_id)):
            raise AgentRefused(
                f"The team {team.name} is led by a live session of Shoal. Join it under another name, or "
                f"stop it first: shoal team stop {team.name}"
            )

    async def _enter(self, seat: Seat) -> None:
        newcomer = Newcomer(
            name=seat.name,
            agent_type=GUEST,
            model="",
            cwd=str(self._cwd),
            prompt="",
            backend_type="process",
            tmux_pane_id="process",
        )
        member = await self._record.rosters.join(seat.team, newcomer)
        if member.name != seat.name:
            await self._record.rosters.leave(seat.team, member.name)
            raise AgentRefused(f"Another {seat.name} joined the team {seat.team} just now.")
        # It never keeps a lead from deleting the team: nobody can tell whether the program is running.
        await self._record.rosters.change(seat.team, seat.name, is_active=False)
        await self._record.mailboxes(seat.team).open(seat.name, foreign=True)
        told = f"{seat.name}, another program, has joined the team and can be written to."
        await self.send(seat, LEAD_NAME, told, "a guest joined", fyi=True)

    async def _hold_again(self, seat: Seat) -> None:
        board = self._record.board(seat.team)
        for each in await board.reclaim(seat.name):
            task = await board.get(each)
            if task is not None and task.attempt is not None:
                self.attempts[seat.team, each] = task.attempt


def _at_once(mail: tuple[Mail, ...]) -> tuple[Mail, ...]:
    size = 0
    for number, each in enumerate(mail):
        size += len(each.text)
        if size > MOST_CHARACTERS:
            return mail[: max(1, number)]
    return mail
