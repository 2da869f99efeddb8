"""The lock of an external member: one client holds it at a time, and it leaves no file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from shoal.core.errors import StateFileError
from shoal.stores.files.locks.pid_locks import ExternalMemberLock


def test_an_external_member_has_one_client_and_its_lock_leaves_no_file(home):
    lock = ExternalMemberLock(home, "roof", "ann")
    with pytest.raises(StateFileError, match=r"Another client, served by .*, already uses"):
        ExternalMemberLock(home, "roof", "ann")
    lock.release()
    lock.release()
    assert list(lock.path.parent.iterdir()) == []
    ExternalMemberLock(home, "roof", "ann").release()


def test_a_second_release_leaves_the_lock_of_the_next_client(home):
    first = ExternalMemberLock(home, "roof", "ann")
    first.release()
    second = ExternalMemberLock(home, "roof", "ann")
    first.release()
    assert second.path.exists()
    second.release()


def test_a_released_lock_has_no_open_descriptor(home):
    lock = ExternalMemberLock(home, "roof", "ann")
    lock.release()
    open_files = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert not [path for path in open_files if path.startswith(str(lock.path))]


def test_a_lock_names_the_process_that_holds_it(home):
    lock = ExternalMemberLock(home, "roof", "ann")
    assert lock.path.read_text() == f"{os.getpid()}\n"
    lock.release()


def test_concurrent_clients_never_hold_one_member_lock_together(home):
    held, counts, guard = [], [], threading.Lock()

    def acquire_and_release():
        for _ in range(200):
            try:
                lock = ExternalMemberLock(home, "roof", "ann")
            except StateFileError:
                continue
            with guard:
                held.append(lock)
                counts.append(len(held))
            with guard:
                held.remove(lock)
            lock.release()

    clients = [threading.Thread(target=acquire_and_release) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert max(counts) == 1
