"""Python values of a workflow as JSON: arguments, inputs of steps and returned values."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import PurePath
from typing import Any

import msgspec

from shoal.app.model_notices import format_session_notice
from shoal.core.errors import WorkflowError
from shoal.core.output_type import OutputType


def to_json_value(value: Any, what: str) -> Any:
    """Return the value as JSON types. Raises `WorkflowError`: what is not JSON cannot be stored."""
    try:
        encoded = msgspec.to_builtins(value, enc_hook=_encode_other_type, str_keys=True)
        # As it is read again: files have no tuples, and null for a number such as nan.
        return json.loads(json.dumps(encoded, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise WorkflowError(format_session_notice("not_json", what=what, error=error)) from error


def convert_json_value(value: Any, python_type: Any, what: str) -> Any:
    """Return the JSON value as this type. Raises `WorkflowError` if it does not fit."""
    if python_type in (Any, None, type(None)):
        return value
    try:
        return OutputType(python_type).convert(value)
    except (TypeError, ValueError) as error:
        raise WorkflowError(format_session_notice("wrong_type", what=what, error=error)) from error


def format_returned_value(value: Any) -> str:
    """Return what a workflow returned as a text for people and models."""
    if isinstance(value, str):
        return value
    encoded = msgspec.json.encode(to_json_value(value, "The returned value"))
    return msgspec.json.format(encoded, indent=2).decode()


def compute_digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value; the order of keys does not matter."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


def restore_json_value(value: Any, encoded: Any, python_type: Any, what: str) -> Any:
    """Return the value as it is after a resume: its JSON, converted to the type.

    Raises `WorkflowError` if it would differ from the value, because the resumed program would then take
    other decisions. A whole number may become a float.
    """
    restored = convert_json_value(encoded, python_type, what)
    try:
        is_same = _is_same(value, restored)
    except _UnorderedError as error:
        raise WorkflowError(format_session_notice("not_json", what=what, error=error)) from error
    if not is_same:
        given, stored = _shorten(value), _shorten(restored)
        raise WorkflowError(format_session_notice("changed_by_json", what=what, given=given, stored=stored))
    return restored


class _UnorderedError(Exception):
    """A value has no order that a resumed program could rely on."""


def _shorten(value: Any) -> str:
    return f"{value!r:.80}"


def _is_same(value: Any, restored: Any) -> bool:
    """Return True if both are equal and all their parts have the same types."""
    if type(value) is not type(restored):
        return type(value) is int and type(restored) is float and value == restored
    if isinstance(value, set | frozenset):
        raise _UnorderedError("a set may have a different order after a resume, so pass a sorted list")
    if isinstance(value, dict):
        # The order counts: the program may start a step for each key.
        has_same_keys = len(value) == len(restored) and all(map(_is_same, value, restored))
        return has_same_keys and all(map(_is_same, value.values(), restored.values()))
    if isinstance(value, list | tuple):
        return len(value) == len(restored) and all(map(_is_same, value, restored))
    kind = type(value)
    for attribute in ("__struct_fields__", "__dataclass_fields__", "model_fields"):
        if (names := getattr(kind, attribute, None)) is not None:
            return all(_is_same(getattr(value, name), getattr(restored, name)) for name in names)
    return bool(value == restored)


def _encode_other_type(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    # Another thread may be importing pydantic: what is not there yet has no instances.
    model_type: Any = getattr(sys.modules.get("pydantic"), "BaseModel", ())
    if isinstance(value, model_type):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not a JSON type")
