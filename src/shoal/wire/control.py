"""Codec for the lines of a run's control socket."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.decisions import Mode
from shoal.core.events import Event, Journaled, Live
from shoal.core.messages import Message
from shoal.wire.content import load, message_from
from shoal.wire.foreign import converted
from shoal.wire.journal import Unknown


class Command(Struct, frozen=True, kw_only=True, tag_field="subtype"):
    """Base of the commands that a client may send to a run."""


class Subscribe(Command, frozen=True, tag="subscribe"):
    """Receive every event from now on. The response has the journal offset at which that starts."""


class Interrupt(Command, frozen=True, tag="interrupt"):
    """End the turn of the lead or of the named agent, not the run and not the agent."""

    task_id: str = ""


class SetModel(Command, frozen=True, tag="set_model"):
    model: str


class SetPermissionMode(Command, frozen=True, tag="set_permission_mode"):
    mode: Mode


class SetDelegate(Command, frozen=True, tag="set_delegate"):
    """Restrict the lead to delegation, or give it all its tools back."""

    on: bool


class Status(Command, frozen=True, tag="status"): ...


class Stop(Command, frozen=True, tag="stop"):
    """End the run."""


class StopTask(Command, frozen=True, tag="stop_task"):
    """End one agent, by id or name, or one background shell."""

    task_id: str


class ShutDown(Command, frozen=True, tag="shut_down"):
    """Ask a teammate to shut down and stop it after the grace period; answered when it has ended."""

    name: str
    reason: str = ""


class StopAgents(Command, frozen=True, tag="stop_agents"):
    """End every agent except the lead."""


class Background(Command, frozen=True, tag="background"):
    """Move the agent, or all agents, to the background; the run continues."""

    task_id: str | None = None


class Agents(Command, frozen=True, tag="agents"):
    """List every started agent with its status."""


class Send(Command, frozen=True, tag="send"):
    """Send a person's text to one agent; an ended agent is resumed with it."""

    to: str
    text: str


class Relay(Command, frozen=True, tag="relay"):
    """Send a message of another session's agent to the lead. It does not count as a person's."""

    sender: str
    text: str
    summary: str = ""


_COMMANDS: Any = reduce(or_, Command.__subclasses__())


class ControlRequest(Struct, frozen=True, kw_only=True):
    request_id: str
    command: Command


class Steering(Struct, frozen=True, kw_only=True):
    """A person's message to the running agent. It is confirmed if it has a `request_id`."""

    message: Message
    request_id: str = ""


class Gap(Struct, frozen=True, kw_only=True, tag_field="type", tag="gap"):
    """Last line for a subscriber that was too slow: the missed events are in the journal from `offset` on."""

    offset: int


class Response(Struct, frozen=True, kw_only=True):
    request_id: str
    response: Any = None
    error: str | None = None


class NotUnderstood(ValueError):
    """A line that is not a valid request, with its id, if found, for the response."""

    def __init__(self, why: str, request_id: str = "") -> None:
        super().__init__(why)
        self.request_id = request_id


def read_request(line: bytes) -> ControlRequest | Steering:
    """Parse a request line; raise `InvalidControlRequest` with the mistake."""
    try:
        raw = load(line)
    except ValueError as error:
        raise NotUnderstood(f"not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise NotUnderstood("not a JSON object")
    request_id = raw.get("request_id")
    request_id = request_id if isinstance(request_id, str) else ""
    match raw.get("type"):
        case "control_request":
            return _request(raw, request_id)
        case "user":
            return _steering(raw, request_id)
        case other:
            raise NotUnderstood(f"unknown type {other!r}: control_request or user is expected", request_id)


def _request(raw: Mapping[str, Any], request_id: str) -> ControlRequest:
    if not request_id:
        raise NotUnderstood("request_id is missing")
    try:
        command = converted(raw.get("request"), _COMMANDS)
    except msgspec.ValidationError as error:
        raise NotUnderstood(f"request: {error}", request_id) from error
    return ControlRequest(request_id=request_id, command=command)


def _steering(raw: Mapping[str, Any], request_id: str) -> Steering:
    said = raw.get("message")
    if not isinstance(said, dict) or said.get("role") != "user":
        raise NotUnderstood("message must be an object with the role user", request_id)
    if not isinstance(said.get("content"), str | list):
        raise NotUnderstood("message.content must be a text or a list of blocks", request_id)
    message, left_out = message_from(said)
    if left_out or not message.content:
        raise NotUnderstood(f"message.content has blocks that are not known: {left_out}", request_id)
    return Steering(message=message, request_id=request_id)


# Events may carry values of a tool or an exception; for viewers their text is enough.
_encode = msgspec.json.Encoder(enc_hook=str).encode


def _line(value: object) -> bytes:
    try:
        return _encode(value) + b"\n"
    except UnicodeEncodeError:
        import json

        builtins = msgspec.to_builtins(value, enc_hook=str)
        return json.dumps(builtins, separators=(",", ":")).encode() + b"\n"


def request_line(request_id: str, command: Command) -> bytes:
    return _line({"type": "control_request", "request_id": request_id, "request": command})


def steering_line(message: Message, request_id: str) -> bytes:
    return _line({"type": "user", "request_id": request_id, "message": message})


def event_line(event: Event) -> bytes:
    return _line(event)


def gap_line(offset: int) -> bytes:
    return _line(Gap(offset=offset))


def success_line(request_id: str, response: object) -> bytes:
    told = {"subtype": "success", "request_id": request_id, "response": response}
    return _line({"type": "control_response", "response": told})


def error_line(request_id: str, error: str) -> bytes:
    told = {"subtype": "error", "request_id": request_id, "error": error}
    return _line({"type": "control_response", "response": told})


Told: TypeAlias = Response | Gap | Event | Unknown
_EVENTS: Any = reduce(or_, (*Journaled.__subclasses__(), *Live.__subclasses__()))


def read_told(line: bytes) -> Told:
    """Parse a line that a run sent to its client; raise ValueError if it is invalid."""
    raw = load(line)
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - it is the content that is wrong
    kind = raw.get("type")
    if kind == "control_response":
        return msgspec.convert(raw.get("response"), Response)
    if kind == "gap":
        return msgspec.convert(raw, Gap)
    try:
        event: Event = converted(raw, _EVENTS)
    except msgspec.ValidationError:
        return Unknown(type=str(kind), raw=raw)
    return event
