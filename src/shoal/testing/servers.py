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

from shoal.core.budgets.usage import Usage
from shoal.core.clock import Clock, SystemClock
from shoal.testing.chat_format import MockChatCompletionsApiFormat, encode_ollama_tags
from shoal.testing.http_messages import MockServerHttpRequest, encode_http_response, read_http_request
from shoal.testing.messages_format import MockMessagesApiFormat
from shoal.testing.mock_replies import (
    ConnectionResetFault,
    HttpErrorFault,
    MockReply,
    ReplyLike,
    RequestBody,
    Responder,
    StaleConnectionFault,
    add_tool_call_ids,
    make_mock_reply,
)
from shoal.testing.prefix_cache import PrefixCache
from shoal.testing.reply_sender import (
    MockProviderApiFormat,
    MockReplySender,
    MockServerClientDisconnectedError,
    MockServerReceivedRequest,
    await_unless_disconnected,
)
from shoal.testing.responses_format import MockResponsesApiFormat


class MockServer:
    """A provider with your own responder. It listens between `start` and `stop`.

    With a `cache`, replies without a usage of their own report what was read from and written to it.
    """

    def __init__(
        self,
        api_format: MockProviderApiFormat,
        responder: Responder,
        *,
        models: Sequence[str] = ("mock",),
        clock: Clock | None = None,
        strict: bool = True,
        keep_requests: bool = True,
        cache: PrefixCache | None = None,
    ) -> None:
        self._format = api_format
        self._cache = cache
        self._respond = responder if callable(responder) else _build_ordered_responder(responder)
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
        self.requests: list[MockServerReceivedRequest] = []
        """Model requests, in order."""
        self.lookups: list[str] = []
        """Paths of all other requests."""
        self.request_count = 0
        """Number of model requests received."""
        self.reported_usage = Usage()
        """Total usage that complete replies reported."""
        self.unsettled_usage = Usage()
        """Total usage of replies that were cut before the client could know it."""
        self.replies_sent = 0
        """Number of replies that were sent completely."""
        self.responder_errors: list[Exception] = []

    async def start(self, *, port: int = 0) -> None:
        self._server = await asyncio.start_server(
            self._serve_connection, "127.0.0.1", port, limit=1 << 20, backlog=1024
        )
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

    async def wait_for_requests(self, count: int, *, within: float = 5.0) -> None:
        """Return when that many model requests were received."""
        await self._wait_until(lambda: self.request_count >= count, within)

    async def wait_for_disconnect(self, *, within: float = 5.0) -> None:
        """Return when no connection is open."""
        await self._wait_until(lambda: not self._handlers, within)

    async def _wait_until(self, condition: Callable[[], bool], within: float) -> None:
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(condition)

    async def _notify_waiters(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = cast("asyncio.Task[None]", asyncio.current_task())
        self._handlers.add(handler)
        self._connections += 1
        connection = self._connections
        try:
            while (request := await read_http_request(reader)) is not None:
                await self._answer_request(request, connection, reader, writer)
        except (MockServerClientDisconnectedError, ConnectionError):
            pass
        except asyncio.CancelledError:
            # asyncio reports a canceled connection handler as a failure; `stop` canceled this one.
            if not self._stopping:
                raise
        finally:
            writer.close()
            self._handlers.discard(handler)
            await self._notify_waiters()

    async def _answer_request(
        self,
        request: MockServerHttpRequest,
        connection: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if request.method != "POST" or request.path != self._format.path:
            self.lookups.append(request.path)
            writer.write(self._answer_non_model_request(request))
            return
        self.request_count += 1
        received = self._record_request(request, connection)
        await self._notify_waiters()
        answer = await self._get_reply_for_request(received, reader)
        usage = self._compute_usage(received, answer)
        out = MockReplySender(
            self._format,
            self._clock,
            reader,
            writer,
            received,
            lambda: self._record_usage(usage, received.body),
        )
        try:
            await out.send_reply(answer, usage)
        finally:
            if out.has_begun and not out.is_settled:
                self.unsettled_usage += usage
        if any(isinstance(fault, StaleConnectionFault) for fault in answer.faults):
            await read_http_request(reader)
            raise MockServerClientDisconnectedError

    def _compute_usage(self, received: MockServerReceivedRequest, answer: MockReply) -> Usage:
        usage = _estimate_mock_reply_usage(received.raw, answer)
        if self._cache is not None and not any(
            isinstance(f, HttpErrorFault | ConnectionResetFault) for f in answer.faults
        ):
            usage = self._cache.charge_request(received.body, usage.output_tokens)
        return answer.usage or usage

    def _record_usage(self, usage: Usage, body: RequestBody) -> None:
        self.replies_sent += 1
        self.reported_usage += self._format.compute_reported_usage(usage, body)

    def _answer_non_model_request(self, request: MockServerHttpRequest) -> bytes:
        if request.method == "GET" and request.path == "/v1/models":
            return encode_http_response(self._format.encode_model_list(self._models))
        if (
            request.method == "GET"
            and request.path == "/api/tags"
            and isinstance(self._format, MockChatCompletionsApiFormat)
        ):
            return encode_http_response(encode_ollama_tags(self._models))
        not_found = HttpErrorFault(status=404, message=f"Not found: {request.method} {request.path}")
        return encode_http_response(self._format.encode_error(not_found, {}, 0), status=404)

    def _record_request(self, request: MockServerHttpRequest, connection: int) -> MockServerReceivedRequest:
        try:
            body = msgspec.json.decode(request.content)
        except msgspec.DecodeError:
            body = None
        received = MockServerReceivedRequest(
            number=self.request_count,
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

    async def _get_reply_for_request(
        self, received: MockServerReceivedRequest, reader: asyncio.StreamReader
    ) -> MockReply:
        if self._strict:
            if not self._format.has_api_key(received.headers):
                return MockReply(faults=(HttpErrorFault(status=401),))
            if (
                request_error := self._format.find_request_error(received.headers, received.body)
            ) is not None:
                return MockReply(faults=(HttpErrorFault(status=400, message=request_error),))
        try:
            reply = self._respond(received.body)
            if inspect.isawaitable(reply):
                reply = await await_unless_disconnected(reader, reply)
            answer = make_mock_reply(reply)
        except MockServerClientDisconnectedError:
            raise
        except Exception as error:  # noqa: BLE001 - the responder is the test's code; `run_server` raises it at the end
            self.responder_errors.append(error)
            return MockReply(
                faults=(HttpErrorFault(status=400, message=f"The mock's reply function failed: {error}"),)
            )
        return add_tool_call_ids(answer, f"{self._format.call_prefix}{received.number:04d}_")


def _build_ordered_responder(replies: Sequence[ReplyLike]) -> Callable[[RequestBody], ReplyLike]:
    if isinstance(replies, str):
        raise TypeError("Pass a function or a list of answers. Put a single answer in a list.")
    remaining_replies = iter(replies)

    def respond(_: RequestBody) -> ReplyLike:
        for reply in remaining_replies:
            return reply
        raise IndexError(f"all {len(replies)} answers were used, and another was requested")

    return respond


def _estimate_mock_reply_usage(request: bytes, answer: MockReply) -> Usage:
    """Estimate the usage as one token per four bytes."""
    content_length = len(msgspec.json.encode(answer.content))
    return Usage(input_tokens=max(1, len(request) // 4), output_tokens=max(1, content_length // 4))


@contextlib.asynccontextmanager
async def run_mock_server(server: MockServer, *, port: int = 0) -> AsyncGenerator[MockServer]:
    """Run the server; on exit, raise the first exception of its responder."""
    await server.start(port=port)
    try:
        yield server
    finally:
        await server.stop()
    if server.responder_errors:
        raise server.responder_errors[0]


def messages_server(
    responder: Responder, **options: Any
) -> contextlib.AbstractAsyncContextManager[MockServer]:
    """Run a provider of the Messages API. `options` are those of `MockServer`.

    `cache=PrefixCache()` gives it a prompt cache, so that a test can see what a request read from it.
    """
    return run_mock_server(MockServer(MockMessagesApiFormat(), responder, **options))


def chat_server(responder: Responder, **options: Any) -> contextlib.AbstractAsyncContextManager[MockServer]:
    """Run a provider of Chat Completions. `options` are those of `MockServer`."""
    return run_mock_server(MockServer(MockChatCompletionsApiFormat(), responder, **options))


def responses_server(
    responder: Responder, **options: Any
) -> contextlib.AbstractAsyncContextManager[MockServer]:
    """Run a provider of OpenAI's Responses API. `options` are those of `MockServer`."""
    return run_mock_server(MockServer(MockResponsesApiFormat(), responder, **options))


@contextlib.contextmanager
def run_in_thread(
    server_context: contextlib.AbstractAsyncContextManager[MockServer],
) -> Generator[MockServer]:
    """Run a server in its own thread, for tests without a loop: `with run_in_thread(chat_server(…)) as …`."""
    running: list[tuple[MockServer, asyncio.AbstractEventLoop, asyncio.Event]] = []
    started = threading.Event()
    failures: list[BaseException] = []

    async def serve_until_end() -> None:
        async with server_context as server:
            end = asyncio.Event()
            running.append((server, asyncio.get_running_loop(), end))
            started.set()
            await end.wait()

    def run_loop() -> None:
        try:
            asyncio.run(serve_until_end())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run_loop, name="mock-provider", daemon=True)
    thread.start()
    started.wait()
    if not running:
        raise failures[0]
    server, loop, end = running[0]
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
    from shoal.testing.scripted_server import main

    main()
