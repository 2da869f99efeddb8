"""Sends mail in the names of a team's members, with the envelope of its kind."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.core.clock import Clock, format_iso_time
from shoal.core.errors import InboxNotFound
from shoal.core.ids import IdGenerator
from shoal.core.names import LEAD_NAME, AgentName, map_to_inbox_name
from shoal.core.teams.mail import MailMessage, MailPostReceipt
from shoal.core.teams.mail_bodies import MailBody, PermissionRequestMail
from shoal.core.teams.mail_envelopes import EnvelopeKind, fit_mail_to_kind
from shoal.core.teams.mail_signatures import MailSigner
from shoal.core.teams.team_storage import MailboxStore
from shoal.wire.mail_body_codec import encode_mail_body, get_authorized_mail_body


class TeamMailPoster:
    """`colors` are the members' colors by name; the lead has none. Without a `seal` nothing is signed."""

    def __init__(
        self,
        boxes: MailboxStore,
        colors: Mapping[AgentName, str | None],
        *,
        clock: Clock,
        ids: IdGenerator,
        seal: MailSigner | None = None,
    ) -> None:
        self._mailboxes = boxes
        self._colors = colors
        self._clock = clock
        self._ids = ids
        self._signer = seal
        self._has_lead_inbox = False

    @property
    def current_timestamp(self) -> str:
        return format_iso_time(self._clock.now())

    @property
    def current_milliseconds(self) -> int:
        return self._clock.now()

    @property
    def id_generator(self) -> IdGenerator:
        return self._ids

    async def list_received_mail_ids(self, owner: AgentName) -> frozenset[str]:
        """Return the ids of all mail that an owner ever received."""
        await self._mailboxes.open_inbox(owner)
        return frozenset(mail.id for mail in await self._mailboxes.read_history(owner))

    async def find_sent_permission_request(
        self, sender: AgentName, request: str
    ) -> PermissionRequestMail | None:
        """Return the permission request that a member sent to the lead under that id."""
        await self._mailboxes.open_inbox(LEAD_NAME)
        for mail in reversed(await self._mailboxes.read_history(LEAD_NAME)):
            body = get_authorized_mail_body(mail) if mail.sender == sender else None
            if isinstance(body, PermissionRequestMail) and body.request_id == request:
                return body
        return None

    async def post_mail_body(
        self, sender: AgentName, to: AgentName, body: MailBody, *, ident: str = ""
    ) -> MailPostReceipt:
        """Post a body under a new id or the given one."""
        return await self._post_mail(sender, to, encode_mail_body(body), type(body), mail_id=ident)

    async def post_text(
        self,
        sender: AgentName,
        to: AgentName,
        text: str,
        *,
        kind: EnvelopeKind = "message",
        summary: str = "",
        fyi: bool = False,
        ident: str = "",
    ) -> MailPostReceipt:
        return await self._post_mail(sender, to, text, kind, summary, mail_id=ident, fyi=fyi)

    async def post_lead_prompt(
        self, to: AgentName, text: str, ident: str, *, fyi: bool = False
    ) -> MailPostReceipt:
        """Post a prompt in the lead's name; with `fyi` it does not wake the member."""
        return await self._post_mail(LEAD_NAME, to, text, "prompt", mail_id=ident, fyi=fyi)

    async def _post_mail(
        self,
        sender: AgentName,
        to: AgentName,
        text: str,
        kind: EnvelopeKind,
        summary: str = "",
        *,
        mail_id: str = "",
        fyi: bool = False,
    ) -> MailPostReceipt:
        mail = MailMessage(
            id=mail_id or self._ids.new_uuid(),
            sender=sender,
            text=text,
            timestamp=self.current_timestamp,
            summary=summary or None,
            color=self._colors.get(sender),
            fyi=fyi,
        )
        # A member that another program added may have a name that is not a file name.
        to = map_to_inbox_name(to)
        mail = fit_mail_to_kind(mail, kind, from_lead=sender == LEAD_NAME)
        if self._signer is not None:
            mail = self._signer.sign_mail(mail, to)
        if to == LEAD_NAME and not self._has_lead_inbox:
            await self._mailboxes.open_inbox(to)
            self._has_lead_inbox = True
        try:
            return await self._mailboxes.post(to, mail)
        except InboxNotFound:
            if to != LEAD_NAME:
                raise
        # The team was deleted and created again.
        await self._mailboxes.open_inbox(to)
        return await self._mailboxes.post(to, mail)
