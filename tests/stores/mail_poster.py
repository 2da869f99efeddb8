"""Posts mail from another process, once for each line it reads: `python mail_poster.py HOME OWNER`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.stores.files.mailboxes import FileMailboxes


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(home: Path, owner: str) -> None:
    ids = Ids()
    mail = FileMailboxes(home, "t", clock=SystemClock(), ids=ids)
    say("ready")
    while sys.stdin.readline():
        await mail.post(owner, Mail(id=ids.uuid(), sender="bob", text="hi", timestamp="t"))
        say(repr(time.time()))
    await mail.aclose()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
