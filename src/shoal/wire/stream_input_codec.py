"""Parser for stream-json input lines of a program that drives a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from msgspec import Struct

from shoal.core.conversation.messages import Message, TextBlock
from shoal.core.errors import ShoalError
from shoal.core.extensions.hooks import DEFAULT_HOOK_SECONDS, MAX_HOOK_SECONDS
from shoal.wire.hook_codec import is_valid_hook_matcher
from shoal.wire.json_codec import decode_json, parse_conversation_message


class HookCallbackRegistration(Struct, frozen=True, kw_only=True):
    """A request to call a function of the program at a hook event."""

    event: str
    matcher: str
    callback: str
    """Id of the function in the program."""
    seconds: float
    blocks_on_failure: bool


class StreamInitializeRequest(Struct, frozen=True, kw_only=True):
    agents: Mapping[str, Any] | None = None
    callbacks: tuple[HookCallbackRegistration, ...] = ()
    skills: tuple[str, ...] | None = None
    """Names of the only skills that agents can use; None for all."""
    mcp_servers: tuple[str, ...] = ()
    """Names of MCP servers that live in the program."""


def parse_stream_initialize_request(body: Mapping[str, Any]) -> StreamInitializeRequest:
    """Parse the request body; raise `InvalidInputStreamLineError`."""
    agents, hooks = body.get("agents"), body.get("hooks")
    if agents is not None and not isinstance(agents, Mapping):
        raise InvalidInputStreamLineError('"agents" in initialize must be an object: name → definition')
    if hooks is not None and not isinstance(hooks, Mapping):
        raise InvalidInputStreamLineError('"hooks" in initialize must be an object: event → list of hooks')
    return StreamInitializeRequest(
        agents=agents or None,
        callbacks=tuple(_parse_hook_callbacks(hooks or {})),
        skills=_parse_name_list(body, "skills"),
        mcp_servers=_parse_name_list(body, "sdkMcpServers") or (),
    )


def _parse_name_list(body: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    names = body.get(key)
    if names is None or names == "all":
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInputStreamLineError(f'"{key}" in initialize must be a list of names')
    return tuple(names)


def _parse_hook_callbacks(hooks: Mapping[str, Any]) -> Iterator[HookCallbackRegistration]:
    for event, entries in hooks.items():
        if entries is not None and not isinstance(entries, list):
            raise InvalidInputStreamLineError(f"the hooks for {event} must be a list")
        for entry in entries or ():
            yield from _parse_hook_callback_entry(event, entry)


def _parse_hook_callback_entry(event: str, entry: object) -> Iterator[HookCallbackRegistration]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("hookCallbackIds"), list):
        raise InvalidInputStreamLineError(
            f'a hook for {event} needs "hookCallbackIds": the ids of its functions'
        )
    matcher, seconds = entry.get("matcher"), entry.get("timeout")
    if matcher is not None and not (isinstance(matcher, str) and is_valid_hook_matcher(matcher)):
        raise InvalidInputStreamLineError(
            f'"matcher" of a hook for {event} must be a name or a regular expression, got {matcher!r}'
        )
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
        raise InvalidInputStreamLineError(f'"timeout" of a hook for {event} must be a number of seconds')
    for callback in entry["hookCallbackIds"]:
        yield HookCallbackRegistration(
            event=event,
            matcher=matcher or "",
            callback=str(callback),
            seconds=float(min(seconds, MAX_HOOK_SECONDS))
            if seconds and seconds > 0
            else DEFAULT_HOOK_SECONDS,
            # An unknown value is read as the stricter of the two.
            blocks_on_failure=entry.get("onFailure", "continue") != "continue",
        )


class UserPromptInputStreamLine(Struct, frozen=True, kw_only=True):
    """A `user` line: a prompt."""

    message: Message
    raw: Mapping[str, Any] = {}
    """The message as the program sent it."""
    uuid: str = ""
    """Id that the program gave to it; empty if it gave none that can be used."""
    left_out: tuple[str, ...] = ()
    """Types of content blocks that were skipped as unknown, and fields without effect."""


class ControlRequestInputStreamLine(Struct, frozen=True, kw_only=True):
    """A `control_request` line, which needs a response."""

    id: str
    subtype: str
    body: Mapping[str, Any]


class ControlResponseInputStreamLine(Struct, frozen=True, kw_only=True):
    """A `control_response` line: the response to our request."""

    id: str
    body: Mapping[str, Any] = {}
    error: str = ""


class IgnoredInputStreamLine(Struct, frozen=True, kw_only=True):
    """A line of a type that needs no action, such as `keep_alive`."""

    type: str


StreamInputMessage: TypeAlias = (
    UserPromptInputStreamLine
    | ControlRequestInputStreamLine
    | ControlResponseInputStreamLine
    | IgnoredInputStreamLine
)


class InvalidInputStreamLineError(ShoalError):
    """An input line that violates the protocol."""


def parse_stream_input_line(line: bytes) -> StreamInputMessage:
    """Parse one input line; raise `InvalidInputStreamLineError` with the mistake."""
    raw = _parse_stream_json_object(line)
    match raw.get("type"):
        case "user":
            return _parse_stream_prompt(raw)
        case "control_request":
            request = raw.get("request")
            if not isinstance(request, Mapping) or not isinstance(request.get("subtype"), str):
                raise InvalidInputStreamLineError('a control_request needs "request": {"subtype": …}')
            return ControlRequestInputStreamLine(
                id=str(raw.get("request_id", "")), subtype=request["subtype"], body=request
            )
        case "control_response":
            return _parse_stream_control_response(raw.get("response"))
        case str() as other:
            return IgnoredInputStreamLine(type=other)
        case _:
            raise InvalidInputStreamLineError(
                'it has no "type"; expected {"type": "user", "message": {…}} or control requests'
            )


def _parse_stream_control_response(response: object) -> ControlResponseInputStreamLine:
    if not isinstance(response, Mapping) or not isinstance(response.get("request_id"), str):
        raise InvalidInputStreamLineError('a control_response needs "response": {"request_id": …}')
    if response.get("subtype") == "error":
        return ControlResponseInputStreamLine(
            id=response["request_id"], error=str(response.get("error") or "it failed")
        )
    body = response.get("response")
    return ControlResponseInputStreamLine(
        id=response["request_id"], body=body if isinstance(body, Mapping) else {}
    )


def _parse_stream_json_object(line: bytes) -> Mapping[str, Any]:
    try:
        raw = decode_json(line)
    except ValueError as error:
        raise InvalidInputStreamLineError(f"it is not valid JSON ({error})") from error
    if not isinstance(raw, dict):
        raise InvalidInputStreamLineError("it is not a JSON object")
    return raw


def _parse_stream_prompt(raw: Mapping[str, Any]) -> UserPromptInputStreamLine:
    message = raw.get("message")
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), str | list):
        raise InvalidInputStreamLineError(
            'a user line needs "message": {"role": "user", "content": text or blocks}'
        )
    parsed, left_out = parse_conversation_message({"role": "user", "content": message["content"]})
    if all(isinstance(block, TextBlock) and not block.text.strip() for block in parsed.content):
        raise InvalidInputStreamLineError("the message has no known content")
    if raw.get("client_composed"):
        # The text is not to be read as a command. Shoal reads it as one, and says so.
        left_out = (*left_out, "client_composed")
    return UserPromptInputStreamLine(
        message=parsed, raw=message, uuid=_parse_uuid(raw.get("uuid")), left_out=left_out
    )


def _parse_uuid(given: object) -> str:
    try:
        return str(UUID(given)) if isinstance(given, str) else ""
    except ValueError:
        return ""
