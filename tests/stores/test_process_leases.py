"""Leases show which processes are alive; leases of dead processes are removed."""

from __future__ import annotations

import os
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
