"""One of several processes that use a store: `store_client.py ADDRESS HOME WORK NAME COUNT`.

WORK is `post` or `claim`, or `sql-post` or `sql-claim` for the same rows without Shoal. It prints `ready`,
waits for a line, works, and prints the seconds it took. `wake` posts a message for each line that it reads,
and prints the time of the monotonic clock when it is posted; `wait` prints the time when each message has
woken it.
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
from shoal.core.teams.team_storage import MailboxStore
from shoal.stores.store_choice import open_store

_AT = "2026-02-13T10:11:35.247Z"
_SQL_POST = "INSERT INTO shoal.mail (team, owner, id, document) VALUES ('sql', $1, $2, $3)"
_SQL_CLAIM = """
    UPDATE shoal.tasks SET status = 'in_progress', owner = $1, attempt = $2 WHERE board = 'sql-bench' AND
    number = (SELECT number FROM shoal.tasks WHERE board = 'sql-bench' AND status = 'pending'
              AND owner IS NULL AND open_blockers = 0 ORDER BY rank, number LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING number, document
"""


async def main(address: str, home: str, work: str, name: str, count: str) -> None:
    if work.startswith("sql-"):
        await run_statements(address, work, name, int(count))
        return
    store, ids = open_store(address, home=Path(home)), IdGenerator()
    services = {"clock": SystemClock(), "ids": ids, "report": lambda _: None}
    mailboxes = store.open_mailboxes(TeamName("bench"), **services)
    if work == "wait":
        await wait_for_messages(mailboxes, AgentName(name), int(count))
        return
    if work == "wake":
        await wake_reader(mailboxes, AgentName(name), int(count))
        return
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


async def wait_for_messages(mailboxes: MailboxStore, owner: AgentName, count: int) -> None:
    await mailboxes.open_inbox(owner)
    for number in range(count):
        waiting = asyncio.create_task(mailboxes.wait_for_mail(owner))
        await asyncio.sleep(0.01)
        print("ready", flush=True)
        await waiting
        print(time.monotonic(), flush=True)
        await mailboxes.mark_read(owner, [str(number)])
    await mailboxes.aclose()


async def wake_reader(mailboxes: MailboxStore, owner: AgentName, count: int) -> None:
    for number in range(count):
        await asyncio.to_thread(sys.stdin.readline)
        mail = MailMessage(id=str(number), sender=AgentName("bob"), text="x", timestamp=_AT)
        await mailboxes.post(owner, mail)
        print(time.monotonic(), flush=True)
    await mailboxes.aclose()


async def run_statements(address: str, work: str, name: str, count: int) -> None:
    import asyncpg

    connection, ids = await asyncpg.connect(address), IdGenerator()
    statement = await connection.prepare(_SQL_CLAIM if work == "sql-claim" else _SQL_POST)
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    for _ in range(count):
        if work == "sql-claim":
            assert await statement.fetchrow(name, f"{name}-1") is not None
        else:
            await statement.fetchrow(name, ids.new_uuid(), b"x" * 250)
    print(time.perf_counter() - started, flush=True)
    sys.stdin.readline()
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
