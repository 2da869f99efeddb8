"""Codec between journal events and JSON lines."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.clock import iso
from shoal.core.events import Journaled
from shoal.wire.content import dump, load, milliseconds
from shoal.wire.foreign import converted

_EVENTS: Any = reduce(or_, Journaled.__subclasses__())
_decode_event = msgspec.json.Decoder(_EVENTS).decode
_START = b'{"at":"'


class Unknown(Struct, frozen=True, kw_only=True):
    """An event of unknown type or layout, written by a newer program."""

    type: str
    raw: dict[str, Any]


Event: TypeAlias = Journaled | Unknown


class Recorded(Struct, frozen=True, kw_only=True):
    """An event in the journal with its time and offset. `next` is the offset of the following one."""

    offset: int
    next: int
    at: int
    event: Event


def journal_line(event: Journaled, at: int) -> bytes:
    return b'%b%b",%b\n' % (_START, iso(at).encode(), dump(event)[1:])


class _Stamp(Struct, frozen=True):
    at: str


_decode_stamp = msgspec.json.Decoder(_Stamp).decode


def read_event(line: bytes) -> tuple[int, Event]:
    """Return the time and the event; raise ValueError if the line holds none."""
    try:
        return milliseconds(_decode_stamp(line).at), _decode_event(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raw = load(line)
    if not isinstance(raw, dict) or not isinstance(raw.get("at"), str):
        raise ValueError("not an event")  # noqa: TRY004 - it is the content that is wrong
    at = milliseconds(raw.pop("at"))
    try:
        return at, converted(raw, _EVENTS)
    except msgspec.ValidationError:
        return at, Unknown(type=str(raw.get("type", "")), raw=raw)


def rescued_event(line: bytes) -> tuple[int, Event] | None:
    """Return the event at the end of a line that starts with a torn event."""
    start = line.find(_START, 1)
    while start > 0:
        try:
            return read_event(line[start:])
        except ValueError:
            start = line.find(_START, start + 1)
    return None
