"""Signals in a headless run: the first ends the turn and then the program, a second ends it at once."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from shoal.surfaces.cli import exits

if TYPE_CHECKING:
    from shoal.app.session.session import Session

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


GRACE = 1.5
"""Seconds for the last output after a turn was interrupted."""


class Signals:
    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._arrived = asyncio.Event()
        self._session: Session | None = None
        self._main: asyncio.Task[object] | None = None

    @property
    def exit_code(self) -> int:
        return exits.INTERRUPTED if self.received is None else exits.of_signal(self.received)

    def listen(self) -> None:
        """Install handlers that end the running task in order, instead of the process."""
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in HEARD:
            # A signal that our parent ignored (nohup, a shell's background job) stays ignored.
            if signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, self._on, number)

    def _on(self, number: signal.Signals) -> None:
        first = self.received is None
        self.received = self.received or number
        if first and self._session is not None and self._session.busy:
            self._arrived.set()
        elif self._main is not None:
            self._main.cancel()

    async def interrupting(self, session: Session) -> None:
        """Interrupt the session's turn when a signal arrives during one."""
        self._session = session
        await self._arrived.wait()
        await session.interrupt()
        # Leave a little time for what delays the end, such as a reader that does not read.
        await session.agent.clock.sleep(GRACE)
        if self._main is not None:
            self._main.cancel()
