"""The seat of another program in a team: one client has it at a time, and nothing is left of it."""

from __future__ import annotations

import threading

import pytest

from shoal.core.errors import StoreError
from shoal.stores.files.locks import SeatLock


def test_a_seat_is_one_clients_and_leaves_nothing(home):
    seat = SeatLock(home, "roof", "ann")
    with pytest.raises(StoreError, match="another client already"):
        SeatLock(home, "roof", "ann")
    seat.release()
    seat.release()
    assert list(seat.path.parent.iterdir()) == []
    SeatLock(home, "roof", "ann").release()


def test_a_seat_given_up_and_taken_at_the_same_time_is_never_two_clients(home):
    taken, most, guard = [], [], threading.Lock()

    def come_and_go():
        for _ in range(200):
            try:
                seat = SeatLock(home, "roof", "ann")
            except StoreError:
                continue
            with guard:
                taken.append(seat)
                most.append(len(taken))
            with guard:
                taken.remove(seat)
            seat.release()

    clients = [threading.Thread(target=come_and_go) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert max(most) == 1
