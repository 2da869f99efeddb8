"""Files that other programs write too: read without trust, rewritten without losing what they know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from shoal.wire.content import dump, load

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class Invalid(Struct, frozen=True):
    """A file that is not what its name says. It may be half written: look again while nobody writes."""

    reason: str


class Rejected(Struct, frozen=True, kw_only=True):
    """A part of a file that is not what it should be; the rest is."""

    raw: bytes
    reason: str


def value_of(content: bytes) -> Any:
    """The JSON value, or `Invalid`. A byte order mark and half a surrogate pair are let pass."""
    if not content.strip():
        return Invalid("it is empty")
    try:
        return load(content)
    except UnicodeDecodeError as error:
        return Invalid(f"it is not UTF-8: {error}")
    except ValueError as error:
        return Invalid(f"it is not JSON: {error}")
    except RecursionError:
        return Invalid("it is nested too deeply")


def shape(error: msgspec.ValidationError) -> str:
    """What is wrong, as a part of a sentence."""
    text = str(error)
    return text[:1].lower() + text[1:]


def fields_of(content: bytes) -> dict[str, Any]:
    """The fields of a JSON object, each to be written again as it stands; none for what is no object."""
    try:
        return dict(_decode_fields(content))
    except (msgspec.DecodeError, RecursionError):
        value = value_of(content)
        return value if isinstance(value, dict) else {}


def rewritten(content: bytes, known: Mapping[str, Any]) -> bytes:
    """The object with these fields as given, all others and the order as they were; None drops a field."""
    fields = fields_of(content)
    fields.update(known)
    dropped = {name for name, value in known.items() if value is None}
    return dump({name: value for name, value in fields.items() if name not in dropped})


def for_people(content: bytes) -> bytes:
    """The same JSON, indented."""
    return msgspec.json.format(content, indent=2) + b"\n"
