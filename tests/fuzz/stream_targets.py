"""Provider responses: HTTP, event streams of the three protocols, and errors of any shape.

The result is the same for any division of the bytes into chunks.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import TextBlock, ThinkingBlock, ToolUseBlock, user_message
from shoal.core.conversation.model_requests import ModelReply, StreamDelta, TextDelta
from shoal.core.errors import ModelError
from shoal.models import model_errors
from shoal.models.chat_stream import ChatCompletionsReplyAssembler
from shoal.models.http_parser import HttpResponseHead, HttpResponseParser, MalformedHttpResponseError
from shoal.models.messages_stream import MessagesApiReplyAssembler
from shoal.models.provider_json import decode_json, encode_json
from shoal.models.reply_stream import ReplyStreamReader, SseParser
from shoal.models.responses_stream import ResponsesApiReplyAssembler
from shoal.models.tool_emulation import parse_emulated_reply
from shoal.testing.chat_format import MockChatCompletionsApiFormat
from shoal.testing.messages_format import MockMessagesApiFormat
from shoal.testing.mock_replies import MockReply
from shoal.testing.responses_format import MockResponsesApiFormat

from .fuzz_target import FuzzTarget

REQUEST_TARGET = model_errors.ModelRequestTarget(provider="a provider", model="m", url="http://localhost")
HISTORY = [user_message("hi")]


def split_into_chunks(data: bytes) -> Iterator[list[bytes]]:
    """Yield the bytes as a whole, in small pieces, and in pieces chosen by a hash of the bytes."""
    yield [data]
    step = 1 + len(data) // 300
    yield [data[at : at + step] for at in range(0, len(data), step)]
    chance = random.Random(zlib.crc32(data))
    at = sorted(chance.randrange(len(data) + 1) for _ in range(6))
    yield [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True) if start < end]


def _run_without_waiting(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def _read_stream(assembler: Any, chunks: list[bytes]) -> tuple[object, str]:
    """Return the reply or the type of error, and the streamed text."""
    said: list[str] = []

    async def collect_text(delta: StreamDelta) -> None:
        if isinstance(delta, TextDelta):
            said.append(delta.text)

    listening = ReplyStreamReader(REQUEST_TARGET, assembler, collect_text)
    try:
        whole = any(_run_without_waiting(listening.feed(chunk)) for chunk in chunks) or _run_without_waiting(
            listening.feed(b"")
        )
        reply = assembler.build_reply() if whole else None
    except ModelError as error:
        return type(error), ""
    if reply is not None:
        _check_encodable(reply)
    return encode_json(reply), "".join(said)


def _check_encodable(reply: ModelReply) -> None:
    """Check that a reply can be stored and sent again, with the types it promises."""
    again = decode_json(encode_json(reply))
    assert isinstance(again, dict)
    for block in reply.message.content:
        for name in ("text", "thinking", "id", "name", "signature"):
            assert isinstance(getattr(block, name, ""), str)
    for name in ("id", "model", "stop_reason"):
        assert isinstance(getattr(reply, name), str)


def _check_any_chunks(create_assembler: Callable[[], Any]) -> Callable[[bytes], None]:
    def check_input(data: bytes) -> None:
        outcomes = [_read_stream(create_assembler(), chunks) for chunks in split_into_chunks(data)]
        assert all(outcome == outcomes[0] for outcome in outcomes)

    return check_input


def _check_response(data: bytes) -> None:
    outcomes = [_feed_response(chunks) for chunks in split_into_chunks(data)]
    assert all(outcome == outcomes[0] for outcome in outcomes)


def _feed_response(chunks: list[bytes]) -> object:
    response, body = HttpResponseParser(), b""
    try:
        for chunk in chunks:
            body += response.feed(chunk)
    except MalformedHttpResponseError:
        return MalformedHttpResponseError
    return response.head, body, response.handle_connection_end()


def _check_events(data: bytes) -> None:
    outcomes = []
    for chunks in split_into_chunks(data):
        events = SseParser()
        outcomes.append([event for chunk in chunks for event in events.feed(chunk)])
    assert all(outcome == outcomes[0] for outcome in outcomes)


def _check_refusal(data: bytes) -> None:
    first, _, body = data.partition(b"\n")
    words = first.decode("latin-1")
    headers = {"retry-after": words, "content-type": words[:20]}
    for status in (200, 301, 400, 404, 429, 500, 529):
        head = HttpResponseHead(status=status, headers=headers, keep_alive=True)
        error = model_errors.build_model_response_error(REQUEST_TARGET, head, body, now_ms=1_770_977_603_516)
        assert isinstance(error, ModelError)
        str(error).encode()
        assert isinstance(model_errors.build_non_stream_error(REQUEST_TARGET, head, body), ModelError)
    for headers in ({"retry-after": words}, {"retry-after-ms": words}):
        pause = model_errors.parse_retry_after(headers, now_ms=1_770_977_603_516)
        assert pause is None or 0 <= pause < float("inf")


def _check_emulation(data: bytes) -> None:
    said = TextBlock(text=data.decode("utf-8", "replace"))
    reply = ModelReply(
        message=user_message("x").__class__(role="assistant", content=(said,)),
        usage=Usage(),
        stop_reason="end_turn",
        model="m",
    )
    _check_encodable(parse_emulated_reply(reply, HISTORY))


_ANSWER = MockReply(
    content=(
        ThinkingBlock(thinking="hm", signature="s"),
        TextBlock(text="Hé <b> 🙂"),
        ToolUseBlock(id="toolu_1", name="Read", input={"path": "a/é", "n": [1, {}]}),
    )
)


def _encode_stream(provider_format: Any) -> bytes:
    return b"".join(
        provider_format.encode_stream_events(
            _ANSWER, {"model": "m"}, 1, Usage(input_tokens=3, output_tokens=2)
        )
    )


_ERROR = b'data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded","code":"529"}}\n\n'
_HTTP = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nX-A: 2\r\n\r\n"
    b"4;e=1\r\ndata\r\n1\r\n:\r\n0\r\nTrailer: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.0 404 Not Found\r\n\r\ntext",
)
TARGETS = (
    FuzzTarget("http", _check_response, (), _HTTP),
    FuzzTarget(
        "sse", _check_events, (), (b"\xef\xbb\xbf: c\r\n\r\ndata: a\r\ndata:b\r\n\r\nid: 7\n\ndata\n\n",)
    ),
    FuzzTarget(
        "messages-stream",
        _check_any_chunks(lambda: MessagesApiReplyAssembler(REQUEST_TARGET)),
        (),
        (_encode_stream(MockMessagesApiFormat()), _ERROR),
    ),
    FuzzTarget(
        "chat-stream",
        _check_any_chunks(lambda: ChatCompletionsReplyAssembler(REQUEST_TARGET, HISTORY)),
        (),
        (_encode_stream(MockChatCompletionsApiFormat()), b'data: {"error":{"message":"no"}}\n\n'),
    ),
    FuzzTarget(
        "responses-stream",
        _check_any_chunks(lambda: ResponsesApiReplyAssembler(REQUEST_TARGET, HISTORY)),
        (),
        (
            _encode_stream(MockResponsesApiFormat()),
            b'data: {"type":"response.failed","response":{"error":{"code":"x"}}}\n\n',
        ),
    ),
    FuzzTarget(
        "error-body",
        _check_refusal,
        (),
        (
            b'30\n{"error":{"type":"not_found_error","message":"model: x","code":404}}',
            b"Wed, 21 Oct 2026 07:28:00 GMT\n<html><title>Bad gateway</title></html>",
            b'application/json\n[{"error":{"detail":{"msg":"m"}}}]',
        ),
    ),
    FuzzTarget(
        "emulated",
        _check_emulation,
        (),
        (
            b'```json\n{"turn":{"calls":[{"tool":"Read","arguments":{"p":1}}]}}\n```',
            b'{"turn":{"answer":"a"}}',
        ),
    ),
)
