"""A provider for all processes of a run, which can fail in every way that providers do."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shoal.core.messages import ToolUse
from shoal.core.requests import Request
from shoal.models.scripted import Sayable
from shoal.testing.messages_form import MessagesForm
from shoal.testing.replies import (
    AnyFault,
    Body,
    Cut,
    Drip,
    Garbage,
    Reset,
    Stale,
    Stall,
    StreamError,
    answer_from,
    overloaded,
    rate_limited,
    server_error,
)
from shoal.testing.replies import Sayable as Answerable
from shoal.testing.servers import MockServer
from shoal.wire.content import message_from

Mind = Callable[[Request], Sayable]


class Provider:
    """Fails `failures_left` times, at requests chosen by the seed as far as their order allows."""

    def __init__(self, mind: Mind, rng: random.Random) -> None:
        self._mind = mind
        self._random = rng
        self.failures = 0
        self.failed = 0
        self.there = True
        self._server = MockServer(MessagesForm(), self._think, keep_requests=False)
        self._loop = asyncio.new_event_loop()

    @property
    def url(self) -> str:
        return self._server.url

    @contextmanager
    def listening(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop.run_forever, name="provider", daemon=True)
        thread.start()
        self._do(self._server.start())
        try:
            yield
        finally:
            self._do(self._server.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()
        if self._server.mind_errors:
            raise self._server.mind_errors[0]

    def go_away(self) -> None:
        """Refuse connections from now on."""
        self._do(self._server.stop())
        self.there = False

    def come_back(self) -> None:
        self.there = True
        self._do(self._server.start(port=int(self.url.rpartition(":")[2])))

    def _do(self, what: object) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)  # type: ignore[arg-type]

    def _think(self, body: Body) -> Answerable:
        messages = [message_from(raw)[0] for raw in body["messages"]]
        said = self._mind(Request(system=_text(body["system"]), messages=messages))
        if self.failures <= 0 or self._random.random() > 0.15:
            return said
        self.failures -= 1
        self.failed += 1
        answer = answer_from(said)
        calls = any(isinstance(block, ToolUse) for block in answer.content)
        return [*answer.content, self._fault(in_tool_call=calls)]

    def _fault(self, *, in_tool_call: bool) -> AnyFault:
        after = self._random.randint(0, 4)
        faults: list[AnyFault] = [
            rate_limited(retry_after=0.3),
            overloaded(),
            server_error(),
            Reset(),
            Stale(),
            Cut(after=after, how=self._random.choice(["close", "reset", "clean"])),
            Stall(after=after),
            StreamError(after=max(1, after)),
            Garbage(after=max(1, after)),
            Drip(seconds=0.001, size=64),
        ]
        if in_tool_call:
            faults.append(Cut(in_tool_call=True))
        return self._random.choice(faults)


def _text(system: object) -> str:
    return system if isinstance(system, str) else "\n".join(part["text"] for part in system)  # type: ignore[attr-defined]
