"""JSON Schema in the form every provider accepts: inlined, without titles and references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_NULL = {"type": "null"}


def build_tool_argument_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    schema = msgspec.json.schema(arguments)
    definitions = schema.pop("$defs", {})
    inlined = _inline_schema_references(schema, definitions, ())
    inlined.pop("description", None)
    inlined.setdefault("required", [])
    return inlined


def _inline_schema_references(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...]
) -> dict[str, Any]:
    inlined: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref":
            name = value.rsplit("/", 1)[-1]
            if name in path:
                raise TypeError(f"{name} contains itself; a tool's arguments cannot be recursive")
            inlined = {**_inline_schema_references(definitions[name], definitions, (*path, name)), **inlined}
        elif key == "properties":
            inlined[key] = {
                name: _simplify_schema_property(field, definitions, path) for name, field in value.items()
            }
        elif key in ("anyOf", "prefixItems"):
            inlined[key] = [_inline_schema_references(choice, definitions, path) for choice in value]
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            inlined[key] = _inline_schema_references(value, definitions, path)
        elif key != "title":
            inlined[key] = value
    # Some providers reject an enum without a type.
    if all(isinstance(value, str) for value in inlined.get("enum", (None,))):
        inlined.setdefault("type", "string")
    return inlined


def _simplify_schema_property(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...]
) -> dict[str, Any]:
    """Make an optional argument omittable, not null: models prefer "integer" to "integer or null"."""
    simplified = _inline_schema_references(schema, definitions, path)
    if simplified.get("default", ...) is not None:
        return simplified
    del simplified["default"]
    choices = [choice for choice in simplified.get("anyOf", ()) if choice != _NULL]
    if len(choices) == 1:
        del simplified["anyOf"]
        simplified = {**choices[0], **simplified}
    elif choices:
        simplified["anyOf"] = choices
    if None in simplified.get("enum", ()):
        simplified["enum"] = [value for value in simplified["enum"] if value is not None]
        simplified.setdefault("type", "string")
    return simplified
