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

from shoal.backends.order_channel import GuardianOrderChannel

GUARDIAN_SCRIPT = Path(__file__).with_name("guardian.py")
END_TIMEOUT = 6.0
"""Seconds a guardian may take to end everything; it promises less."""


class ProcessGuardianClient:
    """Handle of one guardian. `on_lost` is called once, if it ends without being asked to."""

    def __init__(self, on_message: Callable[[dict[str, Any]], None], on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost
        own_end, guardian_end = socket.socketpair()
        with guardian_end:
            self._guardian = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-E",
                    "-X",
                    "utf8",
                    str(GUARDIAN_SCRIPT),
                    str(guardian_end.fileno()),
                ],
                pass_fds=[guardian_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        self._channel = GuardianOrderChannel(own_end, on_message, self._on_guardian_end)

    @property
    def pid(self) -> int:
        return self._guardian.pid

    @property
    def is_alive(self) -> bool:
        return self._channel.is_open

    def send_order(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send an order in sequence, as fast as it is read by the guardian; never blocks or splits it."""
        if self.is_alive:
            self._channel.send_order(message, descriptors)

    def _on_guardian_end(self) -> None:
        # Its socket is closed, so it is dead or about to be: this does not wait.
        self._guardian.kill()
        self._guardian.wait()
        if not self._channel.is_finishing:
            self._on_lost()

    def kill_guardian(self) -> None:
        """Give up on a guardian that does not answer."""
        self._guardian.send_signal(signal.SIGKILL)
        self._channel.close()

    async def close(self) -> None:
        """Make it end everything, and wait until it has."""
        if not await self._channel.make_peer_end_everything(asyncio.timeout(END_TIMEOUT)):
            self.kill_guardian()
