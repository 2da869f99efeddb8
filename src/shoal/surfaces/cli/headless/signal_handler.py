"""Signals in a headless run: the first ends the turn and then the program, a second ends it at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shoal.surfaces.cli import exit_codes

if TYPE_CHECKING:
    from shoal.app.session.session import Session

HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


OUTPUT_GRACE = 1.5
"""Seconds to write the last output after a turn is interrupted."""


class HeadlessSignalHandler:
    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._listeners: list[Callable[[], bool]] = []
        """Called for the first signal; one that returns True ends the run itself."""
        self._main_task: asyncio.Task[object] | None = None
        self._ignored: list[signal.Signals] = []

    @property
    def exit_code(self) -> int:
        return (
            exit_codes.INTERRUPTED
            if self.received is None
            else exit_codes.exit_code_for_signal(self.received)
        )

    def install_handlers(self) -> None:
        """Install handlers that end the running task cleanly, instead of the process."""
        self._main_task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in HANDLED_SIGNALS:
            # A signal that our parent ignored (nohup, a shell's background job) stays ignored.
            if signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)

    def ignore_signals(self) -> None:
        """Ignore further signals; without this, one that arrives while asyncio closes prints a traceback."""
        loop = asyncio.get_running_loop()
        for number in HANDLED_SIGNALS:
            if loop.remove_signal_handler(number):
                signal.signal(number, signal.SIG_IGN)
                self._ignored.append(number)

    def restore_signals(self) -> None:
        """Give the ignored signals their default effect; call this when the event loop is closed."""
        while self._ignored:
            number = self._ignored.pop()
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)

    def _on_signal(self, number: signal.Signals) -> None:
        first = self.received is None
        self.received = self.received or number
        is_handled = first and any(listener() for listener in self._listeners)
        if not is_handled and self._main_task is not None:
            self._main_task.cancel()

    @contextmanager
    def _listen(self, listener: Callable[[], bool]) -> Iterator[None]:
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def interrupt_on_signal(self, session: Session) -> None:
        """Interrupt the session's turn when a signal arrives during one."""
        arrived = asyncio.Event()

        def note_signal() -> bool:
            if session.is_busy:
                arrived.set()
            return session.is_busy

        with self._listen(note_signal):
            await arrived.wait()
        await session.interrupt()
        # Leave a little time for what delays the end, such as a reader that does not read.
        await session.clock.sleep(OUTPUT_GRACE)
        if self._main_task is not None:
            self._main_task.cancel()
