"""Step protocol between Shoal and the process of a model's workflow script: frames of JSON in two pipes."""

from __future__ import annotations

import struct
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from shoal.wire.script_texts import format_script_notice

MAX_FRAME_BYTES = 1024 * 1024
"""Largest message of a script."""
_LENGTH = struct.Struct(">I")
HEADER_BYTES = _LENGTH.size
_ShortText: TypeAlias = Annotated[str, Meta(max_length=1_000)]
_RequestId: TypeAlias = Annotated[int, Meta(ge=1)]


class ScriptProtocolError(ValueError):
    """A script sent something that is not a message of the protocol."""


class AgentStepRequest(Struct, frozen=True, kw_only=True, tag="agent", forbid_unknown_fields=True):
    id: _RequestId
    path: _ShortText
    agent: _ShortText
    prompt: Annotated[str, Meta(min_length=1)]
    schema: dict[str, Any] | None = None
    model: _ShortText | None = None
    isolation: Literal["worktree"] | None = None


class AskStepRequest(Struct, frozen=True, kw_only=True, tag="ask", forbid_unknown_fields=True):
    id: _RequestId
    path: _ShortText
    question: _ShortText
    options: Annotated[list[_ShortText], Meta(min_length=1, max_length=20)]


class ShellStepRequest(Struct, frozen=True, kw_only=True, tag="shell", forbid_unknown_fields=True):
    id: _RequestId
    path: _ShortText
    command: Annotated[str, Meta(min_length=1)]
    timeout: Annotated[float, Meta(gt=0, le=86_400)] | None = None


class SleepStepRequest(Struct, frozen=True, kw_only=True, tag="sleep", forbid_unknown_fields=True):
    id: _RequestId
    path: _ShortText
    seconds: Annotated[float, Meta(ge=0, le=31_536_000)]


class TimeStepRequest(Struct, frozen=True, kw_only=True, tag="now", forbid_unknown_fields=True):
    id: _RequestId
    path: _ShortText


class RandomStepRequest(Struct, frozen=True, kw_only=True, tag="random", forbid_unknown_fields=True):
    id: _RequestId
    path: _ShortText


class PhaseRequest(Struct, frozen=True, kw_only=True, tag="phase", forbid_unknown_fields=True):
    id: _RequestId
    name: _ShortText


class ScriptReturned(Struct, frozen=True, kw_only=True, tag="returned", forbid_unknown_fields=True):
    value: Any = None


class ScriptRaised(Struct, frozen=True, kw_only=True, tag="raised", forbid_unknown_fields=True):
    message: str


StepRequest: TypeAlias = (
    AgentStepRequest
    | AskStepRequest
    | ShellStepRequest
    | SleepStepRequest
    | TimeStepRequest
    | RandomStepRequest
    | PhaseRequest
)
ScriptMessage: TypeAlias = StepRequest | ScriptReturned | ScriptRaised
_DECODER: msgspec.json.Decoder[ScriptMessage] = msgspec.json.Decoder(ScriptMessage)


def parse_frame_length(header: bytes) -> int:
    """Return the length of the next message; raise `ScriptProtocolError` if it is too large."""
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise ScriptProtocolError(
            format_script_notice("long_message", size=f"{length:,}", maximum=f"{MAX_FRAME_BYTES:,}")
        )
    return int(length)


def parse_script_message(data: bytes) -> ScriptMessage:
    """Parse a message; raise `ScriptProtocolError` if it is invalid."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScriptProtocolError(format_script_notice("invalid_message", error=error)) from error


def encode_script_start(script: str, arguments: dict[str, Any]) -> bytes:
    return _encode_frame({"script": script, "arguments": arguments})


def encode_step_result(request: int, value: Any) -> bytes:
    return _encode_frame({"id": request, "value": value})


def encode_step_error(request: int, kind: Literal["RunFailed", "WorkflowError"], message: str) -> bytes:
    return _encode_frame({"id": request, "error": kind, "message": message})


def _encode_frame(message: dict[str, Any]) -> bytes:
    data = msgspec.json.encode(message)
    return _LENGTH.pack(len(data)) + data
