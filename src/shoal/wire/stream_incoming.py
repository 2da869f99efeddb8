"""Parser for stream-json input lines of a program that drives a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from shoal.core.errors import ShoalError
from shoal.core.messages import Message, Text
from shoal.wire.content import load, message_from


class Prompt(Struct, frozen=True, kw_only=True):
    """A `user` line: a prompt."""

    message: Message
    left_out: tuple[str, ...] = ()
    """Types of content blocks that were skipped as unknown."""


class Control(Struct, frozen=True, kw_only=True):
    """A `control_request` line, which needs a response."""

    id: str
    subtype: str
    body: Mapping[str, Any]


class Responded(Struct, frozen=True, kw_only=True):
    """A `control_response` line: the response to our request."""

    id: str
    body: Mapping[str, Any] = {}
    error: str = ""


class Other(Struct, frozen=True, kw_only=True):
    """A line of a type that needs no action, such as `keep_alive`."""

    type: str


Incoming: TypeAlias = Prompt | Control | Responded | Other


class BadLine(ShoalError):
    """An input line that violates the protocol."""


def incoming(line: bytes) -> Incoming:
    """Parse one input line; raise `InvalidStreamLine` with the mistake."""
    raw = _object(line)
    match raw.get("type"):
        case "user":
            return _prompt(raw)
        case "control_request":
            request = raw.get("request")
            if not isinstance(request, Mapping) or not isinstance(request.get("subtype"), str):
                raise BadLine('a control_request needs "request": {"subtype": …}')
            return Control(id=str(raw.get("request_id", "")), subtype=request["subtype"], body=request)
        case "control_response":
            return _responded(raw.get("response"))
        case str() as other:
            return Other(type=other)
        case _:
            raise BadLine('it has no "type"; lines are {"type": "user", "message": {…}} or control requests')


def _responded(response: object) -> Responded:
    if not isinstance(response, Mapping) or not isinstance(response.get("request_id"), str):
        raise BadLine('a control_response needs "response": {"request_id": …}')
    if response.get("subtype") == "error":
        return Responded(id=response["request_id"], error=str(response.get("error") or "it failed"))
    body = response.get("response")
    return Responded(id=response["request_id"], body=body if isinstance(body, Mapping) else {})


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        raw = load(line)
    except ValueError as error:
        raise BadLine(f"it is not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise BadLine("it is not a JSON object")
    return raw


def _prompt(raw: Mapping[str, Any]) -> Prompt:
    message = raw.get("message")
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), str | list):
        raise BadLine('a user line needs "message": {"role": "user", "content": text or blocks}')
    parsed, left_out = message_from({"role": "user", "content": message["content"]})
    if all(isinstance(block, Text) and not block.text.strip() for block in parsed.content):
        raise BadLine("the message has no content that is known here")
    return Prompt(message=parsed, left_out=left_out)
