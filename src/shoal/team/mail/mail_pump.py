"""Delivers each inbox's mail to its owner and marks it as read.

Mail is marked only once it is in its owner's transcript or was acted on. A process that dies before that
finds it unread again; mail that the transcript already contains is marked without a second delivery.
So is mail that arrives again after it was marked, because somebody copied it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from typing import TypeAlias

from shoal.core.clock import Clock
from shoal.core.errors import InboxNotFound, LockUnavailable, StateFileError, TeamNotFound, TeamStoreError
from shoal.core.names import AgentName
from shoal.core.teams.compact_id_set import CompactIdSet
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.team_storage import MailboxStore

MailHandler: TypeAlias = Callable[[MailMessage], Awaitable[bool]]
"""Returns True if the mail is settled; else it is marked as settled later."""
_BATCH = 64
_RETRY_DELAY = 1.0
"""Seconds before a failed read or write is retried."""


class MailPump:
    """`on_skipped` is called for mail that is not delivered, so that nobody keeps waiting for it."""

    def __init__(
        self,
        boxes: MailboxStore,
        clock: Clock,
        report: Callable[[str], None],
        on_skipped: Callable[[], None] = lambda: None,
    ) -> None:
        self._mailboxes = boxes
        self._clock = clock
        self._report = report
        self._on_skipped = on_skipped
        self._unmarked: dict[AgentName, set[str]] = {}
        """Ids of mail that was delivered and is not marked yet."""
        self._marked: dict[AgentName, CompactIdSet] = {}
        """Ids of all mail ever read from an inbox, also by a former owner of the name."""
        self._settled: dict[AgentName, set[str]] = {}
        self._wake = asyncio.Event()

    async def pump_inbox(
        self, owner: AgentName, deliver: MailHandler, delivered: Container[str] = ()
    ) -> None:
        """Deliver incoming mail until cancelled or the inbox is gone."""
        unmarked = self._unmarked[owner] = set()
        try:
            while True:
                try:
                    await self._deliver_new_mail(owner, deliver, unmarked, delivered)
                except (LockUnavailable, StateFileError) as error:
                    self._report(f"The mail of {owner} waits: {error}")
                    await self._clock.sleep(_RETRY_DELAY)
        except (TeamNotFound, InboxNotFound):
            return
        finally:
            del self._unmarked[owner]

    async def _deliver_new_mail(
        self, owner: AgentName, deliver: MailHandler, unmarked: set[str], delivered: Container[str]
    ) -> None:
        """Deliver new mail; wait if there is none."""
        if owner not in self._marked:
            history = await self._mailboxes.read_history(owner)
            self._marked[owner] = CompactIdSet(mail.id for mail in history if mail.read)
        await self._mailboxes.wait_for_mail(owner, beyond=unmarked)
        for mail in await self._mailboxes.take_unread(owner, limit=_BATCH + len(unmarked)):
            if mail.id in unmarked:
                continue
            unmarked.add(mail.id)
            if mail.id in delivered or self._report_if_duplicate_mail(mail, owner):
                self.note_mail_settled(mail.id, owner)
                self._on_skipped()
                continue
            try:
                settled = await deliver(mail)
            except (TeamStoreError, StateFileError):
                unmarked.discard(mail.id)
                raise
            if settled:
                self.note_mail_settled(mail.id, owner)

    async def has_undelivered_mail(self) -> bool:
        """Return True if an inbox has undelivered mail."""
        for owner in self._mailboxes.find_changed_inboxes(tuple(self._unmarked)):
            unmarked = self._unmarked.get(owner, set())
            try:
                unread = await self._mailboxes.take_unread(owner, limit=_BATCH + len(unmarked))
            except (TeamStoreError, StateFileError):
                continue
            if any(mail.id not in unmarked for mail in unread):
                return True
        return False

    def note_mail_settled(self, mail: str, owner: AgentName) -> None:
        """Mark mail that is in its owner's transcript or was acted on. Other ids are ignored."""
        if mail in self._unmarked.get(owner, ()):
            self._settled.setdefault(owner, set()).add(mail)
            self._wake.set()

    async def run_mark_settled_mail_read_loop(self) -> None:
        """Mark settled mail until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self.mark_settled_mail_read():
                await self._clock.sleep(_RETRY_DELAY)
                self._wake.set()

    async def mark_settled_mail_read(self) -> bool:
        """Mark all settled mail; return False if some could not be marked now."""
        all_marked = True
        for owner in list(self._settled):
            ids = self._settled.pop(owner)
            try:
                await self._mailboxes.mark_read(owner, ids)
            except (LockUnavailable, StateFileError):
                self._settled.setdefault(owner, set()).update(ids)
                all_marked = False
            except TeamStoreError:
                continue
            else:
                self._unmarked.get(owner, set()).difference_update(ids)
                if (marked := self._marked.get(owner)) is not None:
                    marked.add_ids(ids)
        return all_marked

    def _report_if_duplicate_mail(self, mail: MailMessage, owner: AgentName) -> bool:
        if mail.id not in self._marked.get(owner, ()):
            return False
        self._report(f"Mail for {owner} arrived a second time and is skipped ({mail.id[:80]!r}).")
        return True
