"""One inbox on disk. `docs/decisions/0006` explains the order of its writes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Container
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.clock import Clock
from shoal.core.errors import LockUnavailable, NoSuchInbox, ShoalError, StoreError
from shoal.core.ids import Ids
from shoal.core.mail import Mail, Receipt, Standing
from shoal.core.names import LEAD_NAME
from shoal.stores.files.foreign_lock import ForeignLock
from shoal.stores.files.handles import Directory
from shoal.stores.files.inbox_file import (
    Window,
    marked,
    named,
    nameless,
    one_line,
    parted,
    read_window,
    rescued,
    window_of,
)
from shoal.stores.files.lines import append_lines, read_lines
from shoal.stores.files.overflow import Moving, Overflow
from shoal.stores.files.record_locks import RecordLock
from shoal.stores.files.reporting import Report
from shoal.wire.foreign import Invalid
from shoal.wire.mail import EMPTY, Entry, entry_bytes, read_entry

_EVERYTHING = 1 << 60
_MOST_SHARED = 4_096
"""Maximum posts that share one write."""
_LOOKS = (0.001, 0.002, 0.004, 0.008, 0.016)
"""Delays between reads of a file that another program may be writing."""


class MailPlaces(Struct, frozen=True, kw_only=True):
    """Directories of one team's mail; only the first is shared with other programs."""

    inboxes: Directory
    staging: Directory
    overflow: Directory
    archive: Directory
    locks: Directory
    foreign: Directory
    """Has one file for each owner that is run by another program."""

    @classmethod
    def of(cls, home: Directory, team: str) -> MailPlaces:
        with home.within("shoal", "teams", team) as ours:
            return cls(
                inboxes=home.within("teams", team, "inboxes"),
                staging=ours.within("staging"),
                overflow=ours.within("overflow"),
                archive=ours.within("archive"),
                locks=ours.within("locks"),
                foreign=ours.within("foreign"),
            )

    @property
    def gone(self) -> bool:
        return self.inboxes.gone or self.locks.gone

    def close(self) -> None:
        for directory in (
            self.inboxes,
            self.staging,
            self.overflow,
            self.archive,
            self.locks,
            self.foreign,
        ):
            directory.close()


class _Post(Struct, eq=False):
    entry: Entry
    outcome: asyncio.Future[Receipt | None]
    """None: the writer is gone, and this post must write for the waiting ones."""


