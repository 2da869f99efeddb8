"""Limits every test here to 20 seconds."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True)
def _limit_duration():
    def raise_timeout(*_):
        raise TimeoutError("the test took longer than 20 seconds")

    previous = signal.signal(signal.SIGALRM, raise_timeout)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
