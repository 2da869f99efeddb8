"""Check for a connection pooler that gives each transaction another server connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from shoal.core.errors import SettingsError

_PROBES = 4


async def check_pooler(raw: Any, connect: Callable[[], Awaitable[Any]], address: str) -> None:
    """Raise `SettingsError` if a pooler is in transaction mode.

    A pooler reports a made-up process id at the start of a connection. In transaction mode, another client
    gets the server connection of one that is between two transactions.
    """
    if await raw.fetchval("SELECT pg_backend_pid()") == raw.get_server_pid():
        return
    other = await connect()
    try:
        for _ in range(_PROBES):
            before = await raw.fetchval("SELECT pg_backend_pid()")
            async with other.transaction():
                taken = await other.fetchval("SELECT pg_backend_pid()")
                after = await raw.fetchval("SELECT pg_backend_pid()")
            if taken in (before, after) or before != after:
                raise build_pooler_error(address)
    except (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError) as error:
        raise build_pooler_error(address) from error
    except asyncpg.PostgresConnectionError as error:
        if "pooling mode" in str(error):
            raise build_pooler_error(address) from error
        raise
    finally:
        await other.close()


def build_pooler_error(address: str) -> SettingsError:
    return SettingsError(
        f"The store {address} is behind a connection pooler in transaction or statement mode. Notifications "
        "and prepared statements belong to one server connection, so Shoal cannot use it. Set "
        "pool_mode = session in the pooler, or use the address of the server itself."
    )
