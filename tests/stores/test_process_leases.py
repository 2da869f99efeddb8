"""Leases show which processes are alive; leases of dead processes are removed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.locks.process_leases import (
    ProcessLease,
    is_process_lease_alive,
    remove_dead_process_leases,
)


@pytest.fixture
def leases(tmp_path: Path) -> Iterator[DirectoryHandle]:
    with DirectoryHandle.open_root(tmp_path / "leases") as directory:
        yield directory


def test_a_lease_is_alive_until_it_is_released(leases: DirectoryHandle):
    lease = ProcessLease(leases)
    assert is_process_lease_alive(leases, lease.id)
    lease.release()
    assert not is_process_lease_alive(leases, lease.id)
    assert leases.list_names() == []


def test_dead_leases_are_removed_among_many_live_ones(leases: DirectoryHandle):
    dead = [os.urandom(8).hex() for _ in range(9)]
    with ExitStack() as living:
        for each in dead:
            leases.write_file(each, b"1\n")
            for _ in range(15):
                living.callback(ProcessLease(leases).release)
        for _ in range(200):
            remove_dead_process_leases(leases)
        assert not set(dead) & set(leases.list_names())
        assert len(leases.list_names()) == 15 * len(dead)


def test_a_lease_ends_with_its_process_although_a_forked_child_lives(leases: DirectoryHandle):
    """A child that kept the descriptor would keep the lease of its dead parent alive."""
    child_says, said = os.pipe()
    go_on, release_child = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            lease = ProcessLease(leases)
            if os.fork() == 0:
                os.close(release_child)
                os.write(said, b"forked")
                os.read(go_on, 1)
            else:
                os.write(said, lease.id.encode())
                signal.pause()
        finally:
            os._exit(0)
    try:
        os.close(go_on)
        words = b""
        while len(words) < 16 + len(b"forked"):
            words += os.read(child_says, 100)
        lease_id = words.replace(b"forked", b"").decode()
        assert is_process_lease_alive(leases, lease_id)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        assert not is_process_lease_alive(leases, lease_id)
    finally:
        for fd in (release_child, child_says, said):
            os.close(fd)


def test_a_forked_child_that_releases_the_lease_of_its_parent_does_not_end_it(leases: DirectoryHandle):
    lease = ProcessLease(leases)
    child = os.fork()
    if child == 0:
        try:
            lease.release()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert is_process_lease_alive(leases, lease.id)
    lease.release()
    assert leases.list_names() == []
    lease.release()  # does nothing


def test_a_lease_in_creation_is_not_removed_before_its_time(leases: DirectoryHandle):
    for name in (".new", ".old"):
        leases.write_file(name, b"1\n")
    os.utime(leases.path / ".old", (0, 0))
    remove_dead_process_leases(leases)
    assert leases.list_names() == [".new"]
