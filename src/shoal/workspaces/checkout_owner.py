"""Owners of the checkouts on a machine of a cluster: who may remove one, and which ones nobody needs anymore.

The files are next to the checkouts: `.NAME.unsent` marks files that could not be sent, `.NAME.trust` has the
lead's decisions on settings of the project, and a process holds a lock on `.NAME.OWNER.lock` while it runs.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import socket
from contextlib import suppress
from itertools import count
from pathlib import Path

_OWNER_FILE = Path(".git", "shoal-owner")
_MAX_OWNER = 1_000
_OWNER = re.compile(r"[0-9a-f]{32}-[A-Za-z0-9-]*")


class CheckoutOwner:
    """A process, or one of several members in it, that makes a checkout at a path and removes it."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._name = f"{secrets.token_hex(16)}-{_get_host()}"
        self._lock: int | None = None

    def claim(self) -> None:
        """Write the owner into a new checkout. Raises `OSError`."""
        if self._lock is None:
            self._lock = _take_lock(_get_lock(self._top, self._name))
        (self._top / _OWNER_FILE).write_text(self._name)

    def remove(self) -> None:
        """Remove the checkout, unless a later process has made its own in the same place."""
        if _read_owner(self._top) in ("", self._name):
            _remove_checkout(self._top)
            self.mark_unsent_files(has_some=False)
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                _get_lock(self._top, self._name).unlink()
            os.close(lock)

    def mark_unsent_files(self, *, has_some: bool) -> None:
        """Note on the disk, where it outlives this process, whether files could not be sent."""
        with suppress(OSError):
            if has_some:
                _get_mark(self._top).touch(mode=0o600)
            else:
                _get_mark(self._top).unlink(missing_ok=True)


def _take_lock(path: Path) -> int:
    """Create a file and lock it; another process may remove it before it is locked."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            return lock  # the file system has no locks, so nobody else can take this one
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)


def keep_unsent_files(top: Path) -> None:
    """Rename an earlier checkout with files that could not be sent. Raises `OSError`."""
    mark = _get_mark(top)
    if mark.exists() and top.exists():
        top.rename(next(place for n in count(1) if not (place := top.with_name(f"{top.name}.{n}")).exists()))
    mark.unlink(missing_ok=True)


def remove_abandoned_checkouts(directory: Path) -> None:
    """Remove checkouts whose processes on this machine were killed after everything was sent.

    Locks of other machines may be invisible in a home that several machines share.
    """
    with suppress(OSError):
        for top in directory.iterdir():
            # A checkout that was kept has a dot in its name.
            if "." not in top.name and not _get_mark(top).exists() and _is_abandoned(top):
                _remove_checkout(top)
        for lock in directory.glob(f".*-{_get_host()}.lock"):
            if not _is_locked(lock):
                lock.unlink(missing_ok=True)


def _remove_checkout(top: Path) -> None:
    shutil.rmtree(top, ignore_errors=True)
    with suppress(OSError):
        top.with_name(f".{top.name}.trust").unlink(missing_ok=True)


def _is_abandoned(top: Path) -> bool:
    owner = _read_owner(top)
    if not owner.endswith(f"-{_get_host()}"):
        return False
    # The mark is read again: the owner may have set it just before it ended.
    return not _is_locked(_get_lock(top, owner)) and not _get_mark(top).exists()


def _is_locked(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _read_owner(top: Path) -> str:
    """Return the owner; empty if a command of the agent has removed or changed it."""
    try:
        # A pipe would keep everybody waiting, and a device would have no end.
        descriptor = os.open(top / _OWNER_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor) as file:
            owner = file.read(_MAX_OWNER)
    except (OSError, ValueError):
        return ""
    return owner if _OWNER.fullmatch(owner) else ""


def _get_host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())


def _get_lock(top: Path, owner: str) -> Path:
    return top.with_name(f".{top.name}.{owner}.lock")


def _get_mark(top: Path) -> Path:
    return top.with_name(f".{top.name}.unsent")
