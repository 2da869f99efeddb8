"""JSON Schema validation (drafts 7 and 2020-12) that reports where and why a value does not match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import ge, gt, le, lt
from types import UnionType
from typing import Any

_MAX_VIOLATIONS = 10
_MAX_DEPTH = 100
_BASE_CHECKS, _CHECKS_PER_VALUE = 20_000, 10
"""Limit on checks of a value against a part of the schema: a base, plus more for each part of the value.
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
_FORMS: Mapping[str, type | UnionType | tuple[()]] = {
    **dict.fromkeys(("allOf", "anyOf", "enum", "oneOf", "prefixItems", "required"), list | tuple),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "patternProperties", "properties"), Mapping),
    **dict.fromkeys(("minLength", "minItems", "minProperties", "minContains", "minimum"), int | float),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties", "maxContains", "maximum"), int | float),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum", "multipleOf"), int | float),
    **dict.fromkeys(("$ref", "pattern"), str),
    **dict.fromkeys(("$dynamicRef", "$recursiveRef", "dependencies"), ()),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), ()),
}
"""Form that a keyword must have; no value has the form `()`, so these keywords are not supported."""
_PARTS = frozenset(
    (
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
    )
)
_LISTS_OF_PARTS = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_MAPPINGS_OF_PARTS = frozenset(
    ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
)


class _UnusableSchemaError(Exception):
    """A part of the schema is malformed or not supported."""


def find_schema_violations(value: Any, schema: Any) -> list[str]:
    """Return a sentence for each of the first few mismatches; empty if the value is valid.

    Unknown keywords and `format` are annotations. A value that meets an unusable part does not match.
    """
    max_checks = _BASE_CHECKS + _CHECKS_PER_VALUE * _count_nested_values(value)
    violations = _JsonSchemaValidator(schema, max_checks).validate_value(value, schema, "", 0)
    try:
        return list(islice(violations, _MAX_VIOLATIONS))
    except (_UnusableSchemaError, re.error, OverflowError, RecursionError) as error:
        return [f"the schema cannot be used: {error}"]


def find_schema_problem(schema: Any) -> str:
    """Return the first part of a schema that no value could match, and why; empty if there is none."""
    validator, remaining = _JsonSchemaValidator(schema, 0), [("", schema, 0)]
    while remaining:
        path, part, depth = remaining.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, Mapping):
            return f"{path or 'the schema'}: expected a JSON Schema, got {_short_repr(part)}"
        if depth > _MAX_DEPTH:
            return f"{path}: it has more than {_MAX_DEPTH} levels"
        if problem := _find_keyword_problem(validator, part, path):
            return problem
        remaining += ((name, each, depth + 1) for name, each in _iter_parts(part, path))
    return ""


def _find_keyword_problem(validator: _JsonSchemaValidator, schema: Mapping[str, Any], path: str) -> str:
    for key in schema:
        if key in _FORMS and not isinstance(schema[key], _FORMS[key]):
            return f"{_join_property_path(path, key)}: it is malformed or not supported"
    try:
        validator.check_references(schema)
        for pattern in (schema.get("pattern", ""), *schema.get("patternProperties", {})):
            re.compile(pattern)
    except (_UnusableSchemaError, re.error, TypeError) as error:
        return f"{path or 'the schema'}: {error}"
    kinds = schema.get("type", ())
    for kind in kinds if isinstance(kinds, list | tuple) else (kinds,):
        if not isinstance(kind, str) or kind not in _TYPES:
            types = ", ".join(_TYPES)
            return f"{_join_property_path(path, 'type')}: {_short_repr(kind)} is not one of {types}"
    return ""


