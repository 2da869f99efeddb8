"""The mailroom of a team: brings each inbox's mail to its owner, and marks what its owner has.

Mail is marked only once it is in its owner's transcript or was acted on. A process that dies before that
finds it unread again, and what the transcript already has is marked without being brought a second time.
So is mail that comes again after it was marked, by whomever: somebody copied it.
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
"""Whether it is settled with that; else `settled` is called when it is."""
_BATCH = 64
_PAUSE = 1.0
"""Seconds until what could not be read or written is tried again."""


class Mailroom:
    """`passed_over` is told of mail that nobody is brought: who saw that it waits need not wait for more."""

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
        """What was brought and is not marked yet."""
        self._marked: dict[AgentName, Seen] = {}
        """What was ever consumed of an inbox, also by an earlier owner of the name."""
        self._due: dict[AgentName, set[str]] = {}
        self._news = asyncio.Event()

    async def pump(self, owner: AgentName, bring: Bring, delivered: Container[str] = ()) -> None:
        """Bring what comes, until cancelled or the inbox is gone."""
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
        """What there is beyond what was brought; waits where that is nothing."""
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
        """Whether somebody has mail that was not brought yet."""
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
        """It is in its owner's transcript, or was acted on. What is no mail is passed over."""
        if mail in self._open.get(owner, ()):
            self._due.setdefault(owner, set()).add(mail)
            self._news.set()

    async def mark_what_is_settled(self) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            if not await self.flush():
                await self._clock.sleep(_PAUSE)
                self._news.set()

    async def flush(self) -> bool:
        """Mark all that is due; False where some of it could not be marked now."""
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
