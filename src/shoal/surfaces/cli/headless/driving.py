"""Program that drives a run through our standard input and output: its lines, and our requests to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import ShoalError
from shoal.surfaces.cli.headless import stdin
from shoal.wire.stream_incoming import BadLine, Control, Incoming, Responded, incoming
from shoal.wire.stream_json import cancelled, request_of


class NoAnswer(ShoalError):
    """Raised if the program gave no usable answer to a request."""


class Said(Struct, frozen=True, kw_only=True):
    """One line of input."""

    number: int
    what: Incoming | BadLine


class DrivingProgram:
    """Reads from the moment it is entered, so that requests can be sent before the session exists."""

    def __init__(self, send: Callable[[object], Awaitable[None]], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._said: deque[Said] = deque()
        self._news = asyncio.Event()
        self._asked: dict[str, asyncio.Future[Responded]] = {}
        self._numbers = count(1)
        self._withdrawn: asyncio.Queue[str] = asyncio.Queue()
        self._group = asyncio.TaskGroup()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self.hung_up = False
        """True if the program will send nothing more."""

    async def __aenter__(self) -> DrivingProgram:
        await self._group.__aenter__()
        self._tasks = (self._group.create_task(self._read()), self._group.create_task(self._withdraw()))
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        for task in self._tasks:
            task.cancel()
        # Callers expect the original exception, and a task group would wrap it.
        cancelled_too = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(*((kind, error, trace) if cancelled_too else (None, None, None)))

    async def next(self) -> Said | None:
        """Return the next line; None when the program has hung up."""
        await self._something()
        return self._said.popleft() if self._said else None

    async def opening(self) -> Control | None:
        """Take the `initialize` request if it is the first line; every other line is left for `next_line`."""
        await self._something()
        first = self._said[0].what if self._said else None
        if not isinstance(first, Control) or first.subtype != "initialize":
            return None
        self._said.popleft()
        return first

    async def ask(self, request: Mapping[str, Any], *, within: float | None = None) -> Mapping[str, Any]:
        """Send a request and return its answer.

        Raises `NoProgramAnswer`, and `TimeoutError` after `timeout` seconds; the request is then cancelled.
        """
        if self.hung_up:
            raise NoAnswer("the program that drives this run has hung up")
        name = f"ask_{next(self._numbers)}"
        answer: asyncio.Future[Responded] = asyncio.get_running_loop().create_future()
        self._asked[name] = answer
        try:
            await self._send(request_of(name, request))
            if within is None:
                responded = await answer
            else:
                async with self._clock.deadline(within):
                    responded = await answer
        finally:
            del self._asked[name]
            if not answer.done() or answer.cancelled():
                self._withdrawn.put_nowait(name)
        if responded.error:
            raise NoAnswer(responded.error)
        return responded.body

    async def _something(self) -> None:
        while not (self._said or self.hung_up):
            self._news.clear()
            await self._news.wait()

    async def _read(self) -> None:
        number = 0
        async for line in stdin.lines():
            number += 1
            if line.strip():
                self._take(Said(number=number, what=_meaning(line)))
        self.hung_up = True
        self._news.set()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(NoAnswer("the program that drives this run has hung up"))

    def _take(self, said: Said) -> None:
        if isinstance(said.what, Responded) and (answer := self._asked.get(said.what.id)) is not None:
            if not answer.done():
                answer.set_result(said.what)
            return
        self._said.append(said)
        self._news.set()

    async def _withdraw(self) -> None:
        """Cancel requests whose answer nobody awaits; the task that awaited it may be unable to do so."""
        while True:
            await self._send(cancelled(await self._withdrawn.get()))


def _meaning(line: bytes) -> Incoming | BadLine:
    try:
        return incoming(line)
    except BadLine as error:
        return error
