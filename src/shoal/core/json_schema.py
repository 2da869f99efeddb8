"""JSON Schema validation that reports where and why a value does not match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, TypeGuard

_MOST = 10
_DEEPEST = 100
_MOST_LOOKS, _MORE_LOOKS = 20_000, 10
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


def misfits(value: Any, schema: Any) -> list[str]:
    """Return a sentence for each of the first few mismatches; empty if the value is valid.

    Unsupported keywords, such as `format`, and malformed parts of the schema are taken as satisfied.
    """
    found: list[str] = []
    for misfit in _Check(schema, _MOST_LOOKS + _MORE_LOOKS * _size(value)).of(value, schema, "", 0):
        found.append(misfit)
        if len(found) == _MOST:
            break
    return found


class _Check:
    def __init__(self, root: Any, most_looks: int) -> None:
        self._root = root
        self._looks = 0
        self._most_looks = most_looks

    def of(self, value: Any, schema: Any, at: str, depth: int) -> Iterator[str]:
        self._looks += 1
        endless = depth > _DEEPEST or self._looks > self._most_looks
        if schema is False or endless:
            yield f"{at or 'the value'}: nothing is allowed here"
        if not isinstance(schema, Mapping) or endless:
            return
        if isinstance(ref := schema.get("$ref"), str):
            yield from self.of(value, self._found(ref), at, depth + 1)
        yield from _kind(value, schema, at)
        if isinstance(value, Mapping):
            yield from self._object(value, schema, at, depth)
        elif isinstance(value, list | tuple):
            yield from self._array(value, schema, at, depth)
        elif isinstance(value, str):
            yield from _text(value, schema, at)
        elif _TYPES["number"](value):
            yield from _number(value, schema, at)
        yield from self._together(value, schema, at, depth)

    def _fits(self, value: Any, schema: Any, depth: int) -> bool:
        return next(self.of(value, schema, "", depth + 1), None) is None

    def _together(self, value: Any, schema: Mapping[str, Any], at: str, depth: int) -> Iterator[str]:
        here = at or "the value"
        for part in _list(schema, "allOf"):
            yield from self.of(value, part, at, depth + 1)
        choices = _list(schema, "anyOf")
        if choices and not any(self._fits(value, each, depth) for each in choices):
            yield f"{here}: it fits none of the {len(choices)} choices"
        if choices := _list(schema, "oneOf"):
            fitting = sum(self._fits(value, each, depth) for each in choices)
            if fitting != 1:
                yield f"{here}: it has to fit one of {len(choices)} choices, and fits {fitting}"
        if "not" in schema and self._fits(value, schema["not"], depth):
            yield f"{here}: it is what it must not be"

    def _object(
        self, value: Mapping[str, Any], schema: Mapping[str, Any], at: str, depth: int
    ) -> Iterator[str]:
        known, patterns = _mapping(schema, "properties"), _mapping(schema, "patternProperties")
        for name in _list(schema, "required"):
            if isinstance(name, str) and name not in value:
                yield f"{_below(at, name)}: it is missing"
        for name, each in value.items():
            matching = [part for pattern, part in patterns.items() if _matches(pattern, name)]
            if name in known:
                matching.append(known[name])
            if not matching and "additionalProperties" in schema:
                if schema["additionalProperties"] is False:
                    yield f"{_below(at, name)}: there is no such field"
                matching = [schema["additionalProperties"]] if schema["additionalProperties"] else []
            for part in matching:
                yield from self.of(each, part, _below(at, name), depth + 1)
        yield from _count(len(value), schema, ("minProperties", "maxProperties"), at, "fields")

    def _array(self, value: Sequence[Any], schema: Mapping[str, Any], at: str, depth: int) -> Iterator[str]:
        first = _list(schema, "prefixItems")
        for number, each in enumerate(value):
            part = first[number] if number < len(first) else schema.get("items", True)
            yield from self.of(each, part, f"{at}[{number}]", depth + 1)
        if schema.get("uniqueItems") and len({_as_json(each) for each in value}) < len(value):
            yield f"{at or 'the value'}: an item stands in it twice"
        yield from _count(len(value), schema, ("minItems", "maxItems"), at, "items")

    def _found(self, ref: str) -> Any:
        """Resolve a reference in the same document; one that cannot be resolved accepts everything."""
        here = self._root
        for step in ref.removeprefix("#").strip("/").split("/") if ref not in ("#", "#/") else ():
            step = step.replace("~1", "/").replace("~0", "~")  # noqa: PLW2901 - escapes of JSON Pointer
            if not isinstance(here, Mapping) or step not in here:
                return True
            here = here[step]
        return here


def _kind(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    here = at or "the value"
    named = schema.get("type")
    listed = [named] if isinstance(named, str) else _list(schema, "type")
    kinds = [each for each in listed if isinstance(each, str)]
    if kinds and not any(_TYPES.get(kind, lambda _: True)(value) for kind in kinds):
        yield f"{here}: {' or '.join(kinds)} is expected, not {_short(value)}"
    choices = schema.get("enum")
    if isinstance(choices, list | tuple) and not any(_same(value, each) for each in choices):
        yield f"{here}: {_short(value)} is none of {', '.join(map(_short, choices))}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{here}: {_short(schema['const'])} is expected, not {_short(value)}"


def _text(value: str, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    yield from _count(len(value), schema, ("minLength", "maxLength"), at, "characters")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        yield f"{at or 'the value'}: {_short(value)} does not match {pattern}"


def _number(value: float, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    here = at or "the value"
    for key, wrong, what in _BOUNDS:
        bound = schema.get(key)
        if _is_number(bound) and wrong(value, bound):
            yield f"{here}: {value} is {what} {bound}"
    step = schema.get("multipleOf")
    if _is_number(step) and step > 0 and not _is_multiple(value, step):
        yield f"{here}: {value} is no multiple of {step}"


_BOUNDS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", lt, "less than"),
    ("maximum", gt, "more than"),
    ("exclusiveMinimum", le, "not more than"),
    ("exclusiveMaximum", ge, "not less than"),
)


def _is_number(value: Any) -> TypeGuard[float]:
    return _TYPES["number"](value)


def _is_multiple(value: float, step: float) -> bool:
    try:
        return abs(value / step - round(value / step)) <= 1e-9
    except (OverflowError, ValueError):  # out of range
        return True


def _matches(pattern: str, text: str) -> bool:
    """Return True if the pattern matches; a pattern that is invalid in Python is taken as matching."""
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError, RecursionError):
        return True


def _list(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = schema.get(key)
    return value if isinstance(value, list | tuple) else ()


def _mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, Mapping) else {}


def _count(size: int, schema: Mapping[str, Any], keys: tuple[str, str], at: str, of: str) -> Iterator[str]:
    least, most = schema.get(keys[0]), schema.get(keys[1])
    if _is_number(least) and size < least:
        yield f"{at or 'the value'}: {size} {of} are fewer than {least}"
    if _is_number(most) and size > most:
        yield f"{at or 'the value'}: {size} {of} are more than {most}"


def _size(value: Any) -> int:
    """Return the number of values it consists of."""
    size, left = 0, [value]
    while left:
        size += 1
        match left.pop():
            case list() | tuple() as items:
                left += items
            case Mapping() as fields:
                left += fields.values()
    return size


def _same(one: Any, other: Any) -> bool:
    return bool(_as_json(one) == _as_json(other))


def _as_json(value: Any, depth: int = 0) -> Any:
    """Return a comparable form: in JSON true is not 1 at any depth, and 1 is 1.0."""
    match value:
        case bool():
            return bool, value
        case list() | tuple() | Mapping() if depth > _DEEPEST:
            return None  # deeper values are not compared
        case list() | tuple():
            return tuple([_as_json(each, depth + 1) for each in value])
        case Mapping():
            return frozenset([(name, _as_json(each, depth + 1)) for name, each in value.items()])
        case _:
            return value


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
