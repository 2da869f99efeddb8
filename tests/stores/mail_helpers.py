"""Mailboxes of a team on disk, and mail for them."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.teams.mail import MailMessage
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore

TIMESTAMP = "2026-02-13T10:11:35.247Z"


def create_mailboxes(home: Path, team: str = "t", **options: Any) -> FileMailboxStore:
    return FileMailboxStore(home, team, **{"clock": SystemClock(), "ids": IdGenerator(), **options})


def open_mailboxes(home: Path, team: str = "t", **options: Any) -> aclosing[FileMailboxStore]:
    return aclosing(create_mailboxes(home, team, **options))


def make_mail(text: str, *, ident: str | None = None, sender: str = "bob") -> MailMessage:
    return MailMessage(id=ident or f"id of {text}", sender=sender, text=text, timestamp=TIMESTAMP)


def get_inbox_path(home: Path, owner: str = "ann", team: str = "t") -> Path:
    return home / "teams" / team / "inboxes" / f"{owner}.json"


async def take_all_mail(mail: FileMailboxStore, owner: str = "ann") -> list[MailMessage]:
    """Take and mark all unread mail."""
    taken: list[MailMessage] = []
    while batch := await mail.take_unread(owner):
        taken += batch
        await mail.mark_read(owner, [each.id for each in batch])
    return taken
