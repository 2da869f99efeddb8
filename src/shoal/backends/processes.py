"""Processes that cannot outlive the session: their parent is a guardian, which ends them with it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

from shoal.backends.guardian import below, children, deliver
from shoal.backends.link import GuardianLink
from shoal.backends.orders import utf8
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import Launch

LOST = (
    "The guardian process was killed, and every program it ran was ended with it. "
    "The next program starts under a new guardian."
)
CLOSED = "The session was closed and ended every program it ran."
STARTING = 10.0
"""Seconds to start a program; the guardian takes a few milliseconds."""
DYING = 0.8
"""Seconds from KILL to the report of the end."""


class GuardedProcess:
    def __init__(self, tell: Callable[[int], None], clock: Clock) -> None:
        self.pid = 0
        self._tell = tell
        self._clock = clock
        self._status: int | None = None
        self._failure = ""
        self._answered = asyncio.Event()
        self._exited = asyncio.Event()
        self._gone = asyncio.Event()

    @property
    def alive(self) -> bool:
        return self.pid != 0 and not self._exited.is_set()

    async def wait(self) -> int:
        """Return the exit status; negative for a signal. Raises `ProcessError` if the process was lost."""
        await self._exited.wait()
        if self._status is None:
            raise ProcessError(self._failure)
        return self._status

    async def stop(self, *, grace: float = 2.0) -> int:
        """Send TERM to the whole group, KILL after the grace; takes at most grace + 1 s."""
        try:
            if not self._gone.is_set():
                self._tell(signal.SIGTERM)
                async with self._clock.deadline(grace):
                    await self._gone.wait()
        except TimeoutError:
            self._tell(signal.SIGKILL)
        except asyncio.CancelledError:
            self._tell(signal.SIGKILL)
            raise
        try:
            async with self._clock.deadline(DYING):
                await self._gone.wait()
        except TimeoutError:
            if self.left:
                kill_families([self.pid])
            if not self._exited.is_set():
                raise ProcessError(f"Process {self.pid} was sent KILL but has not ended yet.") from None
        return await self.wait()

    async def answered(self) -> None:
        """Wait until the process has started. Raises `ProcessError` if it could not."""
        await self._answered.wait()
        if not self.pid:
            raise ProcessError(self._failure)

    def hear(self, news: dict[str, Any]) -> None:
        if "started" in news:
            self.pid = news["pid"]
            self._answered.set()
        elif "exited" in news:
            self._status = news["status"]
            self._exited.set()
        elif "gone" in news:
            self._gone.set()
        else:
            self._close(f"{news['error'][:1].upper()}{news['error'][1:]}.")

    @property
    def left(self) -> bool:
        """True if its group may have members."""
        return self.pid != 0 and not self._gone.is_set()

    def lose(self, why: str) -> None:
        """Mark the process as lost: no further message about it will arrive."""
        self._close(why)

    def _close(self, failure: str) -> None:
        self._failure = failure
        self._answered.set()
        self._exited.set()
        self._gone.set()


class GuardedProcesses:
    """Starts processes through a guardian, which itself starts with the first of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._link: GuardianLink | None = None
        self._running: dict[int, GuardedProcess] = {}
        self._last = 0
        self._closed = False

    @property
    def guardian(self) -> int | None:
        """The guardian's pid, while there is one."""
        return self._link.pid if self._link is not None and self._link.alive else None

    async def start(self, launch: Launch) -> GuardedProcess:
        link = self._living()
        self._last = identity = self._last + 1

        def tell(number: int) -> None:
            link.order({"signal": identity, "number": number})

        self._running[identity] = process = GuardedProcess(tell, self._clock)
        try:
            _order(link, identity, launch)
        except (OSError, ValueError) as error:
            self._running.pop(identity, None)
            raise ProcessError(f"{launch.argv[0]} was not started: {error}.") from error
        try:
            async with self._clock.deadline(STARTING):
                await process.answered()
        except TimeoutError:
            link.abandon()
            raise ProcessError(f"{launch.argv[0]} was not started: the guardian does not answer.") from None
        except asyncio.CancelledError:
            tell(signal.SIGKILL)
            raise
        return process

    async def aclose(self) -> None:
        """End everything: TERM, a short grace, KILL."""
        self._closed = True
        if self._link is not None:
            await self._link.close()
        lose_all(self._running, CLOSED)

    def _living(self) -> GuardianLink:
        if self._closed:
            raise ProcessError("The session is closed: no program can be started.")
        if self._link is None or not self._link.alive:
            try:
                self._link = GuardianLink(self._hear, self._lost)
            except OSError as error:
                raise ProcessError(f"The guardian of processes cannot be started: {error}.") from error
        return self._link

    def _hear(self, news: dict[str, Any]) -> None:
        pass_on(news, self._running)

    def _lost(self) -> None:
        lose_all(self._running, LOST)


def pass_on(news: dict[str, Any], running: dict[int, GuardedProcess]) -> None:
    """Pass a message to its process, which is removed after its end."""
    identity = next(news[kind] for kind in ("started", "failed", "exited", "gone") if kind in news)
    running[identity].hear(news)
    if "gone" in news or "failed" in news:
        del running[identity]


def lose_all(running: dict[int, GuardedProcess], why: str) -> None:
    """End all processes and their descendants from here, because their parent is gone."""
    kill_families([process.pid for process in running.values() if process.left])
    for process in running.values():
        process.lose(why)
    running.clear()


def kill_families(leaders: list[int]) -> None:
    listed: set[int] = set()
    found = set(leaders)
    # Stop first, then list again: a process that forks after it was listed would leave an orphan.
    while found - listed:
        deliver(signal.SIGSTOP, groups=leaders, pids=list(found - listed))
        listed |= found
        families = children()
        found = {pid for leader in leaders for pid in below(leader, families)}
    deliver(signal.SIGKILL, groups=leaders, pids=list(listed))


def _order(link: GuardianLink, identity: int, launch: Launch) -> None:
    order = {
        "spawn": identity,
        "argv": [utf8(word) for word in launch.argv],
        "cwd": utf8(str(launch.cwd)),
        "env": {utf8(name): utf8(value) for name, value in launch.env.items()},
    }
    stdin = os.open(os.devnull, os.O_RDONLY) if launch.stdin is None else launch.stdin
    try:
        link.order(order, [stdin, launch.stdout, launch.stderr])
    finally:
        if launch.stdin is None:
            os.close(stdin)
