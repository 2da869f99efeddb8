"""Posts mail from another process, once for each line it reads: `python mail_poster.py HOME OWNER`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.teams.mail import MailMessage
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore


def write_line(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(home: Path, owner: str) -> None:
    ids = IdGenerator()
    mail = FileMailboxStore(home, "t", clock=SystemClock(), ids=ids)
    write_line("ready")
    while sys.stdin.readline():
        await mail.post(owner, MailMessage(id=ids.new_uuid(), sender="bob", text="hi", timestamp="t"))
        write_line(repr(time.time()))
    await mail.aclose()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
