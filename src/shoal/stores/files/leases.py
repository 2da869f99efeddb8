"""Leases: a locked file shows that its holder is alive. The kernel frees the lock however the holder ends."""

from __future__ import annotations

import fcntl
import os
import random
import re
import time
from contextlib import suppress
from weakref import WeakSet

from shoal.core.errors import StoreError
from shoal.stores.files.flocks import is_flocked
from shoal.stores.files.handles import Directory
from shoal.stores.files.places import unwritable

_LEASE = re.compile(r"[0-9a-f]{16}")
_YOUNG = 60.0
"""Seconds during which an unlocked file may still be in creation."""
_MOST_CLEARED = 64


class Lease:
    """Lease held from its creation until `release` or the end of the process."""

    def __init__(self, directory: Directory) -> None:
        self.id = os.urandom(8).hex()
        self._directory = directory
        making = f".{self.id}"
        self._fd = directory.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.write(self._fd, f"{os.getpid()}\n".encode())
            # Gets its name only once it is locked: nobody sees it unlocked while its holder lives.
            directory.move(making, directory, self.id)
        except (OSError, StoreError) as error:
            self.forget()
            with suppress(StoreError):
                directory.remove(making)
            if isinstance(error, StoreError):
                raise
            raise unwritable(directory.path / self.id, error) from error
        _held.add(self)

    @property
    def held(self) -> bool:
        return self._fd >= 0

    def end(self) -> None:
        if self.held:
            self._directory.remove(self.id)
        self.forget()

    def forget(self) -> None:
        """Close the descriptor in a forked child: the lease belongs to the parent and ends only with it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_held: WeakSet[Lease] = WeakSet()


def _leave_to_the_parent() -> None:
    for lease in list(_held):
        lease.forget()
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def is_alive(directory: Directory, lease: str) -> bool:
    """Return True if the lease holder is alive; remove a dead lease."""
    if _LEASE.fullmatch(lease) is None:
        return False
    try:
        fd = directory.open(lease, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        if is_flocked(fd):
            return True
    finally:
        os.close(fd)
    directory.remove(lease)
    return False


def clear_dead(directory: Directory) -> None:
    """Remove leases of dead processes: a bounded random sample, so that live leases do not hide them."""
    names = directory.names()
    for name in random.sample(names, min(len(names), _MOST_CLEARED)):
        if not name.startswith("."):
            is_alive(directory, name)
        elif (status := directory.status(name)) is not None and time.time() - status.st_mtime > _YOUNG:
            with suppress(StoreError):
                directory.remove(name)
