"""The program that drives a run through our standard input and output: what it says, and what it is asked."""

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
    """The program was asked something and gave no answer that counts."""


class Said(Struct, frozen=True, kw_only=True):
    """One line of input."""

    number: int
    what: Incoming | BadLine


class DrivingProgram:
    """Reads from when it is entered, so that the program can be asked things before there is a session."""

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
        """It will say nothing more."""

    async def __aenter__(self) -> DrivingProgram:
        await self._group.__aenter__()
        self._tasks = (self._group.create_task(self._read()), self._group.create_task(self._withdraw()))
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        for task in self._tasks:
            task.cancel()
        # Callers look for what was raised as it is, and a task group would wrap it.
        cancelled_too = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(*((kind, error, trace) if cancelled_too else (None, None, None)))

    async def next(self) -> Said | None:
        """What it says next; None when it has hung up."""
        await self._something()
        return self._said.popleft() if self._said else None

    async def opening(self) -> Control | None:
        """Its request to begin, where that is what it says first; all else is left for `next`."""
        await self._something()
        first = self._said[0].what if self._said else None
        if not isinstance(first, Control) or first.subtype != "initialize":
            return None
        self._said.popleft()
        return first

    async def ask(self, request: Mapping[str, Any], *, within: float | None = None) -> Mapping[str, Any]:
        """Raises `NoAnswer`, and TimeoutError after so many seconds: it is told then not to go on with it."""
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
        """Where the answer is not waited for any longer; whoever waited may not be able to say so itself."""
        while True:
            await self._send(cancelled(await self._withdrawn.get()))


def _meaning(line: bytes) -> Incoming | BadLine:
    try:
        return incoming(line)
    except BadLine as error:
        return error
