"""Stores in PostgreSQL for tests, with short times."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

from store_openers import make_services

from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.database_worker import StoreTiming
from shoal.stores.postgres.postgres_store import PostgresStore

WAIT_SECONDS = 30
__all__ = ["make_services"]


def open_postgres_store(address, home, **timing):
    return PostgresStore(DatabaseClient(address, timing=StoreTiming(**timing)), home)


@contextmanager
def opened_postgres_store(address, home, **timing):
    store = open_postgres_store(address, home, **timing)
    try:
        yield store
    finally:
        store.close()


async def wait_for(check):
    """Wait until the check returns something true, and return it."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not (found := await check()):
            await asyncio.sleep(0.05)
    return found
