"""Codec between journal events and JSON lines."""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from typing import Any

import msgspec
from msgspec import Struct

from shoal.core.clock import encode_iso_time
from shoal.core.events import JournaledEvent, JournalEvent, UnknownJournalEvent
from shoal.core.text.redaction import SecretRedactor
from shoal.wire.foreign_json import convert_to_schema
from shoal.wire.json_codec import decode_json, encode_json, parse_iso_timestamp

_EVENT_UNION: Any = reduce(or_, JournaledEvent.__subclasses__())
_EVENT_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in JournaledEvent.__subclasses__())
_LINE_START = b'{"at":"'
_TIME_SIZE = len(_LINE_START + b'2030-01-01T00:00:00.000Z"')
"""Number of bytes up to the end of the time of an event."""


def encode_journal_line(event: JournaledEvent, at: int, secrets: SecretRedactor | None = None) -> bytes:
    body = encode_json(event)[1:]
    if secrets is not None:
        body = secrets.redact_bytes(body)
    return b'%b%b",%b\n' % (_LINE_START, encode_iso_time(at), body)


class _JournalLineTimestampSchema(Struct, frozen=True):
    at: str


_decode_timestamp = msgspec.json.Decoder(_JournalLineTimestampSchema).decode


@cache
def _get_event_decoder() -> msgspec.json.Decoder[JournaledEvent]:
    """Return the decoder of all events; a new session writes its journal without reading any."""
    return msgspec.json.Decoder(_EVENT_UNION)


def parse_journal_line(line: bytes) -> tuple[int, JournalEvent]:
    """Return the time and the event; raise ValueError if the line contains none."""
    try:
        return parse_iso_timestamp(_decode_timestamp(line).at), _get_event_decoder().decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raw = decode_json(line)
    if not isinstance(raw, dict) or not isinstance(raw.get("at"), str):
        raise ValueError("not an event")  # noqa: TRY004 - it is the content that is wrong
    at = parse_iso_timestamp(raw.pop("at"))
    try:
        return at, convert_to_schema(raw, _EVENT_UNION)
    except msgspec.ValidationError:
        kind = raw.get("type")
        is_damaged = not isinstance(kind, str) or kind in _EVENT_TYPES
        return at, UnknownJournalEvent(type=str(kind or ""), raw=raw, is_damaged=is_damaged)


def split_torn_line(line: bytes) -> tuple[bytes, bytes]:
    """Return the torn event at the start of a line, and the complete event after it, which may be empty."""
    start = line.find(_LINE_START, 1)
    while start > 0:
        try:
            parse_journal_line(line[start:])
        except ValueError:
            start = line.find(_LINE_START, start + 1)
        else:
            return line[:start], line[start:]
    return line, b""


def is_start_of_event(part: bytes) -> bool:
    """Return True if the part has the complete time of an event, without which it could be of any event."""
    return len(part) >= _TIME_SIZE and part.startswith(_LINE_START)
