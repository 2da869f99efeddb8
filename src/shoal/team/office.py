"""Sends mail in the names of a team's members, with the envelope of its kind."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.core.bodies import Body, PermissionRequest
from shoal.core.clock import Clock, iso
from shoal.core.envelopes import Kind, enveloped
from shoal.core.ids import Ids
from shoal.core.mail import Mail, Receipt
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.record import Mailboxes
from shoal.core.signing import Seal
from shoal.wire.bodies import body_of, body_text


class Office:
    """`colors` are the members' colors by name; the lead has none. Without a `seal` nothing is signed."""

    def __init__(
        self,
        boxes: Mailboxes,
        colors: Mapping[AgentName, str | None],
        *,
        clock: Clock,
        ids: Ids,
        seal: Seal | None = None,
    ) -> None:
        self._boxes = boxes
        self._colors = colors
        self._clock = clock
        self._ids = ids
        self._seal = seal

    @property
    def now(self) -> str:
        return iso(self._clock.now())

    @property
    def milliseconds(self) -> int:
        return self._clock.now()

    @property
    def ids(self) -> Ids:
        return self._ids

    async def told(self, to: AgentName) -> frozenset[str]:
        """Return the ids of all mail that an owner ever received."""
        await self._boxes.open(to)
        return frozenset(mail.id for mail in await self._boxes.history(to))

    async def asked(self, sender: AgentName, request: str) -> PermissionRequest | None:
        """Return the permission request that a member sent to the lead under that id."""
        await self._boxes.open(LEAD_NAME)
        for mail in reversed(await self._boxes.history(LEAD_NAME)):
            body = body_of(mail) if mail.sender == sender else None
            if isinstance(body, PermissionRequest) and body.request_id == request:
                return body
        return None

    async def post_body(self, sender: AgentName, to: AgentName, body: Body, *, ident: str = "") -> Receipt:
        """Post a body under a new id or the given one."""
        return await self._post(sender, to, body_text(body), type(body), ident=ident)

    async def post_text(
        self,
        sender: AgentName,
        to: AgentName,
        text: str,
        *,
        kind: Kind = "message",
        summary: str = "",
        fyi: bool = False,
    ) -> Receipt:
        return await self._post(sender, to, text, kind, summary, fyi=fyi)

    async def post_prompt(self, to: AgentName, text: str, ident: str) -> Receipt:
        """Post a prompt in the lead's name."""
        return await self._post(LEAD_NAME, to, text, "prompt", ident=ident)

    async def _post(
        self,
        sender: AgentName,
        to: AgentName,
        text: str,
        kind: Kind,
        summary: str = "",
        *,
        ident: str = "",
        fyi: bool = False,
    ) -> Receipt:
        mail = Mail(
            id=ident or self._ids.uuid(),
            sender=sender,
            text=text,
            timestamp=self.now,
            summary=summary or None,
            color=self._colors.get(sender),
            fyi=fyi,
        )
        if to == LEAD_NAME:
            await self._boxes.open(to)
        mail = enveloped(mail, kind, from_lead=sender == LEAD_NAME)
        return await self._boxes.post(to, mail if self._seal is None else self._seal.sealed(mail, to))
