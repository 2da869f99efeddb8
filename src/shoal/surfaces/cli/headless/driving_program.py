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
from shoal.wire.stream_input_codec import (
    ControlRequestInputStreamLine,
    ControlResponseInputStreamLine,
    InvalidInputStreamLineError,
    StreamInputMessage,
    parse_stream_input_line,
)
from shoal.wire.stream_output_codec import build_control_cancel_request, build_control_request


class NoUsableControlResponseError(ShoalError):
    """Raised if the program gave no usable answer to a request."""


class DrivingProgramInputLine(Struct, frozen=True, kw_only=True):
    """One line of input."""

    number: int
    content: StreamInputMessage | InvalidInputStreamLineError


class DrivingProgramConnection:
    """Reads from the moment it is entered, so that requests can be sent before the session exists."""

    def __init__(self, send_line: Callable[[object], Awaitable[None]], clock: Clock) -> None:
        self.send_line = send_line
        self._clock = clock
        self._lines: deque[DrivingProgramInputLine] = deque()
        self._input_ready = asyncio.Event()
        self._pending_requests: dict[str, asyncio.Future[ControlResponseInputStreamLine]] = {}
        self._numbers = count(1)
        self._cancelled_requests: asyncio.Queue[str] = asyncio.Queue()
        self._group = asyncio.TaskGroup()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self.has_hung_up = False
        """True if the program will send nothing more."""

    async def __aenter__(self) -> DrivingProgramConnection:
        await self._group.__aenter__()
        self._tasks = (
            self._group.create_task(self._read_lines()),
            self._group.create_task(self._send_cancellations()),
        )
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        for task in self._tasks:
            task.cancel()
        # Callers expect the original exception, and a task group would wrap it.
        is_cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(*((kind, error, trace) if is_cancelled else (None, None, None)))

    async def next_input_line(self) -> DrivingProgramInputLine | None:
        """Return the next line; None when the program has disconnected."""
        await self._wait_for_input()
        return self._lines.popleft() if self._lines else None

    async def take_initialize_request(self) -> ControlRequestInputStreamLine | None:
        """Take an `initialize` request on the first line; leave any other line for `next_input_line`."""
        await self._wait_for_input()
        first = self._lines[0].content if self._lines else None
        if not isinstance(first, ControlRequestInputStreamLine) or first.subtype != "initialize":
            return None
        self._lines.popleft()
        return first

    async def send_control_request(
        self, request: Mapping[str, Any], *, timeout: float | None = None
    ) -> Mapping[str, Any]:
        """Send a request and return its answer.

        Raises `NoUsableControlResponseError`; `TimeoutError` after `timeout` seconds cancels the request.
        """
        if self.has_hung_up:
            raise NoUsableControlResponseError("the program that drives this run has disconnected")
        name = f"ask_{next(self._numbers)}"
        answer: asyncio.Future[ControlResponseInputStreamLine] = asyncio.get_running_loop().create_future()
        self._pending_requests[name] = answer
        try:
            await self.send_line(build_control_request(name, request))
            if timeout is None:
                response = await answer
            else:
                async with self._clock.deadline(timeout):
                    response = await answer
        finally:
            del self._pending_requests[name]
            if not answer.done() or answer.cancelled():
                self._cancelled_requests.put_nowait(name)
        if response.error:
            raise NoUsableControlResponseError(response.error)
        return response.body

    async def _wait_for_input(self) -> None:
        while not (self._lines or self.has_hung_up):
            self._input_ready.clear()
            await self._input_ready.wait()

    async def _read_lines(self) -> None:
        number = 0
        async for line in stdin.read_lines_from_descriptor():
            number += 1
            if line.strip():
                self._dispatch_input_line(
                    DrivingProgramInputLine(number=number, content=_parse_stream_line_or_error(line))
                )
        self.has_hung_up = True
        self._input_ready.set()
        for answer in self._pending_requests.values():
            if not answer.done():
                answer.set_exception(
                    NoUsableControlResponseError("the program that drives this run has disconnected")
                )

    def _dispatch_input_line(self, line: DrivingProgramInputLine) -> None:
        if (
            isinstance(line.content, ControlResponseInputStreamLine)
            and (answer := self._pending_requests.get(line.content.id)) is not None
        ):
            if not answer.done():
                answer.set_result(line.content)
            return
        self._lines.append(line)
        self._input_ready.set()

    async def _send_cancellations(self) -> None:
        """Cancel requests whose answer nobody awaits; the task that awaited it may be unable to do so."""
        while True:
            await self.send_line(build_control_cancel_request(await self._cancelled_requests.get()))


def _parse_stream_line_or_error(line: bytes) -> StreamInputMessage | InvalidInputStreamLineError:
    try:
        return parse_stream_input_line(line)
    except InvalidInputStreamLineError as error:
        return error
