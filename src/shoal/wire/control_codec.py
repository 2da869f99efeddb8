"""Codec for the lines of a run's control socket."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.conversation.messages import Message
from shoal.core.events import Event, JournaledEvent, LiveEvent, UnknownJournalEvent
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.wire.foreign_json import convert_to_schema
from shoal.wire.json_codec import decode_json, parse_conversation_message


class RunControlCommand(Struct, frozen=True, kw_only=True, tag_field="subtype"):
    """Base of the commands that a client may send to a run."""


class SubscribeToEventsControlCommand(RunControlCommand, frozen=True, tag="subscribe"):
    """Receive every event from now on. The response has the journal offset at which that starts."""


class InterruptTurnControlCommand(RunControlCommand, frozen=True, tag="interrupt"):
    """End the turn of the lead or of the named agent, not the run and not the agent."""

    task_id: str = ""


class SetModelControlCommand(RunControlCommand, frozen=True, tag="set_model"):
    model: str


class SetPermissionModeControlCommand(RunControlCommand, frozen=True, tag="set_permission_mode"):
    mode: PermissionMode


class SetDelegateModeControlCommand(RunControlCommand, frozen=True, tag="set_delegate"):
    """Restrict the lead to delegation, or give it all its tools back."""

    on: bool


class GetRunStatusControlCommand(RunControlCommand, frozen=True, tag="status"): ...


class StopRunControlCommand(RunControlCommand, frozen=True, tag="stop"):
    """End the run."""


class StopAgentOrShellControlCommand(RunControlCommand, frozen=True, tag="stop_task"):
    """End one agent, by id or name, or one background shell."""

    task_id: str


class ShutDownMemberControlCommand(RunControlCommand, frozen=True, tag="shut_down"):
    """Ask a teammate to shut down and stop it after the grace period; answered when it has ended."""

    name: str
    reason: str = ""


class RestartMemberControlCommand(RunControlCommand, frozen=True, tag="restart_member"):
    """Restart a teammate that is down, or every such teammate."""

    name: str = ""


class StopAllAgentsControlCommand(RunControlCommand, frozen=True, tag="stop_agents"):
    """End every agent except the lead."""


class MoveAgentsToBackgroundControlCommand(RunControlCommand, frozen=True, tag="background"):
    """Move the agent, or all agents, to the background; the run continues."""

    task_id: str | None = None


class ListAgentsControlCommand(RunControlCommand, frozen=True, tag="agents"):
    """List every started agent with its status."""


class SendUserTextControlCommand(RunControlCommand, frozen=True, tag="send"):
    """Send a person's text to one agent; an ended agent is resumed with it."""

    to: str
    text: str


class RelayAgentMessageControlCommand(RunControlCommand, frozen=True, tag="relay"):
    """Send a message of another session's agent to the lead. It does not count as a person's."""

    sender: str
    text: str
    summary: str = ""


_COMMAND_UNION: Any = reduce(or_, RunControlCommand.__subclasses__())


class RunControlRequest(Struct, frozen=True, kw_only=True):
    request_id: str
    command: RunControlCommand


class SteeringMessage(Struct, frozen=True, kw_only=True):
    """A person's message to the running agent. It is confirmed if it has a `request_id`."""

    message: Message
    request_id: str = ""


class EventSubscriptionGap(Struct, frozen=True, kw_only=True, tag_field="type", tag="gap"):
    """Last line for a subscriber that was too slow: the missed events are in the journal from `offset` on."""

    offset: int


class RunControlResponse(Struct, frozen=True, kw_only=True):
    request_id: str
    response: Any = None
    error: str | None = None


class InvalidControlRequestError(ValueError):
    """A line that is not a valid request, with its id, if found, for the response."""

    def __init__(self, reason: str, request_id: str = "") -> None:
        super().__init__(reason)
        self.request_id = request_id


