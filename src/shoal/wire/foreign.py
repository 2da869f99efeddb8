"""Files that other programs write too: read without trust, rewritten without losing what they know."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from shoal.wire.content import dump, load

_T = TypeVar("_T")
_HALF = re.compile("[\ud800-\udfff]")
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


def converted(value: Any, form: type[_T]) -> _T:
    """The value in that form; raises `msgspec.ValidationError` for whatever does not fit it."""
    try:
        return msgspec.convert(value, form)
    except UnicodeEncodeError:
        pass  # msgspec gives up at names with half a surrogate pair; none of ours has one
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if not _HALF.search(name)}
    try:
        return msgspec.convert(value, form)
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError(f"Name of a field that is not text: {error}") from error


def decoded(content: bytes, decode: Callable[[bytes], _T], form: Any) -> _T:
    """What the decoder of that form makes of it; raises ValueError.

    A decoder gives up at half a surrogate pair, which `dump` writes for names that are not UTF-8: then it is
    read in two steps.
    """
    try:
        return decode(content)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = load(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    read: _T = converted(value, form)
    return read


def fields_of(content: bytes) -> dict[str, Any]:
    """The fields of a JSON object, each to be written again as it stands; none for what is no object."""
    try:
        return dict(_decode_fields(content))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = value_of(content)
    if isinstance(value, Invalid):
        # A reader passes over the name of a field it does not know, whatever its bytes are.
        value = value_of(content.decode(errors="surrogateescape").encode(errors="surrogatepass"))
    return {name: Raw(exact(each)) for name, each in value.items()} if isinstance(value, dict) else {}


def rewritten(content: bytes, known: Mapping[str, Any]) -> bytes:
    """The object with these fields as given, all others and the order as they were; None drops a field."""
    fields = fields_of(content)
    fields.update(known)
    return object_bytes(
        {name: value for name, value in fields.items() if value is not None or name not in known}
    )


def object_bytes(fields: Mapping[str, Any]) -> bytes:
    """A JSON object of values, and of bytes that are JSON already."""
    return b"{%b}" % b",".join(b"%b:%b" % (dump(name), _bytes(value)) for name, value in fields.items())


def exact(value: Any) -> bytes:
    """What `value_of` read, as it was: NaN and numbers without end too, which `dump` has no word for."""
    import json

    return json.dumps(value, separators=(",", ":")).encode()


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, Raw) else dump(value)


def for_people(content: bytes) -> bytes:
    """The same JSON, indented if it can be."""
    try:
        return msgspec.json.format(content, indent=2) + b"\n"
    except (msgspec.DecodeError, RecursionError):
        return content + b"\n"
