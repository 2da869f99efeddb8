"""Admits members to a team: newly spawned, or resumed from an earlier process."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Protocol

from msgspec import Struct

from shoal.core.agents import Order
from shoal.core.caps import Started
from shoal.core.errors import AgentRefused, ShoalError
from shoal.core.ids import AgentId
from shoal.core.names import AgentName, TaskId
from shoal.core.record import TaskBoard
from shoal.core.roster import Member as Entered
from shoal.core.teams import Spawned
from shoal.runs.outfit import Outfit
from shoal.team.afar import Afar
from shoal.team.footing import Footing
from shoal.team.joining import Joiner
from shoal.team.mail_desk import MailDesk
from shoal.team.member import Member
from shoal.team.obituary import Lost
from shoal.team.taking_up import go_on


class Joined(Struct, frozen=True, kw_only=True):
    """A member that is in the roster and has not started."""

    member: Member | Afar
    entered: Entered
    counted: Started
    prompt: str = ""
    """First prompt."""
    delivered: Container[str] = ()
    """Ids of the items that its transcript already contains."""

    @property
    def spawned(self) -> Spawned:
        member = self.member
        return Spawned(
            teammate=member.id,
            name=self.entered.name,
            team=self.entered.team,
            color=self.entered.color,
            resolved=member.ready.resolved if isinstance(member, Afar) else member.outfit.resolved,
        )


class Host(Protocol):
    """Parts of the team that admission needs."""

    def desk(self, name: AgentName) -> MailDesk: ...

    def member(self, outfit: Outfit, counted: Started) -> Member: ...

    def listened_to(self, member: Afar, counted: Started) -> Afar: ...

    def show_activity(self, name: AgentName, *, active: bool) -> None: ...


class Intake:
    def __init__(self, on: Footing, joiner: Joiner, board: TaskBoard, host: Host) -> None:
        self._on = on
        self._joiner = joiner
        self._board = board
        self._host = host

    async def join(self, orders: Sequence[Order], call: str) -> list[Joined]:
        """Admit all and post their prompts once all have joined. If one fails, all are undone."""
        joined: list[Joined] = []
        try:
            for order in orders:
                joined.append(await self._join(order, call))  # noqa: PERF401 - undone one by one
            for each in joined:
                await self._joiner.prompt(each.entered, each.prompt)
        except BaseException:
            for each in joined:
                await self._part_with(each)
            raise
        return joined

    async def _join(self, order: Order, call: str) -> Joined:
        kind = order.kind or self._on.usual
        counted = self._joiner.count(kind)
        try:
            place = await self._on.elsewhere.place(kind)
            if place == "in-process":
                outfit, entered = await self._joiner.join(order, self._host.desk, call)
                return Joined(
                    member=self._host.member(outfit, counted),
                    entered=entered,
                    counted=counted,
                    prompt=order.prompt if outfit.prompt is None else outfit.prompt.text,
                    delivered=outfit.delivered,
                )
            afar, entered = await self._joiner.join_elsewhere(order, place, call)
            member = self._host.listened_to(afar, counted)
            return Joined(member=member, entered=entered, counted=counted, prompt=afar.ready.prompt)
        except BaseException:
            self._on.purse.ended(counted, begun=False)
            raise

    async def _part_with(self, joined: Joined) -> None:
        member, entered = joined.member, joined.entered
        self._on.purse.ended(joined.counted, begun=False)
        try:
            await (member.abandon() if isinstance(member, Afar) else member.finish())
            await self._on.record.rosters.leave(entered.team, entered.name)
        except ShoalError as error:
            self._on.note(f"Not everything of {entered.name} could be put away: {error}")

    async def take_up(
        self, entered: Entered, held: tuple[TaskId, ...], told: Container[str]
    ) -> Joined | Lost:
        """Resume a member of an earlier process with its claimed tasks.

        `lead_mail_ids` are the ids of all mail of the lead.
        """
        counted: Started | None = None
        try:
            counted = self._joiner.count(entered.agent_type, again=True)
            return await self._taken_up(entered, held, told, counted)
        except AgentRefused as refusal:
            why, out = f"it could not be taken up, and is out of the team: {refusal}", True
        except ShoalError as error:
            # The store cannot be read or written. That may be repaired, so nothing is discarded.
            why, out = f"it cannot be taken up now, but the next time: {error}", False
        if counted is not None:
            self._on.purse.ended(counted)
        self._on.note(f"The teammate {entered.name} is not here: {why}")
        agent = AgentId(entered.agent_id)
        return Lost(agent=agent, name=entered.name, kind=entered.agent_type, why=why, out=out)

    async def _taken_up(
        self, entered: Entered, held: tuple[TaskId, ...], told: Container[str], counted: Started
    ) -> Joined:
        why = ""
        try:
            place = await self._on.elsewhere.place(entered.agent_type)
            if place != "in-process":
                afar = self._host.listened_to(await self._joiner.again_elsewhere(entered, place), counted)
                return Joined(member=afar, entered=entered, counted=counted)
        except AgentRefused as refusal:
            if self._on.elsewhere.foreign(entered.agent_type):
                raise
            why = str(refusal)
        outfit = await self._joiner.again(entered, self._host.desk)
        if why:
            # A missing backend loses no member: its transcript is enough to resume it here.
            self._on.note(f"{entered.name} goes on in the lead's process: {why}")
        member = self._host.member(outfit, counted)
        await go_on(self._on, member, self._board, held, told)
        if member.state == "idle" and entered.is_active:
            self._host.show_activity(member.name, active=False)
        return Joined(member=member, entered=entered, counted=counted, delivered=outfit.delivered)
