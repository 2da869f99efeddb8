"""JSON files shared with other programs: parsed defensively, rewritten without losing their fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.wire.json_codec import decode_json, encode_json, encode_strict_json

_T = TypeVar("_T")
_LONE_SURROGATE = compile_on_first_use("[\ud800-\udfff]")
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class InvalidFileContent(Struct, frozen=True):
    """A file with invalid content. It may be half written: read it again under the lock."""

    reason: str


class RejectedFileEntry(Struct, frozen=True, kw_only=True):
    """An invalid part of an otherwise valid file."""

    raw: bytes
    reason: str


def parse_foreign_json(content: bytes) -> Any:
    """Return the JSON value or `InvalidFileContent`; a byte order mark and lone surrogates are accepted."""
    if not content.strip():
        return InvalidFileContent("it is empty")
    try:
        return decode_json(content)
    except UnicodeDecodeError as error:
        return InvalidFileContent(f"it is not valid UTF-8: {error}")
    except ValueError as error:
        return InvalidFileContent(f"it is not valid JSON: {error}")
    except RecursionError:
        return InvalidFileContent("it is nested too deeply")


def describe_validation_error(error: msgspec.ValidationError) -> str:
    """Return the validation error as part of a sentence."""
    text = str(error)
    return text[:1].lower() + text[1:]


def convert_to_schema(value: Any, schema: type[_T]) -> _T:
    """Convert the value to the schema; raise `msgspec.ValidationError` if it does not fit."""
    try:
        return msgspec.convert(value, schema)
    except UnicodeEncodeError:
        pass  # msgspec fails at names with lone surrogates; none of our names has one
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if not _LONE_SURROGATE.search(name)}
    try:
        return msgspec.convert(value, schema)
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError(f"The name of a field is not a string: {error}") from error


def decode_to_schema(content: bytes, schema: Any) -> Any:
    """Decode the content with the decoder of the schema, which is built once; raise ValueError.

    A decoder fails at lone surrogates, which `encode_json` writes for names that are not UTF-8: then the
    content is decoded in two steps.
    """
    try:
        return _get_decoder(schema).decode(content)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = decode_json(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return convert_to_schema(value, schema)


@cache
def _get_decoder(schema: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(schema)


def parse_raw_json_fields(content: bytes) -> dict[str, Any]:
    """Return the raw fields of a JSON object, ready to be written unchanged; empty if it is not an object."""
    try:
        return dict(_decode_fields(content))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = parse_foreign_json(content)
    if isinstance(value, InvalidFileContent):
        # Readers skip the name of an unknown field, whatever its bytes are.
        value = parse_foreign_json(content.decode(errors="surrogateescape").encode(errors="surrogatepass"))
    return (
        {name: Raw(encode_json_exactly(each)) for name, each in value.items()}
        if isinstance(value, dict)
        else {}
    )


def update_json_fields(content: bytes, changes: Mapping[str, Any]) -> bytes:
    """Return the object with these fields changed and all others and the order kept; None drops a field."""
    fields = parse_raw_json_fields(content)
    fields.update(changes)
    return encode_json_object(
        {name: value for name, value in fields.items() if value is not None or name not in changes}
    )


def encode_json_object(fields: Mapping[str, Any]) -> bytes:
    """Encode a JSON object of plain values and raw JSON."""
    try:
        return encode_strict_json(fields)
    except UnicodeEncodeError:  # lone surrogates, of which only one value may have some
        return b"{%b}" % b",".join(
            b"%b:%b" % (encode_json(name), _encode_json_or_raw(value)) for name, value in fields.items()
        )


def encode_json_exactly(value: Any) -> bytes:
    """Encode a value of `parse_foreign_json` exactly, with NaN and infinity, unlike `encode_json`."""
    import json

    return json.dumps(value, separators=(",", ":")).encode()


def _encode_json_or_raw(value: Any) -> bytes:
    return bytes(value) if isinstance(value, Raw) else encode_json(value)


def indent_json(content: bytes) -> bytes:
    """Return the same JSON, indented if possible."""
    try:
        return msgspec.json.format(content, indent=2) + b"\n"
    except (msgspec.DecodeError, RecursionError):
        return content + b"\n"
