"""Posts mail from another process on request and prints when the post returned, to time a wake."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore


async def main(home: Path) -> None:
    ids = IdGenerator()
    mailboxes = FileMailboxStore(home, TeamName("t"), clock=SystemClock(), ids=ids)
    for _ in sys.stdin:
        mail = MailMessage(id=ids.new_uuid(), sender=AgentName("bob"), text="x" * 100, timestamp="t")
        await mailboxes.post(AgentName("woken"), mail)
        sys.stdout.write(f"{time.monotonic()!r}\n")
        sys.stdout.flush()
    await mailboxes.aclose()


asyncio.run(main(Path(sys.argv[1])))
