"""Lenient parsing of tool arguments, with readable messages for arguments that cannot be parsed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.core.requests import ToolSchema

_AT = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<where>.*)`)?$", re.DOTALL)
_LONGEST_VALUE = 60
_ARTICLES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Name that the model uses."""
    field: str
    """Name that the function uses."""
    type: Any
    default: Any

    @property
    def required(self) -> bool:
        return self.default is msgspec.NODEFAULT


class _Unreadable(Exception):
    pass


def read_leniently(
    schema: ToolSchema, parameters: Mapping[str, Parameter], arguments: Mapping[str, Any]
) -> dict[str, Any] | str:
    """Return the arguments by field, with `"5"` accepted for 5, or a text that lists everything wrong."""
    read: dict[str, Any] = {}
    problems: list[str] = []
    # A tool may accept more inputs than it shows the model.
    shown: Mapping[str, Any] = schema.input_schema["properties"]
    for name, value in arguments.items():
        parameter = parameters.get(name)
        if parameter is None:
            problems.append(_unknown(name, schema.name, parameters))
            continue
        try:
            read[parameter.field] = _value(value, parameter, shown.get(name, {}))
        except _Unreadable as problem:
            problems.append(str(problem))
    for name, parameter in parameters.items():
        if name in arguments:
            continue
        if parameter.required:
            problems.append(f"`{name}` is missing: {_expected(shown.get(name, {}))}.")
        else:
            read.setdefault(parameter.field, parameter.default)
    if not problems:
        return read
    listed = "\n".join(f"- {problem}" for problem in problems)
    return f"{schema.name} was not run, its arguments are wrong:\n{listed}\n{_known(schema)}"


def _value(value: Any, parameter: Parameter, schema: Mapping[str, Any]) -> Any:
    try:
        return msgspec.convert(value, parameter.type)
    except msgspec.ValidationError as strict:
        first = strict
    try:
        return msgspec.convert(value, parameter.type, strict=False)
    except msgspec.ValidationError:
        pass
    # Some models send lists and objects as a JSON string.
    if isinstance(value, str) and schema.get("type") in ("array", "object"):
        try:
            return msgspec.json.decode(value, type=parameter.type)
        except msgspec.DecodeError:
            pass
    raise _Unreadable(_wrong(parameter.name, value, schema, first))


def _wrong(name: str, value: Any, schema: Mapping[str, Any], error: msgspec.ValidationError) -> str:
    found = _AT.match(str(error))
    what, where = (found["what"], found["where"]) if found else (str(error), None)
    if where:
        return f"`{name}{where}`: {what[:1].lower()}{what[1:]}."
    return f"`{name}`: {_expected(schema)}, got {_got(value)}."


def _unknown(name: str, tool: str, parameters: Mapping[str, Parameter]) -> str:
    import difflib

    close = difflib.get_close_matches(name, parameters, n=1)
    meant = f" Did you mean `{close[0]}`?" if close else ""
    return f"`{_short(name)}` is not an argument of {tool}.{meant}"


def _expected(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "expected one of " + ", ".join(msgspec.json.encode(v).decode() for v in schema["enum"])
    if "anyOf" in schema:
        return "expected " + " or ".join(_expected(c).removeprefix("expected ") for c in schema["anyOf"])
    words = _ARTICLES.get(schema.get("type", ""), "a value")
    bounds = [
        f"{said} {schema[key]}"
        for key, said in (
            ("minimum", "at least"),
            ("maximum", "at most"),
            ("exclusiveMinimum", "more than"),
            ("exclusiveMaximum", "less than"),
            ("minLength", "of a length of at least"),
            ("maxLength", "of a length of at most"),
            ("pattern", "that matches"),
        )
        if key in schema
    ]
    return " ".join(["expected", words, *bounds])


def _got(value: Any) -> str:
    if isinstance(value, str):
        return f"the string {_short(value)!r}"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return f"an object with {', '.join(_short(str(k)) for k in list(value)[:5]) or 'nothing in it'}"
    return _short(str(msgspec.json.encode(value), "utf-8"))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"


def _known(schema: ToolSchema) -> str:
    properties = schema.input_schema["properties"]
    if not properties:
        return f"{schema.name} takes no arguments."
    required = schema.input_schema["required"]
    listed = (
        f"{name} ({_expected(field).removeprefix('expected ')}{', required' if name in required else ''})"
        for name, field in properties.items()
    )
    return f"{schema.name} takes: {'; '.join(listed)}."
