"""Failures of the database: which of them are temporary, and the sentences for the others."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import asyncpg

from shoal.core.errors import StateFileError

# asyncpg's own words about a file with passwords that it does not use; the error of Shoal says it.
warnings.filterwarnings("ignore", message="password file ", category=UserWarning, module="asyncpg")

LOST_CONNECTION_ERRORS: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    # Its state after a server that ended between two statements.
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""The server is unavailable, starting or stopping: the operation is retried on a new connection."""
REPEATABLE_ERRORS: tuple[type[BaseException], ...] = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
"""The server rolled back the transaction: it is retried at once."""
_CHECK_ADDRESS = (
    "Check that the server is running, and that the address, the user and the password are correct."
)


class StoreLeaseLost(StateFileError):
    """This process lost its lease, so another may continue its work: it must no longer write."""


def build_lease_lost_error(address: str) -> StoreLeaseLost:
    return StoreLeaseLost(
        f"This process did not reach the store {address} in time and lost its lease. Another process may "
        "now continue its sessions and tasks, so this process writes nothing more. If no other process has "
        "resumed the session, resume it with --resume.",
        path=Path(),
    )


def build_unreachable_error(address: str, error: BaseException, *, seconds: float = 0.0) -> StateFileError:
    waited = f" for {seconds:.0f} seconds" if seconds else ""
    reason = str(error).strip() or (
        "it does not answer" if isinstance(error, TimeoutError) else type(error).__name__
    )
    advice = _explain_ignored_password_file() if isinstance(error, asyncpg.InvalidPasswordError) else ""
    return StateFileError(
        f"Cannot reach the store {address}{waited}: {reason.rstrip('.')}. {advice or _CHECK_ADDRESS}",
        path=Path(),
    )


def _explain_ignored_password_file() -> str:
    """Return why the file with the passwords is not used, and the fix; empty if it is used or missing."""
    path = Path(os.environ.get("PGPASSFILE") or Path("~/.pgpass").expanduser())
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if not mode & (stat.S_IRWXG | stat.S_IRWXO):
        return ""
    return f"{path} is not used, because other users can access it. Run: chmod 600 {path}"


def describe_refusal(address: str, error: asyncpg.PostgresError) -> StateFileError:
    """Return the error for a statement that the server refused."""
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        problem = (
            "is read-only: it is a standby, or default_transaction_read_only is on. Nothing was written. Use "
            "the address of the primary server"
        )
    elif isinstance(error, asyncpg.DiskFullError | asyncpg.OutOfMemoryError):
        problem = (
            f"has no space left ({error}). Nothing was written. Free some space, then resume with --resume"
        )
    elif isinstance(error, asyncpg.InsufficientPrivilegeError):
        problem = (
            f"does not allow this user to do that ({error}). Only the owner of the database can create or "
            "migrate the tables: shoal store migrate. Other users need SELECT, INSERT, UPDATE and DELETE on "
            "all tables of the schema shoal"
        )
    else:
        problem = f"refused a statement: {error}"
    return StateFileError(f"The store {address} {problem}.", path=Path())
