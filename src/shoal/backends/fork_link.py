"""Client of the fork server: starts it under the guardian, sends orders, and ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.backends.child_log import ChildLog
from shoal.backends.orders import Orders, utf8
from shoal.backends.processes import GuardedProcess, lose_all, pass_on
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import Launch, Process, Processes

STARTING = 30.0
"""Seconds to fork a child, including the server's imports; a loaded machine takes a few."""
ENDING = 6.0
"""Seconds a fork server may take to end everything; it promises less."""
INTERPRETERS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
"""Some interpreters do not start without these variables; the children have another environment."""
LOST = "the fork server, the process that teammates are forked from, is gone"
CLOSED = "the session was closed and ended it"


class Child(Struct, frozen=True, kw_only=True):
    """Process to be forked; `channel` is the descriptor of its end."""

    name: str
    cwd: Path
    env: Mapping[str, str]
    line: int
    log: ChildLog


class ForkLink:
    """Handle of one fork server, from its start to its end."""

    def __init__(self, process: Process, end: socket.socket, clock: Clock, log: ChildLog) -> None:
        self._process = process
        self._clock = clock
        self._log = log
        self._children: dict[int, GuardedProcess] = {}
        self._last = 0
        self._orders = Orders(end, self._hear, self._end)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._orders.alive

    async def fork(self, child: Child) -> GuardedProcess:
        self._last = identity = self._last + 1

        def tell(number: int) -> None:
            self._orders.give({"signal": identity, "number": number})

        self._children[identity] = process = GuardedProcess(tell, self._clock)
        try:
            with child.log.opened() as log:
                self._orders.give(_order(identity, child), [child.line, log])
        except (OSError, ValueError) as error:
            self._children.pop(identity, None)
            raise ProcessError(f"{child.name} was not started: {error}.") from error
        try:
            async with self._clock.deadline(STARTING):
                await process.answered()
        except TimeoutError:
            await self._process.stop(grace=0)
            raise ProcessError(f"{child.name} was not started: the fork server does not answer.") from None
        except ProcessError as error:
            raise ProcessError(f"{child.name} was not started: {error}") from error
        except asyncio.CancelledError:
            tell(signal.SIGKILL)
            raise
        return process

    async def close(self) -> None:
        """Make it end everything, and wait until it has."""
        if not await self._orders.finish(self._clock.deadline(ENDING)):
            self._orders.close()
        with suppress(ProcessError):  # its guardian is gone as well
            await self._process.stop(grace=0)

    def _hear(self, news: dict[str, Any]) -> None:
        pass_on(news, self._children)

    def _end(self) -> None:
        why = CLOSED if self._orders.finishing else LOST + self._log.traceback()
        lose_all(self._children, why)


async def fork_server(
    processes: Processes, clock: Clock, *, entry: str, preload: Sequence[str], log: ChildLog
) -> ForkLink:
    """Start a fork server without waiting: it accepts orders once its imports are done."""
    ours, theirs = socket.socketpair()
    try:
        with theirs, log.opened() as output:
            process = await processes.start(_launch(entry, preload, theirs.fileno(), output))
    except OSError as error:
        ours.close()
        raise ProcessError(f"The fork server of teammates cannot be started: {error}.") from error
    except BaseException:
        ours.close()
        raise
    return ForkLink(process, ours, clock, log)


def _launch(entry: str, preload: Sequence[str], control: int, log: int) -> Launch:
    # It can import what we can, from the same places; -P excludes the directory it runs in.
    path = os.pathsep.join(place for place in sys.path if Path(place).is_absolute())
    needed = {name: os.environ[name] for name in INTERPRETERS if name in os.environ}
    return Launch(
        argv=[sys.executable, "-P", "-u", "-X", "utf8", "-m", "shoal.backends.fork_server", entry, *preload],
        cwd=Path("/"),
        env={**needed, "PYTHONPATH": path},
        stdin=control,
        stdout=log,
        stderr=log,
    )


def _order(identity: int, child: Child) -> dict[str, Any]:
    return {
        "spawn": identity,
        "title": f"shoal:{child.name}",
        "cwd": utf8(str(child.cwd)),
        "env": {utf8(name): utf8(value) for name, value in child.env.items()},
    }
