"""A process that is in the middle of a transaction on a store in PostgreSQL, with a lock on a board."""

from __future__ import annotations

import sys
from pathlib import Path

from postgres_helpers import open_postgres_store

from shoal.core.errors import ShoalError

LOCK_BOARD = "UPDATE shoal.boards SET highest = highest + 1 WHERE name = 'roof'"


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def lock_board(raw):
    await raw.execute(LOCK_BOARD)
    tell("locked")
    sys.stdin.readline()


def main(address: str, home: str) -> None:
    store = open_postgres_store(address, Path(home), lease=1.0)
    try:
        store.client.run(lambda worker: worker.transact(lock_board))
    except ShoalError as error:
        tell(type(error).__name__)
    else:
        tell("written")


main(*sys.argv[1:])
