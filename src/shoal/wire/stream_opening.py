"""Parser for the `initialize` request of a program that drives a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from shoal.core.hooks import LONGEST_SECONDS, USUAL_SECONDS
from shoal.wire.hooks import is_matcher
from shoal.wire.stream_incoming import BadLine


class CallbackWish(Struct, frozen=True, kw_only=True):
    """A request to call a function of the program at a hook event."""

    event: str
    matcher: str
    callback: str
    """Id of the function in the program."""
    seconds: float
    blocks_on_failure: bool


class Wishes(Struct, frozen=True, kw_only=True):
    agents: Mapping[str, Any] | None = None
    callbacks: tuple[CallbackWish, ...] = ()


def wishes_in(body: Mapping[str, Any]) -> Wishes:
    """Parse the request body; raise `InvalidStreamLine`."""
    agents, hooks = body.get("agents"), body.get("hooks")
    if agents is not None and not isinstance(agents, Mapping):
        raise BadLine('"agents" of initialize is an object of names and their fields')
    if hooks is not None and not isinstance(hooks, Mapping):
        raise BadLine('"hooks" of initialize is an object of events')
    return Wishes(agents=agents or None, callbacks=tuple(_callbacks(hooks or {})))


def _callbacks(hooks: Mapping[str, Any]) -> Iterator[CallbackWish]:
    for event, entries in hooks.items():
        if entries is not None and not isinstance(entries, list):
            raise BadLine(f"the hooks of {event} are a list")
        for entry in entries or ():
            yield from _entry(event, entry)


def _entry(event: str, entry: object) -> Iterator[CallbackWish]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("hookCallbackIds"), list):
        raise BadLine(f'a hook of {event} needs "hookCallbackIds": the ids of its functions')
    matcher, seconds = entry.get("matcher"), entry.get("timeout")
    if matcher is not None and not (isinstance(matcher, str) and is_matcher(matcher)):
        raise BadLine(f'"matcher" of a hook of {event} is a name or a regular expression, not {matcher!r}')
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
        raise BadLine(f'"timeout" of a hook of {event} is a number of seconds')
    for callback in entry["hookCallbackIds"]:
        yield CallbackWish(
            event=event,
            matcher=matcher or "",
            callback=str(callback),
            seconds=float(min(seconds, LONGEST_SECONDS)) if seconds and seconds > 0 else USUAL_SECONDS,
            # An unknown value is read as the stricter of the two.
            blocks_on_failure=entry.get("onFailure", "continue") != "continue",
        )
