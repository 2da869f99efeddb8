"""Mailboxes that journal what is posted and taken; the inbox files stay authoritative."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from contextlib import suppress

from shoal.app.run_view.mail_text import classify_and_describe_mail
from shoal.core.errors import StateFileError
from shoal.core.events import PREVIEW_LENGTH, JournaledEvent, MailPosted, MailTaken
from shoal.core.ids import LEAD_ID
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage, MailPostReceipt
from shoal.core.teams.team_storage import MailboxStore

_MAX_PREVIEWS = 4_096


class JournaledMailboxes:
    def __init__(
        self,
        boxes: MailboxStore,
        team: TeamName,
        emit_all: Callable[[Sequence[JournaledEvent]], None],
    ) -> None:
        self._mailboxes = boxes
        self._team = team
        self._emit_all = emit_all
        self._taken: dict[AgentName, dict[str, MailMessage]] = {}
        """Mail handed to its owner and not marked as read yet."""
        self._local_owners: set[AgentName] = set()
        """Owners whose mail is taken in this process."""
        self._previews: dict[str, tuple[str, str]] = {}
        """Kind and preview of recent mail to local owners, to avoid parsing it again when it is taken."""

    async def open_inbox(self, owner: AgentName, *, foreign: bool = False) -> None:
        await self._mailboxes.open_inbox(owner, foreign=foreign)

    async def post(self, to: AgentName, mail: MailMessage) -> MailPostReceipt:
        receipt = await self._mailboxes.post(to, mail)
        kind, preview = _preview_mail(mail)
        if to in self._local_owners:
            self._previews[mail.id] = kind, preview
            if len(self._previews) > _MAX_PREVIEWS:
                del self._previews[next(iter(self._previews))]
        event = MailPosted(
            agent=LEAD_ID,
            team=self._team,
            mail=mail.id,
            sender=mail.sender,
            to=to,
            kind=kind,
            preview=preview,
            summary=mail.summary or "",
            fyi=mail.fyi,
        )
        self._emit_mail_events((event,))
        return receipt

    async def take_unread(
        self, owner: AgentName, *, limit: int = 64, beyond: Container[str] = ()
    ) -> tuple[MailMessage, ...]:
        mails = await self._mailboxes.take_unread(owner, limit=limit, beyond=beyond)
        if mails:
            self._taken.setdefault(owner, {}).update((mail.id, mail) for mail in mails)
        return mails

    async def mark_read(self, owner: AgentName, ids: Collection[str]) -> None:
        await self._mailboxes.mark_read(owner, ids)
        taken = self._taken.get(owner, {})
        mails = [mail for mail_id in ids if (mail := taken.pop(mail_id, None)) is not None]
        self._emit_mail_events([self._make_taken_event(owner, mail) for mail in mails])

    async def wait_for_mail(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        self._local_owners.add(owner)
        await self._mailboxes.wait_for_mail(owner, beyond=beyond)

    def find_changed_inboxes(self, owners: Iterable[AgentName]) -> list[AgentName]:
        return self._mailboxes.find_changed_inboxes(owners)

    def is_foreign_inbox(self, owner: AgentName) -> bool:
        return self._mailboxes.is_foreign_inbox(owner)

    async def read_history(self, owner: AgentName) -> tuple[MailMessage, ...]:
        return await self._mailboxes.read_history(owner)

    async def aclose(self) -> None:
        await self._mailboxes.aclose()

    def _make_taken_event(self, to: AgentName, mail: MailMessage) -> MailTaken:
        kind, preview = self._previews.pop(mail.id) if mail.id in self._previews else _preview_mail(mail)
        return MailTaken(
            agent=LEAD_ID,
            team=self._team,
            mail=mail.id,
            sender=mail.sender,
            to=to,
            kind=kind,
            preview=preview,
            summary=mail.summary or "",
            posted=mail.timestamp,
        )

    def _emit_mail_events(self, events: Sequence[MailPosted | MailTaken]) -> None:
        """Emit events together: in a database, each alone would be a commit that the session waits for."""
        with suppress(StateFileError):  # it is posted or taken even if the journal is full
            self._emit_all(events)


def _preview_mail(mail: MailMessage) -> tuple[str, str]:
    kind, text = classify_and_describe_mail(mail)
    return kind, text[:PREVIEW_LENGTH]
