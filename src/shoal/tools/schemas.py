"""JSON Schema in the form every provider accepts: inlined, without titles and references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_NULL = {"type": "null"}


def plain_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    schema = msgspec.json.schema(arguments)
    named = schema.pop("$defs", {})
    plain = _inlined(schema, named, ())
    plain.pop("description", None)
    plain.setdefault("required", [])
    return plain


def _inlined(schema: Mapping[str, Any], named: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref":
            name = value.rsplit("/", 1)[-1]
            if name in inside:
                raise TypeError(f"{name} contains itself; a tool's arguments cannot be recursive")
            plain = {**_inlined(named[name], named, (*inside, name)), **plain}
        elif key == "properties":
            plain[key] = {name: _property(field, named, inside) for name, field in value.items()}
        elif key in ("anyOf", "prefixItems"):
            plain[key] = [_inlined(choice, named, inside) for choice in value]
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            plain[key] = _inlined(value, named, inside)
        elif key != "title":
            plain[key] = value
    # Some providers reject an enum without a type.
    if all(isinstance(value, str) for value in plain.get("enum", (None,))):
        plain.setdefault("type", "string")
    return plain


def _property(schema: Mapping[str, Any], named: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    """Make an optional argument omittable, not null: models prefer "integer" to "integer or null"."""
    plain = _inlined(schema, named, inside)
    if plain.get("default", ...) is not None:
        return plain
    del plain["default"]
    choices = [choice for choice in plain.get("anyOf", ()) if choice != _NULL]
    if len(choices) == 1:
        del plain["anyOf"]
        plain = {**choices[0], **plain}
    elif choices:
        plain["anyOf"] = choices
    if None in plain.get("enum", ()):
        plain["enum"] = [value for value in plain["enum"] if value is not None]
        plain.setdefault("type", "string")
    return plain
