"""JSON Schema validation that reports where and why a value does not match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, TypeGuard

_MAX_VIOLATIONS = 10
_MAX_DEPTH = 100
_BASE_CHECKS, _CHECKS_PER_VALUE = 20_000, 10
"""Limit of checks of a value against a part of the schema: a base, and more for each part of the value.
Choices that refer to each other would be checked forever."""
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list | tuple),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool)
        and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}


def find_schema_violations(value: Any, schema: Any) -> list[str]:
    """Return a sentence for each of the first few mismatches; empty if the value is valid.

    Unsupported keywords, such as `format`, and malformed parts of the schema are taken as satisfied.
    """
    found: list[str] = []
    for violation in _JsonSchemaValidator(
        schema, _BASE_CHECKS + _CHECKS_PER_VALUE * _count_nested_values(value)
    ).validate_value(value, schema, "", 0):
        found.append(violation)
        if len(found) == _MAX_VIOLATIONS:
            break
    return found


class _JsonSchemaValidator:
    def __init__(self, root: Any, max_checks: int) -> None:
        self._root = root
        self._checks = 0
        self._max_checks = max_checks

    def validate_value(self, value: Any, schema: Any, path: str, depth: int) -> Iterator[str]:
        self._checks += 1
        is_too_deep = depth > _MAX_DEPTH or self._checks > self._max_checks
        if schema is False or is_too_deep:
            yield f"{path or 'the value'}: nothing is allowed here"
        if not isinstance(schema, Mapping) or is_too_deep:
            return
        if isinstance(ref := schema.get("$ref"), str):
            yield from self.validate_value(value, self._resolve_ref(ref), path, depth + 1)
        yield from _validate_type_enum_and_const(value, schema, path)
        if isinstance(value, Mapping):
            yield from self._validate_object(value, schema, path, depth)
        elif isinstance(value, list | tuple):
            yield from self._validate_array(value, schema, path, depth)
        elif isinstance(value, str):
            yield from _validate_string(value, schema, path)
        elif _TYPES["number"](value):
            yield from _validate_number(value, schema, path)
        yield from self._validate_combinators(value, schema, path, depth)

    def _is_valid(self, value: Any, schema: Any, depth: int) -> bool:
        return next(self.validate_value(value, schema, "", depth + 1), None) is None

    def _validate_combinators(
        self, value: Any, schema: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        location = path or "the value"
        for subschema in _get_schema_list(schema, "allOf"):
            yield from self.validate_value(value, subschema, path, depth + 1)
        choices = _get_schema_list(schema, "anyOf")
        if choices and not any(self._is_valid(value, each, depth) for each in choices):
            yield f"{location}: it fits none of the {len(choices)} choices"
        if choices := _get_schema_list(schema, "oneOf"):
            match_count = sum(self._is_valid(value, each, depth) for each in choices)
            if match_count != 1:
                yield f"{location}: it has to fit one of {len(choices)} choices, and fits {match_count}"
        if "not" in schema and self._is_valid(value, schema["not"], depth):
            yield f"{location}: this value is not allowed"

    def _validate_object(
        self, value: Mapping[str, Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        properties, patterns = (
            _get_schema_mapping(schema, "properties"),
            _get_schema_mapping(schema, "patternProperties"),
        )
        for name in _get_schema_list(schema, "required"):
            if isinstance(name, str) and name not in value:
                yield f"{_join_property_path(path, name)}: it is missing"
        for name, item in value.items():
            subschemas = [
                part for pattern, part in patterns.items() if _matches_schema_pattern(pattern, name)
            ]
            if name in properties:
                subschemas.append(properties[name])
            if not subschemas and "additionalProperties" in schema:
                if schema["additionalProperties"] is False:
                    yield f"{_join_property_path(path, name)}: there is no such field"
                subschemas = [schema["additionalProperties"]] if schema["additionalProperties"] else []
            for subschema in subschemas:
                yield from self.validate_value(item, subschema, _join_property_path(path, name), depth + 1)
        yield from _validate_size_limits(
            len(value), schema, ("minProperties", "maxProperties"), path, "fields"
        )

    def _validate_array(
        self, value: Sequence[Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        prefix_schemas = _get_schema_list(schema, "prefixItems")
        for index, item in enumerate(value):
            subschema = prefix_schemas[index] if index < len(prefix_schemas) else schema.get("items", True)
            yield from self.validate_value(item, subschema, f"{path}[{index}]", depth + 1)
        if schema.get("uniqueItems") and len({_to_comparable_json(each) for each in value}) < len(value):
            yield f"{path or 'the value'}: an item stands in it twice"
        yield from _validate_size_limits(len(value), schema, ("minItems", "maxItems"), path, "items")

    def _resolve_ref(self, ref: str) -> Any:
        """Resolve a reference in the same document; one that cannot be resolved accepts everything."""
        node = self._root
        for step in ref.removeprefix("#").strip("/").split("/") if ref not in ("#", "#/") else ():
            step = step.replace("~1", "/").replace("~0", "~")  # noqa: PLW2901 - escapes of JSON Pointer
            if not isinstance(node, Mapping) or step not in node:
                return True
            node = node[step]
        return node


def _validate_type_enum_and_const(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    location = path or "the value"
    type_name = schema.get("type")
    type_names = [type_name] if isinstance(type_name, str) else _get_schema_list(schema, "type")
    kinds = [each for each in type_names if isinstance(each, str)]
    if kinds and not any(_TYPES.get(kind, lambda _: True)(value) for kind in kinds):
        yield f"{location}: {' or '.join(kinds)} is expected, not {_short_repr(value)}"
    choices = schema.get("enum")
    if isinstance(choices, list | tuple) and not any(_is_json_equal(value, each) for each in choices):
        yield f"{location}: {_short_repr(value)} is none of {', '.join(map(_short_repr, choices))}"
    if "const" in schema and not _is_json_equal(value, schema["const"]):
        yield f"{location}: {_short_repr(schema['const'])} is expected, not {_short_repr(value)}"


def _validate_string(value: str, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    yield from _validate_size_limits(len(value), schema, ("minLength", "maxLength"), path, "characters")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches_schema_pattern(pattern, value):
        yield f"{path or 'the value'}: {_short_repr(value)} does not match {pattern}"


def _validate_number(value: float, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    location = path or "the value"
    for key, is_violated, wording in _BOUNDS:
        bound = schema.get(key)
        if _is_json_number(bound) and is_violated(value, bound):
            yield f"{location}: {value} is {wording} {bound}"
    step = schema.get("multipleOf")
    if _is_json_number(step) and step > 0 and not _is_multiple(value, step):
        yield f"{location}: {value} is no multiple of {step}"


_BOUNDS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", lt, "less than"),
    ("maximum", gt, "more than"),
    ("exclusiveMinimum", le, "not more than"),
    ("exclusiveMaximum", ge, "not less than"),
)


def _is_json_number(value: Any) -> TypeGuard[float]:
    return _TYPES["number"](value)


def _is_multiple(value: float, step: float) -> bool:
    try:
        return abs(value / step - round(value / step)) <= 1e-9
    except (OverflowError, ValueError):  # out of range
        return True


def _matches_schema_pattern(pattern: str, text: str) -> bool:
    """Return True if the pattern matches; a pattern that is invalid in Python is taken as matching."""
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError, RecursionError):
        return True


def _get_schema_list(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = schema.get(key)
    return value if isinstance(value, list | tuple) else ()


def _get_schema_mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, Mapping) else {}


def _validate_size_limits(
    size: int, schema: Mapping[str, Any], keys: tuple[str, str], path: str, noun: str
) -> Iterator[str]:
    minimum, maximum = schema.get(keys[0]), schema.get(keys[1])
    if _is_json_number(minimum) and size < minimum:
        yield f"{path or 'the value'}: {size} {noun} are fewer than {minimum}"
    if _is_json_number(maximum) and size > maximum:
        yield f"{path or 'the value'}: {size} {noun} are more than {maximum}"


def _count_nested_values(value: Any) -> int:
    """Return the number of values it consists of."""
    size, pending = 0, [value]
    while pending:
        size += 1
        match pending.pop():
            case list() | tuple() as items:
                pending += items
            case Mapping() as fields:
                pending += fields.values()
    return size


def _is_json_equal(one: Any, other: Any) -> bool:
    return bool(_to_comparable_json(one) == _to_comparable_json(other))


def _to_comparable_json(value: Any, depth: int = 0) -> Any:
    """Return a comparable form: in JSON true is not 1 at any depth, and 1 is 1.0."""
    match value:
        case bool():
            return bool, value
        case list() | tuple() | Mapping() if depth > _MAX_DEPTH:
            return None  # deeper values are not compared
        case list() | tuple():
            return tuple([_to_comparable_json(each, depth + 1) for each in value])
        case Mapping():
            return frozenset([(name, _to_comparable_json(each, depth + 1)) for name, each in value.items()])
        case _:
            return value


def _join_property_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
