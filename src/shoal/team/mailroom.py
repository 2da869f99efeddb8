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
from shoal.core.errors import LockUnavailable, NoSuchInbox, NoSuchTeam, RecordError, StoreError
from shoal.core.mail import Mail
from shoal.core.names import AgentName
from shoal.core.record import Mailboxes
from shoal.core.seen import Seen

Bring: TypeAlias = Callable[[Mail], Awaitable[bool]]
"""Returns True if the mail is settled; else `mark_settled` is called later."""
_BATCH = 64
_PAUSE = 1.0
"""Seconds before a failed read or write is retried."""


class Mailroom:
    """`on_skipped` is called for mail that is not delivered, so that nobody keeps waiting for it."""

    def __init__(
        self,
        boxes: Mailboxes,
        clock: Clock,
        report: Callable[[str], None],
        passed_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._boxes = boxes
        self._clock = clock
        self._report = report
        self._passed_over = passed_over
        self._open: dict[AgentName, set[str]] = {}
        """Ids of mail that was delivered and is not marked yet."""
        self._marked: dict[AgentName, Seen] = {}
        """Ids of all mail ever read from an inbox, also by a former owner of the name."""
        self._due: dict[AgentName, set[str]] = {}
        self._news = asyncio.Event()

    async def pump(self, owner: AgentName, bring: Bring, delivered: Container[str] = ()) -> None:
        """Deliver incoming mail until cancelled or the inbox is gone."""
        brought = self._open[owner] = set()
        try:
            while True:
                try:
                    await self._bring_next(owner, bring, brought, delivered)
                except (LockUnavailable, StoreError) as error:
                    self._report(f"The mail of {owner} waits: {error}")
                    await self._clock.sleep(_PAUSE)
        except (NoSuchTeam, NoSuchInbox):
            return
        finally:
            del self._open[owner]

    async def _bring_next(
        self, owner: AgentName, bring: Bring, brought: set[str], delivered: Container[str]
    ) -> None:
        """Deliver new mail; wait if there is none."""
        if owner not in self._marked:
            history = await self._boxes.history(owner)
            self._marked[owner] = Seen(mail.id for mail in history if mail.read)
        await self._boxes.wait(owner, beyond=brought)
        for mail in await self._boxes.take(owner, limit=_BATCH + len(brought)):
            if mail.id in brought:
                continue
            brought.add(mail.id)
            if mail.id in delivered or self._came_again(mail, owner):
                self.settled(mail.id, owner)
                self._passed_over()
                continue
            try:
                settled = await bring(mail)
            except (RecordError, StoreError):
                brought.discard(mail.id)
                raise
            if settled:
                self.settled(mail.id, owner)

    async def holds_more(self) -> bool:
        """Return True if an inbox has undelivered mail."""
        for owner in self._boxes.stirred(tuple(self._open)):
            brought = self._open.get(owner, set())
            try:
                mails = await self._boxes.take(owner, limit=_BATCH + len(brought))
            except (RecordError, StoreError):
                continue
            if any(mail.id not in brought for mail in mails):
                return True
        return False

    def settled(self, mail: str, owner: AgentName) -> None:
        """Mark mail that is in its owner's transcript or was acted on. Other ids are ignored."""
        if mail in self._open.get(owner, ()):
            self._due.setdefault(owner, set()).add(mail)
            self._news.set()

    async def mark_what_is_settled(self) -> None:
        """Mark settled mail until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            if not await self.flush():
                await self._clock.sleep(_PAUSE)
                self._news.set()

    async def flush(self) -> bool:
        """Mark all settled mail; return False if some could not be marked now."""
        done = True
        for owner in list(self._due):
            ids = self._due.pop(owner)
            try:
                await self._boxes.mark(owner, ids)
            except (LockUnavailable, StoreError):
                self._due.setdefault(owner, set()).update(ids)
                done = False
            except RecordError:
                continue
            else:
                self._open.get(owner, set()).difference_update(ids)
                if (marked := self._marked.get(owner)) is not None:
                    marked.update(ids)
        return done

    def _came_again(self, mail: Mail, owner: AgentName) -> bool:
        if mail.id not in self._marked.get(owner, ()):
            return False
        self._report(f"Mail for {owner} came a second time and is passed over ({mail.id[:80]!r}).")
        return True
