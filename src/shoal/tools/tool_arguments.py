"""Lenient parsing of tool arguments, with readable messages for arguments that cannot be parsed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.output_type import convert_path
from shoal.tools.tool_texts import format_tool_text

_ERROR_LOCATION = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<where>.*)`)?$", re.DOTALL)
_MAX_VALUE_CHARACTERS = 60
_ARTICLES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class FunctionToolParameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Name that the model uses."""
    field: str
    """Name that the function uses."""
    type: Any
    default: Any

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.NODEFAULT


class _InvalidToolArgumentError(Exception):
    pass


def parse_tool_arguments_leniently(
    schema: ToolSchema, parameters: Mapping[str, FunctionToolParameter], arguments: Mapping[str, Any]
) -> dict[str, Any] | str:
    """Return the arguments by field, with `"5"` accepted for 5, or a text that lists everything wrong."""
    parsed: dict[str, Any] = {}
    problems: list[str] = []
    # A tool may accept more inputs than it shows the model.
    properties: Mapping[str, Any] = schema.input_schema["properties"]
    for name, value in arguments.items():
        parameter = parameters.get(name)
        if parameter is None:
            problems.append(_describe_unknown_argument(name, schema.name, parameters))
            continue
        try:
            parsed[parameter.field] = _convert_argument_value(value, parameter, properties.get(name, {}))
        except _InvalidToolArgumentError as problem:
            problems.append(str(problem))
    for name, parameter in parameters.items():
        if name in arguments:
            continue
        if parameter.is_required:
            expected = _describe_expected_type(properties.get(name, {}))
            problems.append(format_tool_text("function", "missing", name=name, expected=expected))
        else:
            parsed.setdefault(parameter.field, parameter.default)
    if not problems:
        return parsed
    listing = "\n".join(f"- {problem}" for problem in problems)
    return format_tool_text(
        "function",
        "invalid",
        tool=schema.name,
        problems=listing,
        parameters=_describe_tool_parameters(schema),
    )


def _convert_argument_value(value: Any, parameter: FunctionToolParameter, schema: Mapping[str, Any]) -> Any:
    try:
        return msgspec.convert(value, parameter.type, dec_hook=convert_path)
    except msgspec.ValidationError as strict_error:
        conversion_error = strict_error
    try:
        return msgspec.convert(value, parameter.type, strict=False, dec_hook=convert_path)
    except msgspec.ValidationError:
        pass
    # Some models send lists and objects as a JSON string.
    if isinstance(value, str) and schema.get("type") in ("array", "object"):
        try:
            return msgspec.json.decode(value, type=parameter.type, dec_hook=convert_path)
        except msgspec.DecodeError:
            pass
    raise _InvalidToolArgumentError(
        _describe_argument_mismatch(parameter.name, value, schema, conversion_error)
    )


def _describe_argument_mismatch(
    name: str, value: Any, schema: Mapping[str, Any], error: msgspec.ValidationError
) -> str:
    match = _ERROR_LOCATION.match(str(error))
    what, location = (match["what"], match["where"]) if match else (str(error), None)
    if location:
        return f"`{name}{location}`: {what[:1].lower()}{what[1:]}."
    expected, given = _describe_expected_type(schema), _describe_argument_value(value)
    return format_tool_text("function", "mismatch", name=name, expected=expected, given=given)


def _describe_unknown_argument(name: str, tool: str, parameters: Mapping[str, FunctionToolParameter]) -> str:
    import difflib

    close = difflib.get_close_matches(name, parameters, n=1)
    shown = _shorten_argument_text(name)
    if not close:
        return format_tool_text("function", "unknown", name=shown, tool=tool)
    return format_tool_text("function", "misspelled", name=shown, tool=tool, close=close[0])


def _describe_expected_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "expected one of " + ", ".join(msgspec.json.encode(v).decode() for v in schema["enum"])
    if "anyOf" in schema:
        return "expected " + " or ".join(
            _describe_expected_type(c).removeprefix("expected ") for c in schema["anyOf"]
        )
    expected = _ARTICLES.get(schema.get("type", ""), "a value")
    bounds = [
        f"{phrase} {schema[key]}"
        for key, phrase in (
            ("minimum", "at least"),
            ("maximum", "at most"),
            ("exclusiveMinimum", "more than"),
            ("exclusiveMaximum", "less than"),
            ("minLength", "with a length of at least"),
            ("maxLength", "with a length of at most"),
            ("pattern", "that matches"),
        )
        if key in schema
    ]
    return " ".join(["expected", expected, *bounds])


def _describe_argument_value(value: Any) -> str:
    if isinstance(value, str):
        return f"the string {_shorten_argument_text(value)!r}"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        names = ", ".join(_shorten_argument_text(str(name)) for name in list(value)[:5])
        return f"an object with {names or 'no fields'}"
    return _shorten_argument_text(str(msgspec.json.encode(value), "utf-8"))


def _shorten_argument_text(text: str) -> str:
    return (
        text
        if len(text) <= _MAX_VALUE_CHARACTERS
        else f"{text[:_MAX_VALUE_CHARACTERS]}… ({len(text)} characters)"
    )


def _describe_tool_parameters(schema: ToolSchema) -> str:
    properties = schema.input_schema["properties"]
    if not properties:
        return format_tool_text("function", "no_arguments", tool=schema.name)
    required = schema.input_schema["required"]
    descriptions = (
        f"{name} ({_describe_expected_type(field).removeprefix('expected ')}"
        f"{', required' if name in required else ''})"
        for name, field in properties.items()
    )
    return format_tool_text("function", "arguments", tool=schema.name, arguments="; ".join(descriptions))
