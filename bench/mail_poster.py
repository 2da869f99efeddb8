"""Posts mail from another process on request and prints when the post returned, to time a wake."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName
from shoal.stores.files.mailboxes import FileMailboxes


async def main(home: Path) -> None:
    ids = Ids()
    boxes = FileMailboxes(home, TeamName("t"), clock=SystemClock(), ids=ids)
    for _ in sys.stdin:
        mail = Mail(id=ids.uuid(), sender=AgentName("bob"), text="x" * 100, timestamp="t")
        await boxes.post(AgentName("woken"), mail)
        sys.stdout.write(f"{time.monotonic()!r}\n")
        sys.stdout.flush()
    await boxes.aclose()


asyncio.run(main(Path(sys.argv[1])))