def _iter_parts(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the schemas in a schema with their paths."""
    for key, value in schema.items():
        key_path = _join_property_path(path, key)
        if key in _MAPPINGS_OF_PARTS and isinstance(value, Mapping):
            yield from ((_join_property_path(key_path, name), each) for name, each in value.items())
        elif key in _LISTS_OF_PARTS and isinstance(value, list | tuple):
            yield from ((f"{key_path}[{index}]", each) for index, each in enumerate(value))
        elif key in _PARTS:
            yield key_path, value


class _JsonSchemaValidator:
    def __init__(self, root: Any, max_checks: int) -> None:
        self._root = root
        self._checks = 0
        self._max_checks = max_checks

    def validate_value(self, value: Any, schema: Any, path: str, depth: int) -> Iterator[str]:
        self._checks += 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or self._checks > self._max_checks:
            if schema is not True:
                yield f"{path or 'the value'}: nothing is allowed here"
            return
        for key in schema:
            if key in _FORMS and not isinstance(schema[key], _FORMS[key]):
                raise _UnusableSchemaError(f"{key} is malformed or not supported")
        if "$ref" in schema:
            yield from self.validate_value(value, self._resolve_ref(schema["$ref"]), path, depth + 1)
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
        for subschema in schema.get("allOf", ()):
            yield from self.validate_value(value, subschema, path, depth + 1)
        choices = schema.get("anyOf")
        if choices is not None and not any(self._is_valid(value, each, depth) for each in choices):
            yield f"{location}: it matches none of the {len(choices)} choices"
        if (choices := schema.get("oneOf")) is not None:
            match_count = sum(self._is_valid(value, each, depth) for each in choices)
            if match_count != 1:
                yield (
                    f"{location}: it must match exactly one of {len(choices)} choices, but matches "
                    f"{match_count}"
                )
        if "not" in schema and self._is_valid(value, schema["not"], depth):
            yield f"{location}: this value is not allowed"
        if "if" in schema:
            branch = "then" if self._is_valid(value, schema["if"], depth) else "else"
            yield from self.validate_value(value, schema.get(branch, True), path, depth + 1)

    def _validate_object(
        self, value: Mapping[str, Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name in schema.get("required", ()):
            if not isinstance(name, str) or name not in value:
                yield f"{_join_property_path(path, name)}: it is missing"
        dependents = [
            (key, {"required": names}) for key, names in schema.get("dependentRequired", {}).items()
        ]
        for key, subschema in (*dependents, *schema.get("dependentSchemas", {}).items()):
            yield from self.validate_value(value, key not in value or subschema, path, depth + 1)
        for name, item in value.items():
            item_path = _join_property_path(path, name)
            if "propertyNames" in schema:
                yield from self.validate_value(name, schema["propertyNames"], item_path, depth + 1)
            subschemas = [part for pattern, part in patterns.items() if re.search(pattern, name)]
            if name in properties:
                subschemas.append(properties[name])
            if not subschemas and schema.get("additionalProperties") is False:
                yield f"{item_path}: there is no such field"
            elif not subschemas and "additionalProperties" in schema:
                subschemas.append(schema["additionalProperties"])
            for subschema in subschemas:
                yield from self.validate_value(item, subschema, item_path, depth + 1)
        yield from _validate_size_limits(
            len(value), schema, ("minProperties", "maxProperties"), path, "fields"
        )

    def _validate_array(
        self, value: Sequence[Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        prefix_schemas, rest_schema = schema.get("prefixItems", ()), schema.get("items", True)
        if isinstance(rest_schema, list | tuple):  # draft 7
            prefix_schemas, rest_schema = rest_schema, schema.get("additionalItems", True)
        for index, item in enumerate(value):
            subschema = prefix_schemas[index] if index < len(prefix_schemas) else rest_schema
            yield from self.validate_value(item, subschema, f"{path}[{index}]", depth + 1)
        if schema.get("uniqueItems") and len({_to_comparable_json(each) for each in value}) < len(value):
            yield f"{path or 'the value'}: an item is repeated"
        yield from _validate_size_limits(len(value), schema, ("minItems", "maxItems"), path, "items")
        if "contains" in schema:
            count = sum(self._is_valid(item, schema["contains"], depth) for item in value)
            limits = {"minContains": 1, **schema}
            yield from _validate_size_limits(count, limits, ("minContains", "maxContains"), path, "fitting")

    def check_references(self, schema: Mapping[str, Any]) -> None:
        """Raise `_UnusableSchemaError` if a reference names nothing or leads back to itself."""
        seen: list[Any] = []
        part: Any = schema
        while isinstance(part, Mapping) and "$ref" in part:
            if any(part is each for each in seen):
                raise _UnusableSchemaError(f"$ref {part['$ref']} refers to itself")
            seen.append(part)
            part = self._resolve_ref(str(part["$ref"]))

    def _resolve_ref(self, ref: str) -> Any:
        """Resolve a JSON Pointer in the same document."""
        node = self._root
        mark, *steps = ref.split("/") if ref != "#/" else ["#"]
        try:
            for step in steps:
                name = step.replace("~1", "/").replace("~0", "~")
                node = node[name] if isinstance(node, Mapping) else node[int(name)]
        except (LookupError, TypeError, ValueError):
            mark = ""
        if mark != "#":
            raise _UnusableSchemaError(f"the schema has no {ref}")
        return node


def _validate_type_enum_and_const(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    location = path or "the value"
    type_names = schema.get("type", ())
    kinds = [str(each) for each in (type_names if isinstance(type_names, list | tuple) else [type_names])]
    if "type" in schema and not any(kind in _TYPES and _TYPES[kind](value) for kind in kinds):
        yield f"{location}: expected {' or '.join(kinds)}, got {_short_repr(value)}"
    choices = schema.get("enum")
    if choices is not None and not any(_is_json_equal(value, each) for each in choices):
        yield f"{location}: {_short_repr(value)} is not one of {', '.join(map(_short_repr, choices))}"
    if "const" in schema and not _is_json_equal(value, schema["const"]):
        yield f"{location}: expected {_short_repr(schema['const'])}, got {_short_repr(value)}"


def _validate_string(value: str, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    yield from _validate_size_limits(len(value), schema, ("minLength", "maxLength"), path, "characters")
    pattern = schema.get("pattern")
    if pattern is not None and not re.search(pattern, value):
        yield f"{path or 'the value'}: {_short_repr(value)} does not match {pattern}"


def _validate_number(value: float, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    location = path or "the value"
    for key, is_violated, wording in _BOUNDS:
        bound = schema.get(key)
        if bound is not None and is_violated(value, bound):
            yield f"{location}: {value} is {wording} {bound}"
    step = schema.get("multipleOf")
    if step is not None and (step <= 0 or not _is_multiple(value, step)):
        yield f"{location}: {value} is not a multiple of {step}"


_BOUNDS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", lt, "less than"),
    ("maximum", gt, "more than"),
    ("exclusiveMinimum", le, "not more than"),
    ("exclusiveMaximum", ge, "not less than"),
)


def _is_multiple(value: float, step: float) -> bool:
    try:
        return abs(value / step - round(value / step)) <= 1e-9
    except (OverflowError, ValueError):  # out of range
        return True


def _validate_size_limits(
    size: int, schema: Mapping[str, Any], keys: tuple[str, str], path: str, noun: str
) -> Iterator[str]:
    minimum, maximum = schema.get(keys[0]), schema.get(keys[1])
    if minimum is not None and size < minimum:
        yield f"{path or 'the value'}: it has {size} {noun}, but needs at least {minimum}"
    if maximum is not None and size > maximum:
        yield f"{path or 'the value'}: it has {size} {noun}, but may have at most {maximum}"


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