def parse_control_request(line: bytes) -> RunControlRequest | SteeringMessage:
    """Parse a request line; raise `InvalidControlRequestError` with the mistake."""
    try:
        raw = decode_json(line)
    except ValueError as error:
        raise InvalidControlRequestError(f"not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidControlRequestError("not a JSON object")
    request_id = raw.get("request_id")
    request_id = request_id if isinstance(request_id, str) else ""
    match raw.get("type"):
        case "control_request":
            return _parse_control_command(raw, request_id)
        case "user":
            return _parse_steering_message(raw, request_id)
        case other:
            raise InvalidControlRequestError(
                f"unknown type {other!r}; expected control_request or user", request_id
            )


def _parse_control_command(raw: Mapping[str, Any], request_id: str) -> RunControlRequest:
    if not request_id:
        raise InvalidControlRequestError("request_id is missing")
    try:
        command = convert_to_schema(raw.get("request"), _COMMAND_UNION)
    except msgspec.ValidationError as error:
        raise InvalidControlRequestError(f"request: {error}", request_id) from error
    return RunControlRequest(request_id=request_id, command=command)


def _parse_steering_message(raw: Mapping[str, Any], request_id: str) -> SteeringMessage:
    raw_message = raw.get("message")
    if not isinstance(raw_message, dict) or raw_message.get("role") != "user":
        raise InvalidControlRequestError("message must be an object with role user", request_id)
    if not isinstance(raw_message.get("content"), str | list):
        raise InvalidControlRequestError("message.content must be a string or a list of blocks", request_id)
    message, left_out = parse_conversation_message(raw_message)
    if left_out or not message.content:
        raise InvalidControlRequestError(f"message.content has unknown blocks: {left_out}", request_id)
    return SteeringMessage(message=message, request_id=request_id)


# Events may carry values of a tool or an exception; for viewers their text is enough.
_encode = msgspec.json.Encoder(enc_hook=str).encode


def _encode_control_line(value: object) -> bytes:
    try:
        return _encode(value) + b"\n"
    except UnicodeEncodeError:
        import json

        builtins = msgspec.to_builtins(value, enc_hook=str)
        return json.dumps(builtins, separators=(",", ":")).encode() + b"\n"


def encode_control_request(request_id: str, command: RunControlCommand) -> bytes:
    return _encode_control_line({"type": "control_request", "request_id": request_id, "request": command})


def encode_steering_message(message: Message, request_id: str) -> bytes:
    return _encode_control_line({"type": "user", "request_id": request_id, "message": message})


def encode_event_for_subscriber(event: Event) -> bytes:
    return _encode_control_line(event)


def encode_subscription_gap(offset: int) -> bytes:
    return _encode_control_line(EventSubscriptionGap(offset=offset))


def encode_control_success(request_id: str, response: object) -> bytes:
    body = {"subtype": "success", "request_id": request_id, "response": response}
    return _encode_control_line({"type": "control_response", "response": body})


def encode_control_error(request_id: str, error: str) -> bytes:
    body = {"subtype": "error", "request_id": request_id, "error": error}
    return _encode_control_line({"type": "control_response", "response": body})


ControlOutput: TypeAlias = RunControlResponse | EventSubscriptionGap | Event | UnknownJournalEvent
_EVENT_UNION: Any = reduce(or_, (*JournaledEvent.__subclasses__(), *LiveEvent.__subclasses__()))


def parse_control_output(line: bytes) -> ControlOutput:
    """Parse a line that a run sent to its client; raise ValueError if it is invalid."""
    raw = decode_json(line)
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - it is the content that is wrong
    kind = raw.get("type")
    if kind == "control_response":
        return msgspec.convert(raw.get("response"), RunControlResponse)
    if kind == "gap":
        return msgspec.convert(raw, EventSubscriptionGap)
    try:
        event: Event = convert_to_schema(raw, _EVENT_UNION)
    except msgspec.ValidationError:
        return UnknownJournalEvent(type=str(kind), raw=raw)
    return event
