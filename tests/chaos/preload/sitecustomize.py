"""Loaded by each interpreter whose clock is faked: libfaketime 0.9.10 refuses the sleep of Python 3.11.

`time.sleep` asks for a moment of the monotonic clock, which libfaketime moves by the jump of the other one.
"""

import select
import time


def _sleep_by_select(seconds: float, /) -> None:
    select.select([], [], [], seconds)


time.sleep = _sleep_by_select
