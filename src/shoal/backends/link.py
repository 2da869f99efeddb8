"""Client of the guardian: starts it with a socket, sends orders, and ends it."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shoal.backends.orders import Orders

SCRIPT = Path(__file__).with_name("guardian.py")
ENDING = 6.0
"""Seconds a guardian may take to end everything; it promises less."""


class GuardianLink:
    """Handle of one guardian. `on_lost` is called once, if it ends without being asked to."""

    def __init__(self, hear: Callable[[dict[str, Any]], None], lost: Callable[[], None]) -> None:
        self._lost = lost
        ours, theirs = socket.socketpair()
        with theirs:
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", "-E", "-X", "utf8", str(SCRIPT), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        self._orders = Orders(ours, hear, self._end)

    @property
    def pid(self) -> int:
        return self._guardian.pid

    @property
    def alive(self) -> bool:
        return self._orders.alive

    def order(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send an order in sequence, as fast as it is read by the guardian; never blocks or splits it."""
        if self.alive:
            self._orders.give(message, descriptors)

    def _end(self) -> None:
        # Its socket is closed, so it is dead or about to be: this does not wait.
        self._guardian.kill()
        self._guardian.wait()
        if not self._orders.finishing:
            self._lost()

    def abandon(self) -> None:
        """Give up on a guardian that does not answer."""
        self._guardian.send_signal(signal.SIGKILL)
        self._orders.close()

    async def close(self) -> None:
        """Make it end everything, and wait until it has."""
        if not await self._orders.finish(asyncio.timeout(ENDING)):
            self.abandon()
