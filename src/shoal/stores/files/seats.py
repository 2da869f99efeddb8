"""A seat in a team that one process of another program has: a lock that ends with it, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.stores.files.places import make_private, unwritable


class SeatLock:
    """Held from its making until `release`. Raises `StoreError` where another process has the seat."""

    def __init__(self, home: Path, team: str, name: str) -> None:
        path = home / "shoal" / "mcp" / "seats" / f"{name}@{team}"
        make_private(path.parent)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            self.release()
            told = f"{name} of the team {team} is another client already, served by process {pid}."
            raise StoreError(told, path=path) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
