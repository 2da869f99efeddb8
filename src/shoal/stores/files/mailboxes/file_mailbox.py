"""One inbox on disk. `docs/decisions/0006` explains the order of its writes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Container, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.clock import Clock
from shoal.core.errors import InboxNotFound, LockUnavailable, ShoalError, StateFileError
from shoal.core.ids import IdGenerator
from shoal.core.names import LEAD_NAME
from shoal.core.teams.mail import MailDeliveryState, MailMessage, MailPostReceipt
from shoal.core.text.text_format import format_count_with_noun
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.access.line_files import append_lines, read_complete_lines
from shoal.stores.files.access.partial_writes import read_settled_file
from shoal.stores.files.access.problem_reporter import ProblemReporter
from shoal.stores.files.locks.directory_flock import SharedDirectoryFlock
from shoal.stores.files.locks.foreign_lock import ForeignProgramLock
from shoal.stores.files.locks.shared_file_lock import SharedFileLock
from shoal.stores.files.mailboxes.inbox_file import (
    MAX_UNREAD,
    MAX_UNREAD_BYTES,
    MailInboxFileContent,
    assign_inbox_entry_id,
    build_inbox_file,
    has_derived_mail_id,
    list_fitting_unread_ids,
    mark_inbox_entries_read,
    read_inbox_file,
    recover_inbox_entries,
    split_inbox_entries_to_archive,
    to_single_line_entry,
)
from shoal.stores.files.mailboxes.inbox_overflow import InboxOverflow, MailInboxOverflowBatch
from shoal.stores.files.teams.team_ownership import find_inbox_directory, is_led_by_shoal, read_team_facts
from shoal.stores.store_texts import format_store_notice
from shoal.wire.foreign_json import InvalidFileContent, RejectedFileEntry
from shoal.wire.json_codec import split_json_objects
from shoal.wire.mail_codec import EMPTY_INBOX, MailInboxFileEntry, encode_inbox_entry, parse_inbox_entry

_UNLIMITED = 1 << 60
_MAX_BATCH = 4_096
"""Maximum posts that share one write."""


class TeamMailDirectories(Struct, frozen=True, kw_only=True):
    """Directories of one team's mail; only the first is shared with other programs."""

    inboxes: DirectoryHandle
    staging: DirectoryHandle
    overflow: DirectoryHandle
    archive: DirectoryHandle
    locks: DirectoryHandle
    foreign: DirectoryHandle
    """Has one file for each owner that is run by another program."""
    flock: SharedDirectoryFlock
    """Lock of programs that lock all inboxes at once."""
    is_led_by_shoal: bool = True
    """False if another program leads the team: then Shoal never moves mail out of its inboxes."""

    @classmethod
    def open_for_team(cls, home: DirectoryHandle, team: str) -> TeamMailDirectories:
        with home.open_or_create("shoal", "teams", team) as own_directory:
            facts = read_team_facts(home, team)
            inboxes = home.open_or_create("teams", find_inbox_directory(home, team, facts), "inboxes")
            return cls(
                is_led_by_shoal=is_led_by_shoal(home, team, facts),
                inboxes=inboxes,
                flock=SharedDirectoryFlock(inboxes),
                staging=own_directory.open_or_create("staging"),
                overflow=own_directory.open_or_create("overflow"),
                archive=own_directory.open_or_create("archive"),
                locks=own_directory.open_or_create("locks"),
                foreign=own_directory.open_or_create("foreign"),
            )

    @classmethod
    def open_existing(cls, home: DirectoryHandle, team: str) -> TeamMailDirectories | None:
        """Open the directories of a team without creating any; return None if it has no inboxes."""
        facts = read_team_facts(home, team)
        inboxes = home.open_existing("teams", find_inbox_directory(home, team, facts), "inboxes")
        if inboxes is None:
            return None

        def open_own_directory(name: str) -> DirectoryHandle:
            # The files of a missing directory are looked up among the inboxes, where no file has their name.
            found = home.open_existing("shoal", "teams", team, name)
            return DirectoryHandle(inboxes.path, os.dup(inboxes.fd)) if found is None else found

        return cls(
            is_led_by_shoal=is_led_by_shoal(home, team, facts),
            inboxes=inboxes,
            flock=SharedDirectoryFlock(inboxes),
            staging=open_own_directory("staging"),
            overflow=open_own_directory("overflow"),
            archive=open_own_directory("archive"),
            locks=open_own_directory("locks"),
            foreign=open_own_directory("foreign"),
        )

    @property
    def is_removed(self) -> bool:
        return self.inboxes.is_removed or self.locks.is_removed

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


