"""One of several processes that use a store: `store_client.py ADDRESS HOME WORK NAME COUNT`.

WORK is `post` or `claim`. It prints `ready`, waits for a line, works, and prints the seconds it took.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.stores.store_choice import open_store

_AT = "2026-02-13T10:11:35.247Z"


async def main(address: str, home: str, work: str, name: str, count: str) -> None:
    store, ids = open_store(address, home=Path(home)), IdGenerator()
    services = {"clock": SystemClock(), "ids": ids, "report": lambda _: None}
    mailboxes = store.open_mailboxes(TeamName("bench"), **services)
    board = store.open_board("bench", **services)
    await board.list_unfinished() if work == "claim" else await mailboxes.open_inbox(AgentName(name))
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    for _ in range(int(count)):
        if work == "claim":
            assert await board.claim_next(by=AgentName(name)) is not None
        else:
            mail = MailMessage(id=ids.new_uuid(), sender=AgentName("bob"), text="x" * 150, timestamp=_AT)
            await mailboxes.post(AgentName(name), mail)
    print(time.perf_counter() - started, flush=True)
    sys.stdin.readline()
    await board.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
