"""Provider responses: HTTP, event streams of the three protocols, and errors of any shape.

The result is the same for any division of the bytes into chunks.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from shoal.core.errors import ModelError
from shoal.core.messages import Text, Thinking, ToolUse, user
from shoal.core.requests import Delta, Reply, TextDelta
from shoal.core.usage import Usage
from shoal.models import faults
from shoal.models.chat_stream import ChatAssembly
from shoal.models.emulation import understood
from shoal.models.hearing import Listening
from shoal.models.http1 import Head, Malformed, Response
from shoal.models.json_text import decoded, encoded
from shoal.models.messages_stream import MessageAssembly
from shoal.models.responses_stream import ResponseAssembly
from shoal.models.sse import Events
from shoal.testing.chat_form import ChatForm
from shoal.testing.messages_form import MessagesForm
from shoal.testing.replies import Answer
from shoal.testing.responses_form import ResponsesForm

from .door import Door

ASKED = faults.Asked(provider="a provider", model="m", url="http://localhost")
HISTORY = [user("hi")]


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Yield the bytes as a whole, in small pieces, and in pieces chosen by a hash of the bytes."""
    yield [data]
    step = 1 + len(data) // 300
    yield [data[at : at + step] for at in range(0, len(data), step)]
    chance = random.Random(zlib.crc32(data))
    at = sorted(chance.randrange(len(data) + 1) for _ in range(6))
    yield [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True) if start < end]


def _done(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def _heard(assembly: Any, chunks: list[bytes]) -> tuple[object, str]:
    """Return the reply or the type of error, and the streamed text."""
    said: list[str] = []

    async def hear(delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            said.append(delta.text)

    listening = Listening(ASKED, assembly, hear)
    try:
        whole = any(_done(listening.take(chunk)) for chunk in chunks) or _done(listening.take(b""))
        reply = assembly.reply() if whole else None
    except ModelError as error:
        return type(error), ""
    if reply is not None:
        _can_be_kept(reply)
    return encoded(reply), "".join(said)


def _can_be_kept(reply: Reply) -> None:
    """Check that a reply can be stored and sent again, with the types it promises."""
    again = decoded(encoded(reply))
    assert isinstance(again, dict)
    for block in reply.message.content:
        for name in ("text", "thinking", "id", "name", "signature"):
            assert isinstance(getattr(block, name, ""), str)
    for name in ("id", "model", "stop_reason"):
        assert isinstance(getattr(reply, name), str)


def _same_in_any_pieces(make: Callable[[], Any]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        outcomes = [_heard(make(), chunks) for chunks in cuts(data)]
        assert all(outcome == outcomes[0] for outcome in outcomes)

    return read


def _response(data: bytes) -> None:
    outcomes = [_fed(chunks) for chunks in cuts(data)]
    assert all(outcome == outcomes[0] for outcome in outcomes)


def _fed(chunks: list[bytes]) -> object:
    response, body = Response(), b""
    try:
        for chunk in chunks:
            body += response.feed(chunk)
    except Malformed:
        return Malformed
    return response.head, body, response.ended()


def _events(data: bytes) -> None:
    outcomes = []
    for chunks in cuts(data):
        events = Events()
        outcomes.append([event for chunk in chunks for event in events.feed(chunk)])
    assert all(outcome == outcomes[0] for outcome in outcomes)


def _refusal(data: bytes) -> None:
    first, _, body = data.partition(b"\n")
    words = first.decode("latin-1")
    headers = {"retry-after": words, "content-type": words[:20]}
    for status in (200, 301, 400, 404, 429, 500, 529):
        head = Head(status=status, headers=headers, keep_alive=True)
        error = faults.refusal(ASKED, head, body, now_ms=1_770_977_603_516)
        assert isinstance(error, ModelError)
        str(error).encode()
        assert isinstance(faults.not_a_stream(ASKED, head, body), ModelError)
    for headers in ({"retry-after": words}, {"retry-after-ms": words}):
        pause = faults.retry_after(headers, now_ms=1_770_977_603_516)
        assert pause is None or 0 <= pause < float("inf")


def _emulated(data: bytes) -> None:
    said = Text(text=data.decode("utf-8", "replace"))
    reply = Reply(
        message=user("x").__class__(role="assistant", content=(said,)),
        usage=Usage(),
        stop_reason="end_turn",
        model="m",
    )
    _can_be_kept(understood(reply, HISTORY))


_ANSWER = Answer(
    content=(
        Thinking(thinking="hm", signature="s"),
        Text(text="Hé <b> 🙂"),
        ToolUse(id="toolu_1", name="Read", input={"path": "a/é", "n": [1, {}]}),
    )
)


def _stream(form: Any) -> bytes:
    return b"".join(form.events(_ANSWER, {"model": "m"}, 1, Usage(input_tokens=3, output_tokens=2)))


_ERROR = b'data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded","code":"529"}}\n\n'
_HTTP = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nX-A: 2\r\n\r\n"
    b"4;e=1\r\ndata\r\n1\r\n:\r\n0\r\nTrailer: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.0 404 Not Found\r\n\r\ntext",
)
DOORS = (
    Door("http", _response, (), _HTTP),
    Door("sse", _events, (), (b"\xef\xbb\xbf: c\r\n\r\ndata: a\r\ndata:b\r\n\r\nid: 7\n\ndata\n\n",)),
    Door(
        "messages-stream",
        _same_in_any_pieces(lambda: MessageAssembly(ASKED)),
        (),
        (_stream(MessagesForm()), _ERROR),
    ),
    Door(
        "chat-stream",
        _same_in_any_pieces(lambda: ChatAssembly(ASKED, HISTORY)),
        (),
        (_stream(ChatForm()), b'data: {"error":{"message":"no"}}\n\n'),
    ),
    Door(
        "responses-stream",
        _same_in_any_pieces(lambda: ResponseAssembly(ASKED, HISTORY)),
        (),
        (_stream(ResponsesForm()), b'data: {"type":"response.failed","response":{"error":{"code":"x"}}}\n\n'),
    ),
    Door(
        "error-body",
        _refusal,
        (),
        (
            b'30\n{"error":{"type":"not_found_error","message":"model: x","code":404}}',
            b"Wed, 21 Oct 2026 07:28:00 GMT\n<html><title>Bad gateway</title></html>",
            b'application/json\n[{"error":{"detail":{"msg":"m"}}}]',
        ),
    ),
    Door(
        "emulated",
        _emulated,
        (),
        (
            b'```json\n{"turn":{"calls":[{"tool":"Read","arguments":{"p":1}}]}}\n```',
            b'{"turn":{"answer":"a"}}',
        ),
    ),
)
