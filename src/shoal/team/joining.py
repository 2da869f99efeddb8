"""Registers agents as team members, and restores them in a later process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from shoal.core.agents import KeptWork, Order, Resolved
from shoal.core.bodies import ShutdownApproved, ShutdownRejected, ShutdownRequest
from shoal.core.caps import Refusal, Started
from shoal.core.errors import AgentRefused, BadName
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName, agent_name
from shoal.core.permissions import Mode
from shoal.core.roster import BackendType, Team, agent_id
from shoal.core.roster import Member as Entered
from shoal.core.roster import Newcomer as Joining
from shoal.runs.greeting import greeted
from shoal.runs.outfit import Newcomer, Outfit, Seat
from shoal.runs.witness import Witness
from shoal.team.afar import Afar
from shoal.team.authenticity import Verifier
from shoal.team.footing import Footing
from shoal.team.mail_desk import MailDesk
from shoal.team.office import Office
from shoal.team.prompts import section

DeskOf: TypeAlias = Callable[[AgentName], MailDesk]
_PROMPT, _END = "prompt-", "end-"
_MODES: dict[str, Mode] = {
    "plan": "plan",
    "delegate": "acceptEdits",
    "acceptEdits": "acceptEdits",
    "bypassPermissions": "bypassPermissions",
    "default": "default",
    "dontAsk": "dontAsk",
}
"""Permission mode for each `mode` value of a spawn call."""


def mode_of(wish: str | None) -> Mode | None:
    if wish is None:
        return None
    if wish not in _MODES:
        raise AgentRefused(f"{wish!r} is no mode for a teammate. There are: {', '.join(_MODES)}.")
    return _MODES[wish]


def first_mode(entered: Entered) -> Mode | None:
    return "plan" if entered.plan_mode_required else None


def wished_name(text: str) -> AgentName:
    try:
        return agent_name(text)
    except BadName as error:
        raise AgentRefused(str(error)) from error


class Joiner:
    """Registers the members of one team in its roster, with an inbox and their prompt as first message."""

    def __init__(self, on: Footing, team: Team, office: Office, verifier: Verifier) -> None:
        self._on = on
        self._team = team
        self._office = office
        self._verifier = verifier

    def count(self, kind: str, *, again: bool = False) -> Started:
        """Reserve a slot; a member uses it only while it works, a foreign program always."""
        idle = not self._on.elsewhere.foreign(kind)
        match self._on.purse.start(kind, 1, again=again, idle=idle):
            case Refusal(sentence=sentence):
                raise AgentRefused(f"The teammate was not started: {sentence}.")
            case counted:
                return counted

    async def join(self, order: Order, desk_of: DeskOf, call: str) -> tuple[Outfit, Entered]:
        """Register an in-process member; its prompt is not posted yet. If this raises, nothing is left."""
        entered = await self._entered(order, "in-process")
        outfit: Outfit | None = None
        try:
            order = replace(order, name=entered.name, kind=entered.agent_type)
            mode = mode_of(order.mode)
            newcomer = await self.newcomer(entered, mode, desk_of(entered.name), call)
            outfit = closing(await self._on.outfitter.fresh(order, newcomer), newcomer.witness)
            outfit = await greeted(outfit)
            entered = await self._resolved(entered, outfit.resolved)
        except BaseException:
            await self._on.record.rosters.leave(self._team.name, entered.name)
            if outfit is not None:
                await outfit.finish()
            raise
        return outfit, entered

    async def join_elsewhere(self, order: Order, place: BackendType, call: str) -> tuple[Afar, Entered]:
        """Register a member in its own process, like `register_member`."""
        entered = await self._entered(order, place)
        member: Afar | None = None
        try:
            order = replace(order, name=entered.name, kind=entered.agent_type)
            member = await self._started(entered, order, call)
            entered = await self._resolved(entered, member.ready.resolved, member.pane)
        except BaseException:
            try:
                await self._on.record.rosters.leave(self._team.name, entered.name)
            finally:
                if member is not None:
                    await member.abandon()
            raise
        return member, entered

    async def prompt(self, entered: Entered, text: str) -> None:
        """Post the prompt as the first message of its inbox, which gives it work."""
        await self._office.post_prompt(entered.name, text, _prompt_id(entered))

    async def again(self, entered: Entered, desk_of: DeskOf) -> Outfit:
        """Restore an in-process member from its transcript."""
        newcomer = await self.newcomer(entered, first_mode(entered), desk_of(entered.name), "")
        outfit = closing(await self._on.outfitter.again(newcomer), newcomer.witness)
        try:
            if entered.backend_type != "in-process":
                await self._stands_in(entered, "in-process", "in-process")
            await self._prompted(entered)
        except BaseException:
            await outfit.finish()
            raise
        return outfit

    async def again_elsewhere(self, entered: Entered, place: BackendType) -> Afar:
        await self._with_inbox(entered)
        member = await self._started(entered, None, "")
        try:
            await self._stands_in(entered, place, member.pane)
            await self._prompted(entered)
        except BaseException:
            await member.abandon()
            raise
        return member

    async def _stands_in(self, entered: Entered, place: BackendType, pane: str) -> None:
        rosters = self._on.record.rosters
        await rosters.change(self._team.name, entered.name, backend_type=place, tmux_pane_id=pane)

    async def _entered(self, order: Order, place: BackendType) -> Entered:
        """Add a member to the roster and open its inbox."""
        mode = mode_of(order.mode)
        lead = self._on.lead()
        joining = Joining(
            name=wished_name(order.name or ""),
            agent_type=order.kind or self._on.usual,
            model=order.model or lead.model.card.id,
            cwd=order.cwd or str(lead.surroundings.workspace.cwd),
            prompt=order.prompt,
            plan_mode_required=mode == "plan",
            backend_type=place,
            tmux_pane_id=place,
        )
        entered = await self._on.record.rosters.join(self._team.name, joining)
        try:
            await self._with_inbox(entered)
            await self._without_orders_to_another(entered)
        except BaseException:
            await self._on.record.rosters.leave(self._team.name, entered.name)
            raise
        return entered

    async def _without_orders_to_another(self, entered: Entered) -> None:
        """Mark prompts and shutdown requests as read that a former member of that name left unread."""
        boxes = self._on.record.mailboxes(self._team.name)
        unread = [mail.id for mail in await boxes.history(entered.name) if not mail.read]
        if orders := [ident for ident in unread if ident.startswith((_PROMPT, _END))]:
            await boxes.mark(entered.name, orders)

    async def _with_inbox(self, entered: Entered) -> None:
        """Open its inbox; mark it if a foreign program uses it, so that its unsigned mail is trusted."""
        foreign = self._on.elsewhere.foreign(entered.agent_type)
        await self._on.record.mailboxes(self._team.name).open(entered.name, foreign=foreign)

    async def _started(self, entered: Entered, order: Order | None, call: str) -> Afar:
        mode = first_mode(entered) if order is None else mode_of(order.mode)
        berth = await self._on.elsewhere.start(entered, order, mode=mode, call=call)
        return await Afar.arrived(self._on, entered, order, berth)

    async def _resolved(self, entered: Entered, found: Resolved, pane: str = "in-process") -> Entered:
        return await self._on.record.rosters.change(
            self._team.name,
            entered.name,
            agent_type=found.kind,
            model=found.model,
            cwd=found.cwd,
            tmux_pane_id=pane,
        )

    async def _prompted(self, entered: Entered) -> None:
        await self._with_inbox(entered)
        boxes = self._on.record.mailboxes(self._team.name)
        if not any(mail.id == _prompt_id(entered) for mail in await boxes.history(entered.name)):
            # Its process ended before the prompt was posted.
            await self.prompt(entered, entered.prompt or "")

    async def asked_to_end(self, entered: Entered) -> ShutdownRequest | None:
        """Return its unanswered shutdown request, ignoring those to a former member of that name."""
        boxes = self._on.record.mailboxes(self._team.name)
        obeyed, mark = self._verifier.obeyed, end_mark(entered)
        mails = [mail for mail in await boxes.history(entered.name) if mail.id.startswith(mark)]
        answers = [obeyed(mail, LEAD_NAME) for mail in await boxes.history(LEAD_NAME)]
        answered = {
            body.request_id for body in answers if isinstance(body, (ShutdownApproved, ShutdownRejected))
        }
        for mail in reversed(mails):
            if isinstance(body := obeyed(mail, entered.name), ShutdownRequest):
                return None if body.request_id in answered else body
        return None

    async def newcomer(self, entered: Entered, mode: Mode | None, desk: MailDesk, call: str) -> Newcomer:
        agent = AgentId(agent_id(entered.name, self._team.name))
        team = await self._on.record.rosters.read(self._team.name) or self._team
        return Newcomer(
            agent=agent,
            parent=self._on.lead(),
            call=call,
            witness=self._on.outfitter.witness(agent),
            seat=Seat(
                team=self._team.name,
                name=entered.name,
                color=entered.color,
                mode=mode,
                section=section(team, entered.name),
                desk=desk,
                form=self._on.form,
                leads=self._on.nests,
            ),
        )


def _prompt_id(entered: Entered) -> str:
    """Return the id of its first mail, which differs from that of a former member of that name."""
    return f"{_PROMPT}{entered.joined_at}"


def end_mark(entered: Entered) -> str:
    """Return the id prefix of shutdown requests for this member.

    Timestamps would not tell them from requests to a former member of that name if the clock is changed.
    """
    return f"{_END}{entered.joined_at}-"


def closing(outfit: Outfit, witness: Witness) -> Outfit:
    """Attach the monitor, so that clean-up also closes its output file."""

    async def finish() -> KeptWork | None:
        witness.flush()
        return await outfit.finish()

    return replace(outfit, finish=finish, witness=witness)
