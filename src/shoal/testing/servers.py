"""Mock model providers on loopback: real HTTP and server-sent events, with your responder and faults.

async with messages_server(["Hello.", rate_limit_error(retry_after=1)]) as server:
    ...  # a client of server.url
    assert server.requests[0].body["model"] == "mock"
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any, cast

import msgspec

from shoal.core.clock import Clock, SystemClock
from shoal.core.usage import Usage
from shoal.testing.caching import PrefixCache
from shoal.testing.chat_form import ChatForm, ollama_tags
from shoal.testing.http import HttpRequest, read_request, whole
from shoal.testing.messages_form import MessagesForm
from shoal.testing.outgoing import Form, HungUp, Outgoing, Received, unless_hung_up
from shoal.testing.replies import Answer, Body, HttpError, Mind, Reset, Sayable, Stale, answer_from, with_ids
from shoal.testing.responses_form import ResponsesForm


class MockServer:
    """A provider with a responder of yours. It listens between `start` and `stop`.

    With a `cache`, replies without a usage of their own report what was read from and written to it.
    """

    def __init__(
        self,
        form: Form,
        mind: Mind,
        *,
        models: Sequence[str] = ("mock",),
        clock: Clock | None = None,
        strict: bool = True,
        keep_requests: bool = True,
        cache: PrefixCache | None = None,
    ) -> None:
        self._form = form
        self._cache = cache
        self._think = mind if callable(mind) else _in_order(mind)
        self._models = models
        self._clock = clock or SystemClock()
        self._strict = strict
        self._keep_requests = keep_requests
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._connections = 0
        self._stopping = False
        self.url = ""
        self.requests: list[Received] = []
        """Model requests, in order."""
        self.lookups: list[str] = []
        """Paths of all other requests."""
        self.count = 0
        """Number of model requests received."""
        self.reported = Usage()
        """Total usage that complete replies reported."""
        self.unsettled = Usage()
        """Total usage of replies that were cut before the client could know it."""
        self.answered = 0
        """Number of replies that were sent completely."""
        self.mind_errors: list[Exception] = []

    async def start(self, *, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=1 << 20, backlog=1024)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._server is None:
            return
        self._stopping = True
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    async def arrived(self, count: int, *, within: float = 5.0) -> None:
        """Return when that many model requests were received."""
        await self._until(lambda: self.count >= count, within)

    async def left(self, *, within: float = 5.0) -> None:
        """Return when no connection is open."""
        await self._until(lambda: not self._handlers, within)

    async def _until(self, true: Callable[[], bool], within: float) -> None:
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(true)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = cast("asyncio.Task[None]", asyncio.current_task())
        self._handlers.add(handler)
        self._connections += 1
        connection = self._connections
        try:
            while (request := await read_request(reader)) is not None:
                await self._answer(request, connection, reader, writer)
        except (HungUp, ConnectionError):
            pass
        except asyncio.CancelledError:
            # asyncio reports a cancelled connection handler as a failure; `stop` cancelled this one.
            if not self._stopping:
                raise
        finally:
            writer.close()
            self._handlers.discard(handler)
            await self._tell()

    async def _answer(
        self,
        request: HttpRequest,
        connection: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if request.method != "POST" or request.path != self._form.path:
            self.lookups.append(request.path)
            writer.write(self._looked_up(request))
            return
        self.count += 1
        received = self._receive(request, connection)
        await self._tell()
        answer = await self._thought(received, reader)
        usage = self._usage(received, answer)
        out = Outgoing(self._form, self._clock, reader, writer, received)
        try:
            await out.send(answer, usage, lambda: self._settle(usage, received.body))
        finally:
            if out.began and not out.settled:
                self.unsettled += usage
        if any(isinstance(fault, Stale) for fault in answer.faults):
            await read_request(reader)
            raise HungUp

    def _usage(self, received: Received, answer: Answer) -> Usage:
        usage = _estimated(received.raw, answer)
        if self._cache is not None and not any(isinstance(f, HttpError | Reset) for f in answer.faults):
            usage = self._cache.usage(received.body, usage.output_tokens)
        return answer.usage or usage

    def _settle(self, usage: Usage, body: Body) -> None:
        self.answered += 1
        self.reported += self._form.reported(usage, body)

    def _looked_up(self, request: HttpRequest) -> bytes:
        if request.method == "GET" and request.path == "/v1/models":
            return whole(self._form.models(self._models))
        if request.method == "GET" and request.path == "/api/tags" and isinstance(self._form, ChatForm):
            return whole(ollama_tags(self._models))
        missing = HttpError(status=404, message=f"Not found: {request.method} {request.path}")
        return whole(self._form.error(missing, {}, 0), status=404)

    def _receive(self, request: HttpRequest, connection: int) -> Received:
        try:
            body = msgspec.json.decode(request.content)
        except msgspec.DecodeError:
            body = None
        received = Received(
            number=self.count,
            path=request.path,
            headers=request.headers,
            body=body if isinstance(body, dict) else {},
            raw=request.content,
            connection=connection,
            at=time.monotonic(),
        )
        if self._keep_requests:
            self.requests.append(received)
        return received

    async def _thought(self, received: Received, reader: asyncio.StreamReader) -> Answer:
        if self._strict:
            if not self._form.key_given(received.headers):
                return Answer(faults=(HttpError(status=401),))
            if (wrong := self._form.complaint(received.headers, received.body)) is not None:
                return Answer(faults=(HttpError(status=400, message=wrong),))
        try:
            said = self._think(received.body)
            if inspect.isawaitable(said):
                said = await unless_hung_up(reader, said)
            answer = answer_from(said)
        except HungUp:
            raise
        except Exception as error:  # noqa: BLE001 - the responder is the test's code; `run_server` raises it at the end
            self.mind_errors.append(error)
            return Answer(faults=(HttpError(status=400, message=f"The mock's mind failed: {error}"),))
        return with_ids(answer, f"{self._form.call_prefix}{received.number:04d}_")


def _in_order(said: Sequence[Sayable]) -> Callable[[Body], Sayable]:
    if isinstance(said, str):
        raise TypeError("A mind is a function or a list of answers; a single answer is a list of one.")
    remaining = iter(said)

    def think(_: Body) -> Sayable:
        for next_said in remaining:
            return next_said
        raise IndexError(f"all {len(said)} answers were given and one more was asked for")

    return think


def _estimated(request: bytes, answer: Answer) -> Usage:
    """Estimate the usage as one token per four bytes."""
    said = len(msgspec.json.encode(answer.content))
    return Usage(input_tokens=max(1, len(request) // 4), output_tokens=max(1, said // 4))


@contextlib.asynccontextmanager
async def serving(server: MockServer, *, port: int = 0) -> AsyncGenerator[MockServer]:
    """Run the server; on exit, raise the first exception of its responder."""
    await server.start(port=port)
    try:
        yield server
    finally:
        await server.stop()
    if server.mind_errors:
        raise server.mind_errors[0]


def messages_server(mind: Mind, **options: Any) -> contextlib.AbstractAsyncContextManager[MockServer]:
    """Run a provider of the Messages API. `options` are those of `MockServer`.

    `cache=PrefixCache()` gives it a prompt cache, so that a test can see what a request read from it.
    """
    return serving(MockServer(MessagesForm(), mind, **options))


def chat_server(mind: Mind, **options: Any) -> contextlib.AbstractAsyncContextManager[MockServer]:
    """Run a provider of Chat Completions. `options` are those of `MockServer`."""
    return serving(MockServer(ChatForm(), mind, **options))


def responses_server(mind: Mind, **options: Any) -> contextlib.AbstractAsyncContextManager[MockServer]:
    """Run a provider of OpenAI's Responses API. `options` are those of `MockServer`."""
    return serving(MockServer(ResponsesForm(), mind, **options))


@contextlib.contextmanager
def in_thread(serve: contextlib.AbstractAsyncContextManager[MockServer]) -> Generator[MockServer]:
    """Run a server in its own thread, for tests without a loop: `with run_in_thread(chat_server(…)) as …`."""
    ready: list[tuple[MockServer, asyncio.AbstractEventLoop, asyncio.Event]] = []
    started = threading.Event()
    failures: list[BaseException] = []

    async def run() -> None:
        async with serve as server:
            end = asyncio.Event()
            ready.append((server, asyncio.get_running_loop(), end))
            started.set()
            await end.wait()

    def host() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=host, name="mock-provider", daemon=True)
    thread.start()
    started.wait()
    if not ready:
        raise failures[0]
    server, loop, end = ready[0]
    try:
        yield server
    finally:
        # The loop is closed already when the server's thread failed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(end.set)
        thread.join()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    from shoal.testing.script import main

    main()
