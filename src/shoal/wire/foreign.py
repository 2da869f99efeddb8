"""JSON files shared with other programs: parsed defensively, rewritten without losing their fields."""

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
    """A file with invalid content. It may be half written: read it again under the lock."""

    reason: str


class Rejected(Struct, frozen=True, kw_only=True):
    """An invalid part of an otherwise valid file."""

    raw: bytes
    reason: str


def value_of(content: bytes) -> Any:
    """Return the JSON value or `InvalidFile`; a byte order mark and lone surrogates are accepted."""
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
    """Return the validation error as part of a sentence."""
    text = str(error)
    return text[:1].lower() + text[1:]


def converted(value: Any, form: type[_T]) -> _T:
    """Convert the value to the schema; raise `msgspec.ValidationError` if it does not fit."""
    try:
        return msgspec.convert(value, form)
    except UnicodeEncodeError:
        pass  # msgspec fails at names with lone surrogates; none of our names has one
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if not _HALF.search(name)}
    try:
        return msgspec.convert(value, form)
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError(f"Name of a field that is not text: {error}") from error


def decoded(content: bytes, decode: Callable[[bytes], _T], form: Any) -> _T:
    """Decode the content with the decoder of the schema; raise ValueError.

    A decoder fails at lone surrogates, which `encode_json` writes for names that are not UTF-8: then the
    content is decoded in two steps.
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
    """Return the raw fields of a JSON object, ready to be written unchanged; empty if it is no object."""
    try:
        return dict(_decode_fields(content))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = value_of(content)
    if isinstance(value, Invalid):
        # Readers skip the name of an unknown field, whatever its bytes are.
        value = value_of(content.decode(errors="surrogateescape").encode(errors="surrogatepass"))
    return {name: Raw(exact(each)) for name, each in value.items()} if isinstance(value, dict) else {}


def rewritten(content: bytes, known: Mapping[str, Any]) -> bytes:
    """Return the object with these fields changed and all others and the order kept; None drops a field."""
    fields = fields_of(content)
    fields.update(known)
    return object_bytes(
        {name: value for name, value in fields.items() if value is not None or name not in known}
    )


def object_bytes(fields: Mapping[str, Any]) -> bytes:
    """Encode a JSON object of plain values and raw JSON."""
    return b"{%b}" % b",".join(b"%b:%b" % (dump(name), _bytes(value)) for name, value in fields.items())


def exact(value: Any) -> bytes:
    """Encode a value of `parse_json` exactly, with NaN and infinity, which `encode_json` cannot write."""
    import json

    return json.dumps(value, separators=(",", ":")).encode()


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, Raw) else dump(value)


def for_people(content: bytes) -> bytes:
    """Return the same JSON, indented if possible."""
    try:
        return msgspec.json.format(content, indent=2) + b"\n"
    except (msgspec.DecodeError, RecursionError):
        return content + b"\n"
