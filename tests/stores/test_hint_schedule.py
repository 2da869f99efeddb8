"""When a process tells others of its changes in a database."""

from __future__ import annotations

from itertools import pairwise

from shoal.stores.postgres.hint_schedule import HintSchedule


def send_batches(schedule: HintSchedule, start: float, count: int) -> list[float]:
    """Send batches as soon as the schedule allows; return their times."""
    times = [start]
    schedule.note_batch(start)
    while len(times) < count:
        times.append(schedule.get_send_time(times[-1], wakes=True))
        schedule.note_batch(times[-1])
    return times


def test_a_notification_after_a_break_is_sent_at_once() -> None:
    schedule = HintSchedule()
    assert schedule.get_send_time(100.0, wakes=True) <= 100.0
    send_batches(schedule, 100.0, 50)
    assert schedule.get_send_time(200.0, wakes=True) <= 200.0


def test_a_busy_process_sends_its_notifications_less_and_less_often_but_within_20_milliseconds() -> None:
    times = send_batches(HintSchedule(), 100.0, 50)
    pauses = [round(after - before, 4) for before, after in pairwise(times)]
    assert pauses[0] <= 0.0063
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.02


def test_a_break_makes_the_pauses_short_again() -> None:
    schedule = HintSchedule()
    last = send_batches(schedule, 100.0, 50)[-1]
    schedule.note_batch(last + 0.1)
    assert round(schedule.get_send_time(last + 0.1, wakes=True) - (last + 0.1), 4) == 0.005


def test_a_notification_that_wakes_nobody_waits_50_milliseconds() -> None:
    schedule = HintSchedule()
    assert round(schedule.get_send_time(100.0, wakes=False), 4) == 100.05
