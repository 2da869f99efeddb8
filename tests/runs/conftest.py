"""Limits every test here to 20 seconds."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True)
def _bounded():
    def late(*_):
        raise TimeoutError("the test took longer than 20 seconds")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