class Mailbox:
    def __init__(
        self,
        places: MailPlaces,
        owner: str,
        *,
        clock: Clock,
        ids: Ids,
        report: Report,
        patience: float,
        durable: bool = False,
    ) -> None:
        self.owner = owner
        self._places = places
        self._file = f"{owner}.json"
        self._archive = f"{owner}.jsonl"
        self._clock = clock
        self._ids = ids
        self._report = report
        self._durable = durable
        self._lock = RecordLock(
            places.locks, f"inbox-{owner}", beside=places.inboxes, file=self._file, patience=patience
        )
        self._overflow = Overflow(places.overflow, owner, durable=durable)
        self._window: Window | None = None
        self.remembers = True
        """True if the content that was read last is cached."""
        self._posts: list[_Post] = []
        self._writing = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._asleep: set[asyncio.Future[None]] = set()
        """Waiters that checked and found nothing."""

    def forget(self) -> None:
        """Drop the content that was read last; it is read again when needed."""
        self._window, self.remembers = None, False

    # Opening

    async def open(self, *, foreign: bool) -> None:
        if self._places.inboxes.status(self._file) is None:
            self._places.inboxes.create(self._file, EMPTY)
        if foreign == self.is_foreign:
            return
        async with self._lock as held:
            if foreign:
                self._places.foreign.create(self.owner, b"")
                self._write(held, self._looked_at().entries)
            else:
                self._places.foreign.remove(self.owner)

    # Posting

    async def post(self, mail: Mail) -> Receipt:
        """Post a message; the first of several concurrent posts writes them all."""
        loop = asyncio.get_running_loop()
        mail = replace(mail, read=False)
        post = _Post(Entry(mail=mail, raw=entry_bytes(mail)), loop.create_future())
        self._posts.append(post)
        writes = not self._writing
        try:
            if not writes:
                receipt = await post.outcome
                if receipt is not None:
                    return receipt
                writes = True
                post.outcome = loop.create_future()
            self._writing = True
            await asyncio.sleep(0)  # lets concurrent posts join
            try:
                await self._write_posts()
            except (ShoalError, OSError) as error:
                self._refuse(error)
            self._pass_on()
        except BaseException:
            self._give_up(post, writes=writes)
            raise
        return _receipt_of(post)

    def _give_up(self, post: _Post, *, writes: bool) -> None:
        """Drop a post whose caller was cancelled or whose write failed."""
        if post in self._posts:
            self._posts.remove(post)
        settled = post.outcome.done() and not post.outcome.cancelled() and not post.outcome.exception()
        # It was chosen to write for the others at the same moment.
        chosen = settled and post.outcome.result() is None
        if writes or chosen:
            self._pass_on()

    def _pass_on(self) -> None:
        """Make a post that still waits the next writer."""
        for post in self._posts:
            if not post.outcome.done():
                post.outcome.set_result(None)
                return
        self._writing = False

    def _refuse(self, error: Exception) -> None:
        """Fail all waiting posts because no write was possible."""
        posts, self._posts = self._posts, []
        _fail(posts, error)

    async def _write_posts(self) -> None:
        async with self._lock.own:
            window = self._read()
            if isinstance(window, Window) and not self.is_foreign:
                self._window = window
                if window.room[0] == 0 and not self._overflow.interrupted:
                    self._queue(self._posts_to_write())
                    return
            async with self._lock.foreign() as held:
                self._deliver(held)

    def _deliver(self, held: ForeignLock) -> None:
        window = self._looked_at()
        posts = self._posts_to_write()
        try:
            if self._overflow.waiting() and not self.is_foreign:
                # First come, first served: new messages queue behind waiting ones.
                self._overflow.append([post.entry.raw for post in posts])
                delivered = self._moved_up(held, window)
                for post in posts:
                    _tell(post, delivered=post.entry.mail.id in delivered)
                return
            fitting = len(posts) if self.is_foreign else _fitting(window, posts)
            self._write(held, (*window.entries, *(post.entry for post in posts[:fitting])))
        except (ShoalError, OSError) as error:
            _fail(posts, error)
            return
        for post in posts[:fitting]:
            _tell(post, delivered=True)
        self._queue(posts[fitting:])

    def _moved_up(self, held: ForeignLock, window: Window) -> Collection[str]:
        """Move waiting messages into the inbox and return its ids. If that fails, they keep waiting."""
        try:
            self._overflow.recover(window.ids)
            self._write(held, window.entries)
        except (ShoalError, OSError):
            return ()
        return () if self._window is None else set(self._window.ids)

    def _queue(self, posts: list[_Post]) -> None:
        """Append the posts to the overflow."""
        if not posts:
            return
        try:
            self._overflow.append([post.entry.raw for post in posts])
        except (StoreError, OSError) as error:
            _fail(posts, error)
            return
        for post in posts:
            _tell(post, delivered=False)

    def _posts_to_write(self) -> list[_Post]:
        posts, self._posts = self._posts[:_MOST_SHARED], self._posts[_MOST_SHARED:]
        return posts

    # Reading

    async def take(self, limit: int) -> tuple[Mail, ...]:
        window = await self._valid_window()
        unread = window.unread
        if (not unread and self._overflow.waiting()) or any(nameless(entry) for entry in unread):
            async with self._lock as held:
                self._write(held, self._looked_at().entries)
            unread = (self._window or window).unread
        return tuple(entry.mail for entry in unread[:limit])

    async def mark(self, ids: Collection[str]) -> None:
        wanted = frozenset(ids)
        if not wanted:
            return
        async with self._lock as held:
            window = self._looked_at()
            if any(entry.mail.id in wanted and not entry.mail.read for entry in window.entries):
                self._write(held, marked(window.entries, wanted))

    async def wait(self, beyond: Container[str] = ()) -> None:
        while True:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Before the check: mail that arrives between the check and the wait is not missed.
            self._waiters.add(woken)
            try:
                if await self._has_mail(beyond):
                    return
                self._asleep.add(woken)
                await woken
            finally:
                self._waiters.discard(woken)
                self._asleep.discard(woken)

    async def _has_mail(self, beyond: Container[str]) -> bool:
        try:
            unread = (await self._valid_window()).unread
            # Mail in the overflow moves up when the unread mail before it is marked.
            return any(e.mail.id not in beyond for e in unread) or (not unread and self._overflow.waiting())
        except LockUnavailable:
            return False  # checked again with the next change, or soon

    @property
    def is_still(self) -> bool:
        """True if a waiter has seen all mail and was not woken since."""
        return any(not waiter.done() for waiter in self._asleep)

    def wake(self) -> None:
        """Make all waiters check for mail again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def history(self) -> tuple[Mail, ...]:
        # Mail moves from the overflow to the inbox to the archive: reading in this order misses none.
        behind = [read_entry(line) for line in self._overflow.lines_behind()]
        inside = (await self._valid_window()).entries
        archived = [read_entry(line) for line in read_lines(self._places.archive, self._archive)]
        found: dict[str, Mail] = {}
        for entry in (*archived, *inside, *behind):
            if isinstance(entry, Entry):
                found.setdefault(entry.mail.id, entry.mail)
        return tuple(found.values())

    async def _valid_window(self) -> Window:
        """Return the current inbox. A partial file is normal while another program writes: retry."""
        for pause in (*_LOOKS, None):
            window = self._read()
            if isinstance(window, Window) and not window.rejected:
                self._window = window if self.remembers else None
                return window
            if pause is not None:
                await asyncio.sleep(pause)
        async with self._lock:
            return self._looked_at()

    def _read(self) -> Window | Invalid:
        window = read_window(self._places.inboxes, self._file, self._window)
        # The lead's inbox is created with the first message to it.
        if isinstance(window, Window) and window.content is None and self.owner != LEAD_NAME:
            raise NoSuchInbox(f"{self.owner!r} has no inbox. There are inboxes of: {self._others()}.")
        return window

    def _others(self) -> str:
        names = (Path(name) for name in self._places.inboxes.names())
        return ", ".join(sorted(name.stem for name in names if name.suffix == ".json")) or "nobody"

    # While the locks are held

    def _looked_at(self) -> Window:
        """Read the inbox under the locks: a file that is invalid now stays invalid, and is quarantined."""
        window = self._read()
        if isinstance(window, Invalid) or window.rejected:
            window = self._set_aside(window)
        self._overflow.recover(window.ids)
        self._window = window
        return window

    def _set_aside(self, window: Window | Invalid) -> Window:
        aside = self._places.inboxes.keep_copy(self._file, f"{self._file}.corrupt-{self._clock.now()}")
        if isinstance(window, Invalid):
            reason = window.reason
            entries = rescued(self._places.inboxes.read(self._file) or b"").entries
        else:
            reason = "; ".join(window.rejected)
            entries = window.entries
        self._report(
            f"The inbox of {self.owner} could not be read whole: {reason}. It is kept as "
            f"{self._places.inboxes.path / aside}; {len(entries)} of its messages are delivered."
        )
        whole = window_of(tuple(entries))
        self._put(whole)
        return whole

    def _write(self, held: ForeignLock, entries: tuple[Entry, ...]) -> None:
        """Write the inbox; all changes go through here. A crash at any step loses and duplicates nothing."""
        kept, gone = entries, tuple[Entry, ...]()
        if self.is_foreign:
            moving = self._overflow.next_lines(_EVERYTHING, _EVERYTHING)
        else:
            entries = tuple([named(e, self._ids.uuid()) if nameless(e) else e for e in entries])
            kept, gone = parted(entries)
            moving = self._moving_into(kept)
        incoming, unreadable = self._entries_of(moving)
        window = window_of((*kept, *incoming))
        if gone or unreadable:
            lines = [*(one_line(entry.raw) for entry in gone), *unreadable]
            append_lines(self._places.archive, self._archive, lines, durable=self._durable)
        if incoming:
            self._overflow.intend(moving, incoming[0].mail.id)
        held.confirm()
        self._put(window)
        if moving.lines:
            self._overflow.moved(moving)
        self._window = window
        self.wake()

    def _put(self, window: Window) -> None:
        assert window.content is not None
        self._places.staging.write_again(self._file, window.content, durable=self._durable)
        self._places.staging.swap(self._file, self._places.inboxes, self._file)
        if self._durable:
            os.fsync(self._places.inboxes.fd)

    def _moving_into(self, kept: tuple[Entry, ...]) -> Moving:
        return self._overflow.next_lines(*Window(content=None, entries=kept).room)

    def _entries_of(self, moving: Moving) -> tuple[tuple[Entry, ...], list[bytes]]:
        """Return the messages, and the lines that cannot be parsed."""
        entries: list[Entry] = []
        unreadable: list[bytes] = []
        for line in moving.lines:
            entry = read_entry(line)
            if isinstance(entry, Entry):
                entries.append(entry)
            else:
                unreadable.append(line)
                self._report(
                    f"A message that waited for {self.owner} is unreadable: {entry.reason}. It is kept in "
                    f"{self._places.archive.path / self._archive}."
                )
        return tuple(entries), unreadable

    @property
    def is_foreign(self) -> bool:
        return self._places.foreign.status(self.owner) is not None


def _fitting(window: Window, posts: list[_Post]) -> int:
    count, size = window.room
    fitting = 0
    for post in posts[:count]:
        size -= len(post.entry.raw)
        if size < 0 and (fitting or window.unread):
            break
        fitting += 1
    return fitting


def _tell(post: _Post, *, delivered: bool) -> None:
    if not post.outcome.done():
        standing: Standing = "delivered" if delivered else "queued"
        post.outcome.set_result(Receipt(id=post.entry.mail.id, standing=standing))


def _fail(posts: list[_Post], error: Exception) -> None:
    for post in posts:
        if not post.outcome.done():
            post.outcome.set_exception(error)


def _receipt_of(post: _Post) -> Receipt:
    receipt = post.outcome.result()
    if receipt is None:
        raise LockUnavailable("The post was not written.")
    return receipt
