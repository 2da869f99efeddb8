"""Parser for the `initialize` request of a program that drives a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from shoal.core.hooks import DEFAULT_HOOK_SECONDS, MAX_HOOK_SECONDS
from shoal.wire.hook_codec import is_valid_hook_matcher
from shoal.wire.stream_input_codec import InvalidInputStreamLineError


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


def parse_stream_initialize_request(body: Mapping[str, Any]) -> StreamInitializeRequest:
    """Parse the request body; raise `InvalidInputStreamLineError`."""
    agents, hooks = body.get("agents"), body.get("hooks")
    if agents is not None and not isinstance(agents, Mapping):
        raise InvalidInputStreamLineError('"agents" of initialize is an object of names and their fields')
    if hooks is not None and not isinstance(hooks, Mapping):
        raise InvalidInputStreamLineError('"hooks" of initialize is an object of events')
    return StreamInitializeRequest(agents=agents or None, callbacks=tuple(_parse_hook_callbacks(hooks or {})))


def _parse_hook_callbacks(hooks: Mapping[str, Any]) -> Iterator[HookCallbackRegistration]:
    for event, entries in hooks.items():
        if entries is not None and not isinstance(entries, list):
            raise InvalidInputStreamLineError(f"the hooks of {event} are a list")
        for entry in entries or ():
            yield from _parse_hook_callback_entry(event, entry)


def _parse_hook_callback_entry(event: str, entry: object) -> Iterator[HookCallbackRegistration]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("hookCallbackIds"), list):
        raise InvalidInputStreamLineError(
            f'a hook of {event} needs "hookCallbackIds": the ids of its functions'
        )
    matcher, seconds = entry.get("matcher"), entry.get("timeout")
    if matcher is not None and not (isinstance(matcher, str) and is_valid_hook_matcher(matcher)):
        raise InvalidInputStreamLineError(
            f'"matcher" of a hook of {event} is a name or a regular expression, not {matcher!r}'
        )
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
        raise InvalidInputStreamLineError(f'"timeout" of a hook of {event} is a number of seconds')
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
