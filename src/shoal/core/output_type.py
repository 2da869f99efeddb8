"""Output types: the JSON Schema of a Python type, and the conversion of a model's answer to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, get_args, get_type_hints, is_typeddict

import msgspec

from shoal.core.text.json_schema import find_schema_problem

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    AnswerT_co = TypeVar("AnswerT_co", covariant=True, default=None)
else:
    from typing import TypeVar

    # Type checkers read None as its default, which the standard library has only since Python 3.13.
    AnswerT_co = TypeVar("AnswerT_co", covariant=True)
OutputT = TypeVar("OutputT")
_DEFINITIONS = "$defs"


class OutputType(Generic[OutputT]):
    """Type of an answer: a pydantic model, a dataclass, a TypedDict, a msgspec Struct, or a list of those.

    Raises `TypeError` if the type has no JSON Schema.
    """

    def __init__(self, python_type: type[OutputT], schema: dict[str, Any] | None = None) -> None:
        """With `schema`, the answer fits it, and no schema of the type is built."""
        self.python_type = python_type
        self._adapter: Any = None
        self.schema: dict[str, Any] = self._build_schema() if schema is None else schema

    def _build_schema(self) -> dict[str, Any]:
        python_type = self.python_type
        try:
            if uses_pydantic(python_type):
                self._adapter = sys.modules["pydantic"].TypeAdapter(python_type)
                schema = self._adapter.json_schema()
            else:
                schema = msgspec.json.schema(python_type, schema_hook=describe_path_type)
        except Exception as error:  # a type may fail in any way while its schema is built
            raise TypeError(
                f"output={_describe_type(python_type)} cannot be described as JSON Schema: "
                f"{describe_schema_error(error)}. Use a pydantic model, a dataclass, a TypedDict, a msgspec "
                "Struct, or a list of those."
            ) from error
        return _inline_top_reference(schema)

    @classmethod
    def from_schema(cls, schema: dict[str, Any]) -> OutputType[Any]:
        """Return the type of JSON values that fit a JSON Schema. Raises `TypeError`."""
        if problem := find_schema_problem(schema):
            raise TypeError(f"the JSON Schema cannot be used: {problem}.")
        return cls(Any, schema)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<output type {_describe_type(self.python_type)}>"

    def convert(self, answer: Any) -> OutputT:
        """Convert an answer from JSON. Raises ValueError with what does not fit."""
        if self._adapter is not None:
            converted: OutputT = self._adapter.validate_python(answer)
            return converted
        return msgspec.convert(answer, self.python_type, dec_hook=convert_path, str_keys=True)


def describe_path_type(python_type: Any) -> dict[str, Any]:
    """Return the JSON Schema of a path, a type that msgspec does not know. Raises `NotImplementedError`."""
    if isinstance(python_type, type) and issubclass(python_type, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


def convert_path(python_type: Any, value: Any) -> Any:
    """Return a text as a path; `dec_hook` of msgspec."""
    if isinstance(python_type, type) and issubclass(python_type, PurePath) and isinstance(value, str):
        return python_type(value)
    raise ValueError("Expected `str` that is a path")


def describe_schema_error(error: BaseException) -> str:
    """Return the reason why a type has no schema, in one line and without advice about msgspec."""
    return str(error).rpartition("\n")[2].rstrip(".")


def _describe_type(python_type: Any) -> str:
    return python_type.__name__ if isinstance(python_type, type) else repr(python_type)


def uses_pydantic(python_type: Any) -> bool:
    """Return True if the type is a pydantic type or contains one; pydantic is never imported for this."""
    if "pydantic" not in sys.modules:
        return False
    # Another thread may be importing pydantic: what is not there yet has no instances.
    field_type = getattr(sys.modules.get("pydantic.fields"), "FieldInfo", ())
    return any(
        hasattr(part, "__pydantic_validator__")
        or hasattr(part, "__get_pydantic_core_schema__")
        or isinstance(part, field_type)
        for part in _iter_type_parts(python_type, set())
    )


def _iter_type_parts(python_type: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the type, its arguments and the types of its fields."""
    if id(python_type) in seen:
        return
    seen.add(id(python_type))
    yield python_type
    for argument in get_args(python_type):
        yield from _iter_type_parts(argument, seen)
    if hasattr(python_type, "__dataclass_fields__") or is_typeddict(python_type):
        for field in get_type_hints(python_type).values():
            yield from _iter_type_parts(field, seen)


def _inline_top_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with its outermost definition in place, because providers require an object."""
    name = str(schema.get("$ref", "")).removeprefix(f"#/{_DEFINITIONS}/")
    definitions = schema.get(_DEFINITIONS, {})
    if name not in definitions:
        return schema
    definition = definitions[name]
    others = {key: each for key, each in definitions.items() if key != name}
    if f"#/{_DEFINITIONS}/{name}".encode() in msgspec.json.encode([definition, others]):
        others = definitions
    return {**definition, _DEFINITIONS: others} if others else dict(definition)
