"""Leases: who lives, and what the dead leave is removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shoal.stores.files.handles import Directory
from shoal.stores.files.leases import Lease, clear_dead, is_alive


@pytest.fixture
def leases(tmp_path: Path) -> Iterator[Directory]:
    with Directory.root(tmp_path / "leases") as directory:
        yield directory


def test_a_lease_lives_until_it_ends(leases: Directory):
    lease = Lease(leases)
    assert is_alive(leases, lease.id)
    lease.end()
    assert not is_alive(leases, lease.id)
    assert leases.names() == []


def test_what_the_dead_left_is_removed_however_many_live(leases: Directory):
    dead = [os.urandom(8).hex() for _ in range(9)]
    with ExitStack() as living:
        for each in dead:
            leases.write(each, b"1\n")
            for _ in range(15):
                living.callback(Lease(leases).end)
        for _ in range(200):
            clear_dead(leases)
        assert not set(dead) & set(leases.names())
        assert len(leases.names()) == 15 * len(dead)
