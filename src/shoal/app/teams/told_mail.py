"""Mailboxes that journal what is posted and taken; the inbox files stay authoritative."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable
from contextlib import suppress

from shoal.app.picture.mail_words import told
from shoal.core.errors import StoreError
from shoal.core.events import PREVIEW, Journaled, MailPosted, MailTaken
from shoal.core.ids import LEAD
from shoal.core.mail import Mail, Receipt
from shoal.core.names import AgentName, TeamName
from shoal.core.record import Mailboxes

_REMEMBERED = 4_096


class ToldMailboxes:
    def __init__(self, boxes: Mailboxes, team: TeamName, emit: Callable[[Journaled], None]) -> None:
        self._boxes = boxes
        self._team = team
        self._emit = emit
        self._taken: dict[AgentName, dict[str, Mail]] = {}
        """Mail handed to its owner and not marked as read yet."""
        self._here: set[AgentName] = set()
        """Owners whose mail is taken in this process."""
        self._posted: dict[str, tuple[str, str]] = {}
        """Kind and preview of recent mail to local owners, to avoid parsing it again when it is taken."""

    async def open(self, owner: AgentName, *, foreign: bool = False) -> None:
        await self._boxes.open(owner, foreign=foreign)

    async def post(self, to: AgentName, mail: Mail) -> Receipt:
        receipt = await self._boxes.post(to, mail)
        kind, preview = _told(mail)
        if to in self._here:
            self._posted[mail.id] = kind, preview
            if len(self._posted) > _REMEMBERED:
                del self._posted[next(iter(self._posted))]
        self._tell(
            MailPosted(
                agent=LEAD,
                team=self._team,
                mail=mail.id,
                sender=mail.sender,
                to=to,
                kind=kind,
                preview=preview,
                summary=mail.summary or "",
                fyi=mail.fyi,
            )
        )
        return receipt

    async def take(self, owner: AgentName, *, limit: int = 64) -> tuple[Mail, ...]:
        mails = await self._boxes.take(owner, limit=limit)
        if mails:
            self._taken.setdefault(owner, {}).update((mail.id, mail) for mail in mails)
        return mails

    async def mark(self, owner: AgentName, ids: Collection[str]) -> None:
        await self._boxes.mark(owner, ids)
        taken = self._taken.get(owner, {})
        for ident in ids:
            mail = taken.pop(ident, None)
            if mail is not None:
                self._tell(self._of_taken(owner, mail))

    async def wait(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        self._here.add(owner)
        await self._boxes.wait(owner, beyond=beyond)

    def stirred(self, owners: Iterable[AgentName]) -> list[AgentName]:
        return self._boxes.stirred(owners)

    def is_foreign(self, owner: AgentName) -> bool:
        return self._boxes.is_foreign(owner)

    async def history(self, owner: AgentName) -> tuple[Mail, ...]:
        return await self._boxes.history(owner)

    async def aclose(self) -> None:
        await self._boxes.aclose()

    def _of_taken(self, to: AgentName, mail: Mail) -> MailTaken:
        kind, preview = self._posted.pop(mail.id) if mail.id in self._posted else _told(mail)
        return MailTaken(
            agent=LEAD,
            team=self._team,
            mail=mail.id,
            sender=mail.sender,
            to=to,
            kind=kind,
            preview=preview,
            summary=mail.summary or "",
            posted=mail.timestamp,
        )

    def _tell(self, event: MailPosted | MailTaken) -> None:
        with suppress(StoreError):  # it is posted or taken even if the journal is full
            self._emit(event)


def _told(mail: Mail) -> tuple[str, str]:
    kind, said = told(mail)
    return kind, said[:PREVIEW]
