"""Inboxes of one team on disk, for any number of processes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Container, Iterable
from pathlib import Path

from shoal.core.clock import Clock
from shoal.core.errors import InboxNotFound, TeamNotFound
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName, parse_inbox_name, parse_team_name
from shoal.core.teams.mail import MailMessage, MailPostReceipt
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.access.file_watch import DirectoryWatch, FileWatch
from shoal.stores.files.access.problem_reporter import ProblemReporter, ignore_problem
from shoal.stores.files.locks.shared_file_lock import LOCK_TIMEOUT
from shoal.stores.files.mailboxes.file_mailbox import FileMailbox, TeamMailDirectories
from shoal.stores.store_texts import format_store_notice

_MAX_POLLED = 64
"""Inboxes that are checked in one poll without an event."""
_MAX_CACHED = 64
"""Inboxes whose content is cached: in a large team most are idle."""


class FileMailboxStore:
    """Mailboxes on files. Nothing is created before the first call; quarantined files are reported."""

    def __init__(  # noqa: PLR0913 - what it uses and how
        self,
        home: Path,
        team: TeamName,
        *,
        clock: Clock,
        ids: IdGenerator,
        report_problem: ProblemReporter = ignore_problem,
        lock_timeout: float = LOCK_TIMEOUT,
        durable: bool = False,
        read_only: bool = False,
    ) -> None:
        """With `read_only`, nothing is created, and damaged inboxes are reported and never changed."""
        self._home = home
        self._read_only = read_only
        self._team = parse_team_name(team)
        self._clock = clock
        self._ids = ids
        self._report_problem = report_problem
        self._lock_timeout = lock_timeout
        self._durable = durable
        self._directories: TeamMailDirectories | None = None
        self._boxes: dict[str, FileMailbox] = {}
        self._cached_boxes: OrderedDict[str, FileMailbox] = OrderedDict()
        """Mailboxes with cached content, the most recent at the end."""
        self._watch: DirectoryWatch | None = None
        self._watched_owners: set[str] = set()

    async def open_inbox(self, owner: AgentName, *, foreign: bool = False) -> None:
        await self._get_mailbox(owner).open_inbox(foreign=foreign)

    async def post(self, to: AgentName, mail: MailMessage) -> MailPostReceipt:
        return await self._get_mailbox(to).post(mail)

    async def take_unread(
        self, owner: AgentName, *, limit: int = 64, beyond: Container[str] = ()
    ) -> tuple[MailMessage, ...]:
        return await self._get_mailbox(owner).take_unread(limit, beyond)

    async def mark_read(self, owner: AgentName, ids: Collection[str]) -> None:
        await self._get_mailbox(owner).mark_read(ids)

    async def wait_for_mail(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        mailbox = self._get_mailbox(owner)
        if mailbox.owner not in self._watched_owners and self._directories is not None:
            self._watched_owners.add(mailbox.owner)
            self._watch_inboxes(self._directories.inboxes, mailbox)
        await mailbox.wait_for_mail(beyond)

    def find_changed_inboxes(self, owners: Iterable[AgentName]) -> list[AgentName]:
        if self._watch is None or not self._watch.deliver_pending_events():
            return list(owners)
        mailboxes = self._boxes
        return [
            owner for owner in owners if (box := mailboxes.get(owner)) is None or not box.has_caught_up_waiter
        ]

    def is_foreign_inbox(self, owner: AgentName) -> bool:
        return self._get_mailbox(owner).is_foreign

    async def read_history(self, owner: AgentName) -> tuple[MailMessage, ...]:
        return await self._get_mailbox(owner).read_history()

    async def aclose(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        self._boxes.clear()
        self._cached_boxes.clear()
        self._watched_owners.clear()
        directories, self._directories = self._directories, None
        if directories is not None:
            directories.close()

    def _watch_inboxes(self, inboxes: DirectoryHandle, mailbox: FileMailbox) -> None:
        """Watch one file if only one inbox has a waiter, so that other mail wakes no member process."""
        old_watch = self._watch
        if old_watch is None and inboxes.get_entry_stat(f"{mailbox.owner}.json") is not None:
            path = inboxes.path / f"{mailbox.owner}.json"
            self._watch = FileWatch(path, mailbox.wake_waiters, on_poll=self._wake_next_mailboxes_in_turn)
        elif old_watch is None or isinstance(old_watch, FileWatch):
            self._watch = DirectoryWatch(
                inboxes.path,
                self._wake_all_mail_waiters,
                on_names=self._wake_waiters_of_changed_files,
                on_poll=self._wake_next_mailboxes_in_turn,
            )
        if old_watch is not None and old_watch is not self._watch:
            old_watch.close()
            self._wake_all_mail_waiters()

    def _wake_waiters_of_changed_files(self, names: set[str]) -> None:
        for name in names:
            if (
                name.endswith(".json")
                and (mailbox := self._boxes.get(name.removesuffix(".json"))) is not None
            ):
                mailbox.wake_waiters()

    def _wake_all_mail_waiters(self) -> None:
        for mailbox in self._boxes.values():
            mailbox.wake_waiters()

    def _wake_next_mailboxes_in_turn(self) -> None:
        """Wake some mailboxes in turn: checking a thousand at once would block everything else."""
        for _ in range(min(_MAX_POLLED, len(self._boxes))):
            name, mailbox = next(iter(self._boxes.items()))
            self._boxes[name] = self._boxes.pop(name)
            mailbox.wake_waiters()

    def _get_mailbox(self, owner: AgentName) -> FileMailbox:
        name = parse_inbox_name(owner)
        if self._directories is not None and self._directories.is_removed:
            raise TeamNotFound(format_store_notice("deleted_team", team=self._team))
        if self._directories is None:
            with DirectoryHandle.open_root(self._home, durable=self._durable) as root:
                self._directories = (
                    TeamMailDirectories.open_existing(root, self._team)
                    if self._read_only
                    else TeamMailDirectories.open_for_team(root, self._team)
                )
            if self._directories is None:
                raise InboxNotFound(format_store_notice("no_inboxes", team=self._team))
        if name not in self._boxes:
            self._boxes[name] = FileMailbox(
                self._directories,
                name,
                clock=self._clock,
                ids=self._ids,
                report_problem=self._report_problem,
                lock_timeout=self._lock_timeout,
                read_only=self._read_only,
            )
        mailbox = self._cached_boxes[name] = self._boxes[name]
        mailbox.is_cached = True
        self._cached_boxes.move_to_end(name)
        if len(self._cached_boxes) > _MAX_CACHED:
            self._cached_boxes.popitem(last=False)[1].drop_cached_inbox()
        return mailbox
