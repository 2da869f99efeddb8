"""A provider for all processes of a run, which can fail in every way that providers do."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ReplyLike
from shoal.testing.messages_format import MockMessagesApiFormat
from shoal.testing.mock_replies import (
    AnyFault,
    ConnectionResetFault,
    CutStreamFault,
    GarbageLineFault,
    RequestBody,
    SlowStreamFault,
    StaleConnectionFault,
    StalledStreamFault,
    StreamErrorFault,
    make_mock_reply,
    make_overloaded_fault,
    make_rate_limit_fault,
    make_server_error_fault,
)
from shoal.testing.mock_replies import ReplyLike as Answerable
from shoal.testing.servers import MockServer
from shoal.wire.json_codec import parse_conversation_message

ReplyScript = Callable[[ModelRequest], ReplyLike]


class FlakyProvider:
    """Fails `failures_left` times, at requests chosen by the seed as far as their order allows."""

    def __init__(self, script: ReplyScript, rng: random.Random) -> None:
        self._script = script
        self._random = rng
        self.failures_left = 0
        self.failure_count = 0
        self.is_reachable = True
        self._server = MockServer(MockMessagesApiFormat(), self._choose_reply, keep_requests=False)
        self._loop = asyncio.new_event_loop()

    @property
    def url(self) -> str:
        return self._server.url

    @contextmanager
    def run_server(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop.run_forever, name="provider", daemon=True)
        thread.start()
        self._run_coroutine(self._server.start())
        try:
            yield
        finally:
            self._run_coroutine(self._server.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()
        if self._server.responder_errors:
            raise self._server.responder_errors[0]

    def stop_listening(self) -> None:
        """Refuse connections from now on."""
        self._run_coroutine(self._server.stop())
        self.is_reachable = False

    def resume_listening(self) -> None:
        self.is_reachable = True
        self._run_coroutine(self._server.start(port=int(self.url.rpartition(":")[2])))

    def _run_coroutine(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)  # type: ignore[arg-type]

    def _choose_reply(self, body: RequestBody) -> Answerable:
        messages = [parse_conversation_message(raw)[0] for raw in body["messages"]]
        said = self._script(ModelRequest(system=_get_text(body["system"]), messages=messages))
        if self.failures_left <= 0 or self._random.random() > 0.15:
            return said
        self.failures_left -= 1
        self.failure_count += 1
        answer = make_mock_reply(said)
        calls = any(isinstance(block, ToolUseBlock) for block in answer.content)
        return [*answer.content, self._choose_fault(in_tool_call=calls)]

    def _choose_fault(self, *, in_tool_call: bool) -> AnyFault:
        after = self._random.randint(0, 4)
        faults: list[AnyFault] = [
            make_rate_limit_fault(retry_after=0.3),
            make_overloaded_fault(),
            make_server_error_fault(),
            ConnectionResetFault(),
            StaleConnectionFault(),
            CutStreamFault(after=after, how=self._random.choice(["close", "reset", "clean"])),
            StalledStreamFault(after=after),
            StreamErrorFault(after=max(1, after)),
            GarbageLineFault(after=max(1, after)),
            SlowStreamFault(seconds=0.001, size=64),
        ]
        if in_tool_call:
            faults.append(CutStreamFault(in_tool_call=True))
        return self._random.choice(faults)


def _get_text(system: object) -> str:
    return system if isinstance(system, str) else "\n".join(part["text"] for part in system)  # type: ignore[attr-defined]
