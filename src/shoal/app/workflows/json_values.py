"""Python values of a workflow as JSON: arguments, inputs of steps and returned values."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import msgspec

from shoal.app.model_notices import format_session_notice
from shoal.core.errors import WorkflowError
from shoal.core.output_type import OutputType


def to_json_value(value: Any, what: str) -> Any:
    """Return the value as JSON types. Raises `WorkflowError`: what is not JSON cannot be stored."""
    try:
        encoded = msgspec.to_builtins(value, enc_hook=_encode_pydantic_model, str_keys=True)
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


def _encode_pydantic_model(value: Any) -> Any:
    # Another thread may be importing pydantic: what is not there yet has no instances.
    model_type: Any = getattr(sys.modules.get("pydantic"), "BaseModel", ())
    if isinstance(value, model_type):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not a JSON type")