class _PendingMailPost(Struct, eq=False):
    entry: MailInboxFileEntry
    outcome: asyncio.Future[MailPostReceipt | None]
    """None: the writer is gone, and this post must write for the waiting ones."""


class FileMailbox:
    def __init__(
        self,
        directories: TeamMailDirectories,
        owner: str,
        *,
        clock: Clock,
        ids: IdGenerator,
        report_problem: ProblemReporter,
        lock_timeout: float,
        read_only: bool,
    ) -> None:
        """With `read_only`, the inbox is only read: a damaged one is reported and not changed."""
        self.owner = owner
        self._read_only = read_only
        self._directories = directories
        self._file = f"{owner}.json"
        self._archive = f"{owner}.jsonl"
        self._clock = clock
        self._ids = ids
        self._report_problem = report_problem
        self._reported_damage = 0
        """Number of damaged lines of the archive that were reported."""
        self._lock_name = f"inbox-{owner}"
        self._is_origin_known = False
        """True if it is known whether Shoal or another program added the owner to the team."""
        self._lock = SharedFileLock(
            directories.locks,
            self._lock_name,
            directory=directories.inboxes,
            file=self._file,
            timeout=lock_timeout,
            directory_flock=directories.flock,
        )
        self._overflow = InboxOverflow(directories.overflow, owner)
        self._inbox: MailInboxFileContent | None = None
        self.is_cached = True
        """True if the content that was read last is cached."""
        self._posts: list[_PendingMailPost] = []
        self._writing = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._idle_waiters: set[asyncio.Future[None]] = set()
        """Waiters that checked and found nothing."""

    def drop_cached_inbox(self) -> None:
        """Drop the content that was read last; it is read again when needed."""
        self._inbox, self.is_cached = None, False

    # Opening

    async def open_inbox(self, *, foreign: bool) -> None:
        if self._directories.inboxes.get_entry_stat(self._file) is None:
            self._directories.inboxes.create_file_if_missing(self._file, EMPTY_INBOX)
        if not foreign:
            self._note_opened_by_shoal()
        if foreign == self.is_foreign:
            return
        async with self._lock as foreign_lock:
            if foreign:
                self._directories.foreign.create_file_if_missing(self.owner, b"")
                self._write_inbox_archive_and_overflow(
                    foreign_lock, (await self._read_or_quarantine_locked_inbox()).entries
                )
            else:
                self._directories.foreign.remove_file(self.owner)

    def _note_opened_by_shoal(self) -> None:
        """Create the lock file, which shows that Shoal runs the owner; see `_mark_inbox_of_added_member`."""
        if not self._is_origin_known:
            self._directories.locks.create_empty_file(self._lock_name)
            self._is_origin_known = True

    def _mark_inbox_of_added_member(self) -> None:
        """Mark the inbox as foreign if another program added its owner to the team: Shoal never opened it."""
        if self._is_origin_known:
            return
        self._read_inbox()  # raises InboxNotFound before the lock file is created
        self._is_origin_known = True
        if self.owner != LEAD_NAME and self._directories.locks.get_entry_stat(self._lock_name) is None:
            self._directories.foreign.create_file_if_missing(self.owner, b"")

    # Posting

    async def post(self, mail: MailMessage) -> MailPostReceipt:
        """Post a message; the first of several concurrent posts writes them all."""
        loop = asyncio.get_running_loop()
        mail = replace(mail, read=False)
        post = _PendingMailPost(
            MailInboxFileEntry(mail=mail, raw=encode_inbox_entry(mail)), loop.create_future()
        )
        self._posts.append(post)
        is_writer = not self._writing
        try:
            if not is_writer:
                receipt = await post.outcome
                if receipt is not None:
                    return receipt
                is_writer = True
                post.outcome = loop.create_future()
            self._writing = True
            await asyncio.sleep(0)  # lets concurrent posts join
            try:
                await self._write_pending_posts()
            except (ShoalError, OSError) as error:
                self._fail_waiting_posts(error)
            self._pass_writer_role()
        except BaseException:
            self._abandon_pending_post(post, is_writer=is_writer)
            raise
        return _get_mail_post_receipt(post)

    def _abandon_pending_post(self, post: _PendingMailPost, *, is_writer: bool) -> None:
        """Drop a post whose caller was canceled or whose write failed."""
        if post in self._posts:
            self._posts.remove(post)
        is_settled = post.outcome.done() and not post.outcome.cancelled() and not post.outcome.exception()
        # It was chosen to write for the others at the same moment.
        is_next_writer = is_settled and post.outcome.result() is None
        if is_writer or is_next_writer:
            self._pass_writer_role()

    def _pass_writer_role(self) -> None:
        """Make a post that still waits the next writer."""
        for post in self._posts:
            if not post.outcome.done():
                post.outcome.set_result(None)
                return
        self._writing = False

    def _fail_waiting_posts(self, error: Exception) -> None:
        """Fail all waiting posts because no write was possible."""
        posts, self._posts = self._posts, []
        _fail_pending_posts(posts, error)

    async def _write_pending_posts(self) -> None:
        self._mark_inbox_of_added_member()
        async with self._lock.own:
            inbox = self._read_inbox()
            if isinstance(inbox, MailInboxFileContent) and self._is_windowed:
                self._inbox = inbox
                if inbox.remaining_unread_capacity[0] == 0 and not self._overflow.is_move_interrupted:
                    self._append_posts_to_overflow(self._take_post_batch())
                    return
            async with self._lock.build_foreign_lock_context() as foreign_lock:
                await self._deliver_posts_under_lock(foreign_lock)

    async def _deliver_posts_under_lock(self, foreign_lock: ForeignProgramLock) -> None:
        inbox = await self._read_or_quarantine_locked_inbox()
        posts = self._take_post_batch()
        is_windowed = self._is_windowed  # once, so that all steps agree
        try:
            if is_windowed and self._overflow.has_waiting_lines():
                # First come, first served: new messages queue behind waiting ones.
                self._overflow.append([post.entry.raw for post in posts])
                delivered_ids = self._refill_inbox_from_overflow(foreign_lock, inbox)
                for post in posts:
                    _resolve_pending_post(post, delivered=post.entry.mail.id in delivered_ids)
                return
            fitting_count = _count_fitting_posts(inbox, posts) if is_windowed else len(posts)
            self._write_inbox_archive_and_overflow(
                foreign_lock,
                (*inbox.entries, *(post.entry for post in posts[:fitting_count])),
                is_windowed=is_windowed,
            )
        except (ShoalError, OSError) as error:
            _fail_pending_posts(posts, error)
            return
        for post in posts[:fitting_count]:
            _resolve_pending_post(post, delivered=True)
        self._append_posts_to_overflow(posts[fitting_count:])

    def _refill_inbox_from_overflow(
        self, foreign_lock: ForeignProgramLock, inbox: MailInboxFileContent
    ) -> Collection[str]:
        """Move waiting messages into the inbox and return its ids. If that fails, they keep waiting."""
        try:
            self._overflow.finish_interrupted_move(inbox.ids)
            self._write_inbox_archive_and_overflow(foreign_lock, inbox.entries)
        except (ShoalError, OSError):
            return ()
        return () if self._inbox is None else set(self._inbox.ids)

    def _append_posts_to_overflow(self, posts: list[_PendingMailPost]) -> None:
        """Append the posts to the overflow."""
        if not posts:
            return
        try:
            self._overflow.append([post.entry.raw for post in posts])
        except (StateFileError, OSError) as error:
            _fail_pending_posts(posts, error)
            return
        for post in posts:
            _resolve_pending_post(post, delivered=False)

    def _take_post_batch(self) -> list[_PendingMailPost]:
        posts, self._posts = self._posts[:_MAX_BATCH], self._posts[_MAX_BATCH:]
        return posts

    # Reading

    async def take_unread(self, limit: int, beyond: Container[str]) -> tuple[MailMessage, ...]:
        inbox = await self._read_valid_inbox()
        unread = inbox.unread
        if self._read_only:
            return _take_first_mail(unread, limit, beyond)
        if (not unread and self._overflow.has_waiting_lines()) or any(
            has_derived_mail_id(entry) for entry in unread
        ):
            async with self._lock as foreign_lock:
                self._write_inbox_archive_and_overflow(
                    foreign_lock, (await self._read_or_quarantine_locked_inbox()).entries
                )
            unread = (self._inbox or inbox).unread
        return _take_first_mail(unread, limit, beyond)

    async def mark_read(self, ids: Collection[str]) -> None:
        requested_ids = frozenset(ids)
        if not requested_ids:
            return
        async with self._lock as foreign_lock:
            inbox = await self._read_or_quarantine_locked_inbox()
            if any(entry.mail.id in requested_ids and not entry.mail.read for entry in inbox.entries):
                # Before marking: the room that this makes is for the mail that waits.
                entries, is_windowed = inbox.entries, self._is_windowed
                if is_windowed:
                    entries = self._spill_surplus_entries(foreign_lock, entries)
                self._write_inbox_archive_and_overflow(
                    foreign_lock,
                    mark_inbox_entries_read(entries, requested_ids),
                    is_spilled=True,
                    is_windowed=is_windowed,
                )

    async def wait_for_mail(self, seen_ids: Container[str] = ()) -> None:
        while True:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Before the check: mail that arrives between the check and the wait is not missed.
            self._waiters.add(waiter)
            try:
                if await self._has_unseen_mail(seen_ids):
                    return
                self._idle_waiters.add(waiter)
                await waiter
            finally:
                self._waiters.discard(waiter)
                self._idle_waiters.discard(waiter)

    async def _has_unseen_mail(self, seen_ids: Container[str]) -> bool:
        try:
            unread = (await self._read_valid_inbox()).unread
            # Mail in the overflow moves up when the unread mail before it is marked.
            return any(e.mail.id not in seen_ids for e in unread) or (
                not unread and self._overflow.has_waiting_lines()
            )
        except LockUnavailable:
            return False  # checked again with the next change, or soon

    @property
    def has_caught_up_waiter(self) -> bool:
        """True if a waiter has seen all mail and was not woken since."""
        return any(not waiter.done() for waiter in self._idle_waiters)

    def wake_waiters(self) -> None:
        """Make all waiters check for mail again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def read_history(self) -> tuple[MailMessage, ...]:
        # Mail moves from the overflow to the inbox to the archive: reading in this order misses none.
        overflow_entries = [parse_inbox_entry(line) for line in self._overflow.read_waiting_lines()]
        inbox_entries = (await self._read_valid_inbox()).entries
        archived = self._read_archived_entries()
        found: dict[str, MailMessage] = {}
        for entry in (*archived, *inbox_entries, *overflow_entries):
            if isinstance(entry, MailInboxFileEntry):
                found.setdefault(entry.mail.id, entry.mail)
        return tuple(found.values())

    def _read_archived_entries(self) -> list[MailInboxFileEntry | RejectedFileEntry]:
        """Return the archived messages, also of lines without an end; report what cannot be read."""
        found: list[MailInboxFileEntry | RejectedFileEntry] = []
        damaged = 0
        for line in read_complete_lines(self._directories.archive, self._archive):
            objects, is_whole = split_json_objects(line)
            entries = [parse_inbox_entry(each) for each in objects]
            found += entries
            damaged += not is_whole or not all(isinstance(each, MailInboxFileEntry) for each in entries)
        if damaged > self._reported_damage:
            self._reported_damage = damaged
            lines = format_count_with_noun(damaged, "line")
            self._report_problem(
                f"{lines} in {self._directories.archive.path / self._archive} cannot be read, so the mail "
                f"history of {self.owner} is incomplete."
            )
        return found

    async def _read_valid_inbox(self) -> MailInboxFileContent:
        """Return the current inbox. A partial file is normal while another program writes."""
        inbox = self._read_inbox()
        if _is_damaged(inbox):
            inbox = await self._read_settled_inbox()
        if isinstance(inbox, MailInboxFileContent) and not inbox.rejected:
            self._inbox = inbox if self.is_cached else None
            return inbox
        if self._read_only:
            return self._read_damaged_inbox_for_view()
        async with self._lock:
            return await self._read_or_quarantine_locked_inbox()

    def _read_damaged_inbox_for_view(self) -> MailInboxFileContent:
        """Report a damaged inbox and return its readable messages; the file is not changed."""
        inbox = self._read_inbox()
        if isinstance(inbox, InvalidFileContent):
            reason = inbox.reason
            content = (
                b""
                if self._directories.inboxes.describe_irregular_entry(self._file) is not None
                else self._directories.inboxes.read_file(self._file) or b""
            )
            inbox = build_inbox_file(tuple(recover_inbox_entries(content).entries))
        else:
            reason = "; ".join(inbox.rejected)
        if reason:
            self._report_problem(
                f"The mailbox {self._directories.inboxes.path / self._file} is damaged: {reason}. This view "
                f"shows only the messages that can be read ({len(inbox.entries)})."
            )
        return inbox

    def _read_inbox(self) -> MailInboxFileContent | InvalidFileContent:
        try:
            inbox = read_inbox_file(self._directories.inboxes, self._file, self._inbox)
        except StateFileError:
            kind = self._directories.inboxes.describe_irregular_entry(self._file)
            if kind is None:
                raise
            return InvalidFileContent(f"it is {kind}")
        # The lead's inbox is created with the first message to it.
        if isinstance(inbox, MailInboxFileContent) and inbox.content is None and self.owner != LEAD_NAME:
            raise InboxNotFound(
                format_store_notice(
                    "unknown_inbox", owner=repr(self.owner), owners=self._format_inbox_owners()
                )
            )
        return inbox

    async def _read_settled_inbox(self) -> MailInboxFileContent | InvalidFileContent:
        return await read_settled_file(self._directories.inboxes, self._file, self._read_inbox, _is_damaged)

    def _format_inbox_owners(self) -> str:
        names = (Path(name) for name in self._directories.inboxes.list_names())
        return ", ".join(sorted(name.stem for name in names if name.suffix == ".json")) or "nobody"

    # While the locks are held

    async def _read_or_quarantine_locked_inbox(self) -> MailInboxFileContent:
        """Read the inbox under the locks; a file that stays invalid is quarantined.

        It is read again first: a program that takes none of the locks may be writing it.
        """
        inbox = self._read_inbox()
        if _is_damaged(inbox):
            inbox = await self._read_settled_inbox()
        if isinstance(inbox, InvalidFileContent) or inbox.rejected:
            inbox = self._quarantine_inbox(inbox)
        self._overflow.finish_interrupted_move(inbox.ids)
        self._inbox = inbox
        return inbox

    def _quarantine_inbox(self, inbox: MailInboxFileContent | InvalidFileContent) -> MailInboxFileContent:
        backup_name = f"{self._file}.corrupt-{self._clock.now()}"
        if self._directories.inboxes.describe_irregular_entry(self._file) is not None:
            backup_name = self._directories.inboxes.set_entry_aside(self._file, backup_name)
        else:
            backup_name = self._directories.inboxes.add_backup_hard_link(self._file, backup_name)
        if isinstance(inbox, InvalidFileContent):
            reason = inbox.reason
            entries = recover_inbox_entries(self._directories.inboxes.read_file(self._file) or b"").entries
        else:
            reason = "; ".join(inbox.rejected)
            entries = inbox.entries
        self._report_problem(
            f"The mailbox of {self.owner} is damaged: {reason}. It is kept as "
            f"{self._directories.inboxes.path / backup_name}. Shoal recovered {len(entries)} of its "
            f"messages. The others are lost."
        )
        repaired = build_inbox_file(tuple(entries))
        self._replace_inbox_file(repaired)
        return repaired

    def _write_inbox_archive_and_overflow(
        self,
        foreign_lock: ForeignProgramLock,
        entries: tuple[MailInboxFileEntry, ...],
        *,
        is_spilled: bool = False,
        is_windowed: bool | None = None,
    ) -> None:
        """Write the inbox; all changes go through here. A crash at any step loses and duplicates nothing.

        With `is_spilled`, the unread entries fit. `is_windowed` saves a look at the directory if the caller
        has looked under the same lock.
        """
        kept_entries, archived_entries = entries, tuple[MailInboxFileEntry, ...]()
        if not (self._is_windowed if is_windowed is None else is_windowed):
            batch = self._overflow.read_oldest_batch(_UNLIMITED, _UNLIMITED)
        else:
            if not is_spilled:
                entries = self._spill_surplus_entries(foreign_lock, entries)
            kept_entries, archived_entries = split_inbox_entries_to_archive(entries)
            batch = self._read_fitting_overflow_batch(kept_entries)
        moved_entries, unreadable = self._parse_overflow_batch(batch)
        inbox = build_inbox_file((*kept_entries, *moved_entries))
        if archived_entries or unreadable:
            lines = [*(to_single_line_entry(entry.raw) for entry in archived_entries), *unreadable]
            append_lines(self._directories.archive, self._archive, lines)
        if moved_entries:
            self._overflow.record_move_intent(batch, moved_entries[0].mail.id)
        foreign_lock.confirm_held()
        self._replace_inbox_file(inbox)
        if batch.lines:
            self._overflow.confirm_batch_moved(batch)
        self._inbox = inbox
        self.wake_waiters()

    def _spill_surplus_entries(
        self, foreign_lock: ForeignProgramLock, entries: tuple[MailInboxFileEntry, ...]
    ) -> tuple[MailInboxFileEntry, ...]:
        """Move the entries that other programs wrote and that do not fit to the end of the overflow.

        Without this, each batch that is read would rewrite all the unread mail behind it. Returns the other
        entries; each has a permanent id.
        """
        foreign_ids = {entry.mail.id for entry in entries if has_derived_mail_id(entry)}
        size = sum([len(entry.raw) for entry in entries])
        if not foreign_ids and len(entries) <= MAX_UNREAD and size <= MAX_UNREAD_BYTES:
            return entries  # the usual case
        fitting_ids = list_fitting_unread_ids(entries)
        if self._overflow.has_waiting_lines():
            # They are newer than the mail that waits.
            fitting_ids -= foreign_ids
        is_staying = [entry.mail.read or entry.mail.id in fitting_ids for entry in entries]
        entries = tuple(
            [
                assign_inbox_entry_id(e, self._ids.new_uuid()) if e.mail.id in foreign_ids else e
                for e in entries
            ]
        )
        if all(is_staying):
            return entries
        if foreign_ids:
            # With their ids first: if this process dies while they move, the second copy is recognized.
            foreign_lock.confirm_held()
            self._replace_inbox_file(build_inbox_file(entries))
        staying = tuple(entry for entry, stays in zip(entries, is_staying, strict=True) if stays)
        surplus = (entry for entry, stays in zip(entries, is_staying, strict=True) if not stays)
        self._overflow.append([to_single_line_entry(entry.raw) for entry in surplus])
        self._overflow.finish_interrupted_move([entry.mail.id for entry in staying])
        return staying

    def _replace_inbox_file(self, inbox: MailInboxFileContent) -> None:
        assert inbox.content is not None
        self._directories.staging.rewrite_unshared_or_recreate_file(self._file, inbox.content)
        self._directories.staging.swap_or_move_file(self._file, self._directories.inboxes, self._file)

    def _read_fitting_overflow_batch(
        self, kept_entries: tuple[MailInboxFileEntry, ...]
    ) -> MailInboxOverflowBatch:
        return self._overflow.read_oldest_batch(
            *MailInboxFileContent(content=None, entries=kept_entries).remaining_unread_capacity
        )

    def _parse_overflow_batch(
        self, batch: MailInboxOverflowBatch
    ) -> tuple[tuple[MailInboxFileEntry, ...], list[bytes]]:
        """Return the messages, and the lines that cannot be parsed."""
        entries: list[MailInboxFileEntry] = []
        unreadable: list[bytes] = []
        for line in batch.lines:
            entry = parse_inbox_entry(line)
            if isinstance(entry, MailInboxFileEntry):
                entries.append(entry)
            else:
                unreadable.append(line)
                self._report_problem(
                    f"A message for {self.owner} is unreadable: {entry.reason}. It is kept in "
                    f"{self._directories.archive.path / self._archive}."
                )
        return tuple(entries), unreadable

    @property
    def _is_windowed(self) -> bool:
        """True if old and surplus mail may leave the inbox file: only Shoal looks for it elsewhere."""
        return self._directories.is_led_by_shoal and not self.is_foreign

    @property
    def is_foreign(self) -> bool:
        return self._directories.foreign.has_entry(self.owner)


def _is_damaged(inbox: MailInboxFileContent | InvalidFileContent) -> bool:
    return isinstance(inbox, InvalidFileContent) or bool(inbox.rejected)


def _take_first_mail(
    unread: Sequence[MailInboxFileEntry], limit: int, beyond: Container[str]
) -> tuple[MailMessage, ...]:
    return tuple(islice((entry.mail for entry in unread if entry.mail.id not in beyond), limit))


def _count_fitting_posts(inbox: MailInboxFileContent, posts: list[_PendingMailPost]) -> int:
    count, size = inbox.remaining_unread_capacity
    fitting_count = 0
    for post in posts[:count]:
        size -= len(post.entry.raw)
        if size < 0 and (fitting_count or inbox.unread):
            break
        fitting_count += 1
    return fitting_count


def _resolve_pending_post(post: _PendingMailPost, *, delivered: bool) -> None:
    if not post.outcome.done():
        state: MailDeliveryState = "delivered" if delivered else "queued"
        post.outcome.set_result(MailPostReceipt(id=post.entry.mail.id, standing=state))


def _fail_pending_posts(posts: list[_PendingMailPost], error: Exception) -> None:
    for post in posts:
        if not post.outcome.done():
            post.outcome.set_exception(error)


def _get_mail_post_receipt(post: _PendingMailPost) -> MailPostReceipt:
    receipt = post.outcome.result()
    if receipt is None:
        raise LockUnavailable(format_store_notice("message_not_written"))
    return receipt
