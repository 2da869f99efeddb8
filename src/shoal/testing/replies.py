"""Replies of a mock provider: content made of core types, and faults on the way to the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from shoal.core.messages import Block, ContentBlock, Message, Text, ToolUse
from shoal.core.requests import Reply, StopReason
from shoal.core.usage import Usage


class Fault(Struct, frozen=True, kw_only=True, tag_field="type", tag="fault", forbid_unknown_fields=True):
    """A fault of one reply."""


class Delay(Fault, frozen=True, tag="delay"):
    """Nothing is sent for a while; then the reply as usual."""

    seconds: float


class Drip(Fault, frozen=True, tag="drip"):
    """The reply arrives in pieces of `size` bytes with a pause before each."""

    seconds: float
    size: int = 1


class Pings(Fault, frozen=True, tag="pings"):
    """Keep-alive events without meaning, one after each event."""


class HttpError(Fault, frozen=True, tag="http_error"):
    """An error status instead of a reply, in the provider's own JSON. `raw` replaces that JSON."""

    status: int
    message: str = ""
    code: str = ""
    retry_after: float | None = None
    raw: str | None = None


class Reset(Fault, frozen=True, tag="reset"):
    """The connection is reset before a byte of the reply."""


class Cut(Fault, frozen=True, tag="cut"):
    """The stream ends after some events: by `close`, `reset`, or `clean` (a proxy that ends it properly).

    With `in_tool_call` it ends in the middle of a tool call's arguments.
    """

    after: int = 0
    in_tool_call: bool = False
    how: str = "close"


class Stall(Fault, frozen=True, tag="stall"):
    """After some events no more bytes come and the connection stays open."""

    after: int = 0


class Garbage(Fault, frozen=True, tag="garbage"):
    """A line that violates the protocol, after some events; the stream then continues."""

    after: int = 1
    line: str = "data: {not json"


class StreamError(Fault, frozen=True, tag="stream_error"):
    """The provider's error event, after some events, in a stream that began with status 200."""

    after: int = 1
    code: str = "overloaded"
    message: str = "Overloaded"


class Stale(Fault, frozen=True, tag="stale"):
    """The reply is complete, but the connection is dead after it: a next request on it gets no reply.

    Servers close idle connections at any time, and a client notices only with its next request.
    """


class BrokenToolJson(Fault, frozen=True, tag="broken_tool_json"):
    """The arguments of every tool call are this text. The Messages API can send it only in a stream."""

    arguments: str = '{"path": "a.txt", "content": '


AnyFault: TypeAlias = (
    Delay | Drip | Pings | HttpError | Reset | Cut | Stall | Garbage | StreamError | Stale | BrokenToolJson
)


def rate_limited(retry_after: float | None = None) -> HttpError:
    return HttpError(status=429, retry_after=retry_after)


def overloaded() -> HttpError:
    return HttpError(status=529)


def server_error() -> HttpError:
    return HttpError(status=500)


def unavailable() -> HttpError:
    return HttpError(status=503)


def unauthorized() -> HttpError:
    return HttpError(status=401)


def unknown_model() -> HttpError:
    return HttpError(status=404)


def context_too_long() -> HttpError:
    return HttpError(status=400, code="context_too_long")


class Answer(Struct, frozen=True, kw_only=True):
    """One reply of the provider. Missing fields are derived: the stop reason from the content, usage from
    the number of bytes."""

    content: tuple[ContentBlock, ...] = ()
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    model: str | None = None
    faults: tuple[AnyFault, ...] = ()

    @property
    def stopped_by(self) -> StopReason:
        if self.stop_reason is not None:
            return self.stop_reason
        return "tool_use" if any(isinstance(block, ToolUse) for block in self.content) else "end_turn"


Sayable: TypeAlias = str | Block | Message | Reply | Answer | Fault | Sequence[str | Block | Fault]
"""Anything a responder may return; `reply_from` converts it to a `MockReply`."""
Body: TypeAlias = Mapping[str, Any]
Mind: TypeAlias = Callable[[Body], Sayable | Awaitable[Sayable]] | Sequence[Sayable]
"""Produces the server's replies: a function of the parsed request, or the replies in order."""


def call(name: str, *, call_id: str = "", **arguments: Any) -> ToolUse:
    """Build a tool call; without an id the server creates one."""
    return ToolUse(id=call_id, name=name, input=arguments)


def answer_from(said: Sayable) -> Answer:
    match said:
        case Answer():
            return said
        case str():
            return Answer(content=(Text(text=said),))
        case Reply():
            return Answer(
                content=said.message.content,
                usage=said.usage,
                stop_reason=said.stop_reason,
                model=said.model or None,
            )
        case Message():
            return Answer(content=said.content)
        case Block() | Fault():
            return _gathered((said,))
        case _:
            return _gathered(said)


def _gathered(parts: Sequence[str | Block | Fault]) -> Answer:
    content: list[Any] = []
    faults: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            content.append(Text(text=part))
        elif isinstance(part, Fault):
            faults.append(part)
        else:
            content.append(part)
    return Answer(content=tuple(content), faults=tuple(faults))


def with_ids(answer: Answer, prefix: str) -> Answer:
    """Return the reply with an id for each tool call that has none."""
    if all(block.id for block in answer.content if isinstance(block, ToolUse)):
        return answer
    content = [
        structs.replace(block, id=f"{prefix}{index}")
        if isinstance(block, ToolUse) and not block.id
        else block
        for index, block in enumerate(answer.content)
    ]
    return structs.replace(answer, content=tuple(content))


def pieces(text: str, size: int) -> list[str]:
    """Split the text into the parts it is streamed in: at least two if it has two characters."""
    size = max(1, min(size, (len(text) + 1) // 2))
    return [text[start : start + size] for start in range(0, len(text), size)]
