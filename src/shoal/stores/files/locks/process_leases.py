"""Leases: a locked file shows that its holder is alive. The kernel frees the lock however the holder ends."""

from __future__ import annotations

import fcntl
import os
import random
import re
import time
from contextlib import suppress
from weakref import WeakSet

from shoal.core.errors import StateFileError
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.home.home_paths import build_write_error
from shoal.stores.files.locks.flocks import is_flocked

_LEASE_ID = re.compile(r"[0-9a-f]{16}")
_CREATION_GRACE = 60.0
"""Seconds during which a process may still be creating an unlocked file."""
_MAX_CHECKED = 64


class ProcessLease:
    """Lease held from its creation until `release` or the end of the process."""

    def __init__(self, directory: DirectoryHandle) -> None:
        self.id = os.urandom(8).hex()
        self._directory = directory
        temporary = f".{self.id}"
        self._fd = directory.open_file(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.write(self._fd, f"{os.getpid()}\n".encode())
            # Gets its name only once it is locked: nobody sees it unlocked while its holder lives.
            directory.move_file(temporary, directory, self.id)
        except (OSError, StateFileError) as error:
            self.detach_in_forked_child()
            with suppress(StateFileError):
                directory.remove_file(temporary)
            if isinstance(error, StateFileError):
                raise
            raise build_write_error(directory.path / self.id, error) from error
        _held_leases.add(self)

    @property
    def is_held(self) -> bool:
        return self._fd >= 0

    def release(self) -> None:
        if self.is_held:
            self._directory.remove_file(self.id)
        self.detach_in_forked_child()

    def detach_in_forked_child(self) -> None:
        """Close the descriptor in a forked child: the lease belongs to the parent and ends only with it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_held_leases: WeakSet[ProcessLease] = WeakSet()


def _detach_leases_in_forked_child() -> None:
    for lease in list(_held_leases):
        lease.detach_in_forked_child()
    _held_leases.clear()


os.register_at_fork(after_in_child=_detach_leases_in_forked_child)


def is_process_lease_alive(directory: DirectoryHandle, lease: str, *, keeps_dead: bool = False) -> bool:
    """Return True if the lease holder is alive; remove a dead lease unless `keeps_dead` is set."""
    if _LEASE_ID.fullmatch(lease) is None:
        return False
    try:
        fd = directory.open_file(lease, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        if is_flocked(fd):
            return True
    finally:
        os.close(fd)
    if not keeps_dead:
        directory.remove_file(lease)
    return False


def remove_dead_process_leases(directory: DirectoryHandle) -> None:
    """Remove leases of dead processes: a bounded random sample, so that live leases do not hide them."""
    names = directory.list_names()
    for name in random.sample(names, min(len(names), _MAX_CHECKED)):
        if not name.startswith("."):
            is_process_lease_alive(directory, name)
        elif (
            status := directory.get_entry_stat(name)
        ) is not None and time.time() - status.st_mtime > _CREATION_GRACE:
            with suppress(StateFileError):
                directory.remove_file(name)
