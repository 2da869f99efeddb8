"""Replies of a mock provider: content made of core types, and faults on the way to the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import BaseContentBlock, ContentBlock, Message, TextBlock, ToolUseBlock
from shoal.core.conversation.model_requests import ModelReply, StopReason


class ReplyFault(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="fault", forbid_unknown_fields=True
):
    """A fault of one reply."""


class DelayedReplyFault(ReplyFault, frozen=True, tag="delay"):
    """Nothing is sent for a while; then the reply as usual."""

    seconds: float


class SlowStreamFault(ReplyFault, frozen=True, tag="drip"):
    """The reply arrives in pieces of `size` bytes with a pause before each."""

    seconds: float
    size: int = 1


class PingAfterEachEventFault(ReplyFault, frozen=True, tag="pings"):
    """Keep-alive events without meaning, one after each event."""


class HttpErrorFault(ReplyFault, frozen=True, tag="http_error"):
    """An error status instead of a reply, in the provider's own JSON. `raw` replaces that JSON."""

    status: int
    message: str = ""
    code: str = ""
    retry_after: float | None = None
    raw: str | None = None


class ConnectionResetFault(ReplyFault, frozen=True, tag="reset"):
    """The connection is reset before a byte of the reply."""


class CutStreamFault(ReplyFault, frozen=True, tag="cut"):
    """The stream ends after some events: by `close`, `reset`, or `clean` (a proxy that ends it properly).

    With `in_tool_call` it ends in the middle of a tool call's arguments.
    """

    after: int = 0
    in_tool_call: bool = False
    how: str = "close"


class StalledStreamFault(ReplyFault, frozen=True, tag="stall"):
    """After some events no more bytes come and the connection stays open."""

    after: int = 0


class GarbageLineFault(ReplyFault, frozen=True, tag="garbage"):
    """A line that violates the protocol, after some events; the stream then continues."""

    after: int = 1
    line: str = "data: {not json"


class StreamErrorFault(ReplyFault, frozen=True, tag="stream_error"):
    """The provider's error event, after some events, in a stream that began with status 200."""

    after: int = 1
    code: str = "overloaded"
    message: str = "Overloaded"


class StaleConnectionFault(ReplyFault, frozen=True, tag="stale"):
    """The reply is complete, but the connection is dead after it: a next request on it gets no reply.

    Servers close idle connections at any time, and a client notices only with its next request.
    """


class BrokenToolJsonFault(ReplyFault, frozen=True, tag="broken_tool_json"):
    """The arguments of every tool call are this text. The Messages API can send it only in a stream."""

    arguments: str = '{"path": "a.txt", "content": '


AnyFault: TypeAlias = (
    DelayedReplyFault
    | SlowStreamFault
    | PingAfterEachEventFault
    | HttpErrorFault
    | ConnectionResetFault
    | CutStreamFault
    | StalledStreamFault
    | GarbageLineFault
    | StreamErrorFault
    | StaleConnectionFault
    | BrokenToolJsonFault
)


def make_rate_limit_fault(retry_after: float | None = None) -> HttpErrorFault:
    return HttpErrorFault(status=429, retry_after=retry_after)


def make_overloaded_fault() -> HttpErrorFault:
    return HttpErrorFault(status=529)


def make_server_error_fault() -> HttpErrorFault:
    return HttpErrorFault(status=500)


def make_unavailable_fault() -> HttpErrorFault:
    return HttpErrorFault(status=503)


def make_unauthorized_fault() -> HttpErrorFault:
    return HttpErrorFault(status=401)


def make_unknown_model_fault() -> HttpErrorFault:
    return HttpErrorFault(status=404)


def make_context_length_fault() -> HttpErrorFault:
    return HttpErrorFault(status=400, code="context_too_long")


class MockReply(Struct, frozen=True, kw_only=True):
    """One reply of the provider. Missing fields are derived: the stop reason from the content, usage from
    the number of bytes."""

    content: tuple[ContentBlock, ...] = ()
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    model: str | None = None
    faults: tuple[AnyFault, ...] = ()

    @property
    def effective_stop_reason(self) -> StopReason:
        if self.stop_reason is not None:
            return self.stop_reason
        return "tool_use" if any(isinstance(block, ToolUseBlock) for block in self.content) else "end_turn"


ReplyLike: TypeAlias = (
    str
    | BaseContentBlock
    | Message
    | ModelReply
    | MockReply
    | ReplyFault
    | Sequence[str | BaseContentBlock | ReplyFault]
)
"""Anything a responder may return; `make_mock_reply` converts it to a `MockReply`."""
RequestBody: TypeAlias = Mapping[str, Any]
Responder: TypeAlias = Callable[[RequestBody], ReplyLike | Awaitable[ReplyLike]] | Sequence[ReplyLike]
"""Produces the server's replies: a function of the parsed request, or the replies in order."""


def make_tool_call(name: str, /, *, call_id: str = "", **arguments: Any) -> ToolUseBlock:
    """Build a tool call; without an id the server creates one."""
    return ToolUseBlock(id=call_id, name=name, input=arguments)


def make_mock_reply(reply: ReplyLike) -> MockReply:
    match reply:
        case MockReply():
            return reply
        case str():
            return MockReply(content=(TextBlock(text=reply),))
        case ModelReply():
            return MockReply(
                content=reply.message.content,
                usage=reply.usage,
                stop_reason=reply.stop_reason,
                model=reply.model or None,
            )
        case Message():
            return MockReply(content=reply.content)
        case BaseContentBlock() | ReplyFault():
            return _make_mock_reply_from_parts((reply,))
        case _:
            return _make_mock_reply_from_parts(reply)


def _make_mock_reply_from_parts(parts: Sequence[str | BaseContentBlock | ReplyFault]) -> MockReply:
    content: list[Any] = []
    faults: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            content.append(TextBlock(text=part))
        elif isinstance(part, ReplyFault):
            faults.append(part)
        else:
            content.append(part)
    return MockReply(content=tuple(content), faults=tuple(faults))


def add_tool_call_ids(answer: MockReply, prefix: str) -> MockReply:
    """Return the reply with an id for each tool call that has none."""
    if all(block.id for block in answer.content if isinstance(block, ToolUseBlock)):
        return answer
    content = [
        structs.replace(block, id=f"{prefix}{index}")
        if isinstance(block, ToolUseBlock) and not block.id
        else block
        for index, block in enumerate(answer.content)
    ]
    return structs.replace(answer, content=tuple(content))


def split_into_stream_pieces(text: str, size: int) -> list[str]:
    """Split the text into the parts it is streamed in: at least two if it has two characters."""
    size = max(1, min(size, (len(text) + 1) // 2))
    return [text[start : start + size] for start in range(0, len(text), size)]
