"""Builds tools from typed functions: the signature becomes the schema, the docstring the description."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import PurePath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec
from msgspec.structs import replace

from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.errors import ShoalError, StateFileError
from shoal.core.keyword_checks import check_keywords
from shoal.core.output_type import (
    OutputType,
    convert_path,
    describe_path_type,
    describe_schema_error,
    uses_pydantic,
)
from shoal.core.program_calls import CONTAIN_EXITS, contain_stop_iteration
from shoal.core.text.encodable_text import find_encoding_problem
from shoal.core.text.model_texts import unwrap_lines
from shoal.tools.tool_arguments import FunctionToolParameter, parse_tool_arguments_leniently
from shoal.tools.tool_texts import load_tool_text

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
MethodP = ParamSpec("MethodP")
MethodR = TypeVar("MethodR")
_CONTEXT_PARAMETER = "context"
_NULL = {"type": "null"}
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def build_tool_argument_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    schema = msgspec.json.schema(arguments, schema_hook=describe_path_type)
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


class ToolParameterName(msgspec.Struct, frozen=True):
    """Name of a parameter that Python cannot spell: `Annotated[int, ToolParameterName("-A")]`."""

    name: str


class _ToolFunctionSignature(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters and schema derived from a function's signature."""

    parameters: dict[str, FunctionToolParameter]
    wants_context: bool
    arguments: type[msgspec.Struct]
    schema: dict[str, Any]
    pydantic_types: dict[str, OutputType[Any]]
    """Parameters that only pydantic can describe and convert."""
    defaults: dict[str, Any]
    """Default of each parameter, by its field."""


_signatures: dict[tuple[Any, ...], _ToolFunctionSignature] = {}
"""Keyed by code object: each session rebuilds the built-in tools around its own state."""
_MAX_SIGNATURES = 256


def _get_cached_tool_signature(
    function: Callable[..., Any], name: str, input_texts: Mapping[str, str]
) -> _ToolFunctionSignature:
    try:
        named = (function.__kwdefaults__ or {}).items()
        defaults = tuple(map(_get_default_key, function.__defaults__ or ()))
        named_defaults = tuple((each, _get_default_key(default)) for each, default in named)
        key = (
            function.__code__,
            name,
            defaults,
            named_defaults,
            tuple(function.__annotations__.items()),
        )
        signature = _signatures.get(key)
    except (AttributeError, TypeError):  # not a plain function, or a default that cannot be compared
        return _parse_tool_signature(function, name, input_texts)
    if signature is None:
        if len(_signatures) >= _MAX_SIGNATURES:
            _signatures.clear()
        signature = _signatures[key] = _parse_tool_signature(function, name, input_texts)
    return signature


def _get_default_key(default: Any) -> Any:
    """Return what identifies a default; empty lists and mappings, which have no hash, are equal."""
    return type(default) if type(default) in (list, dict) and not default else (type(default), default)


def _parse_tool_signature(
    function: Callable[..., Any], name: str, input_texts: Mapping[str, str]
) -> _ToolFunctionSignature:
    parameters = _parse_tool_parameters(function)
    pydantic_types = {
        each.field: _describe_pydantic_parameter(function, each)
        for each in parameters
        if uses_pydantic(each.type)
    }
    parameters = [
        msgspec.structs.replace(each, type=Any) if each.field in pydantic_types else each
        for each in parameters
    ]
    arguments = _define_arguments_struct(name, parameters)
    try:
        schema = build_tool_argument_schema(arguments)
    except (TypeError, NotImplementedError):
        for each in parameters:
            _refuse_unusable_parameter(function, each)
        raise
    for each in parameters:
        if each.field in pydantic_types:
            own = dict(pydantic_types[each.field].schema)
            inlined = _inline_schema_references(own, own.pop("$defs", {}), ())
            described = _find_description(pydantic_types[each.field].python_type)
            schema["properties"][each.name] = {**schema["properties"][each.name], **inlined, **described}
    for path, text in input_texts.items():
        _describe_input(schema, path, text, name)
    return _ToolFunctionSignature(
        parameters={parameter.name: parameter for parameter in parameters},
        wants_context=_CONTEXT_PARAMETER in inspect.signature(function).parameters,
        arguments=arguments,
        schema=schema,
        pydantic_types=pydantic_types,
        defaults={each.field: each.default for each in parameters},
    )


def _describe_pydantic_parameter(
    function: Callable[..., Any], parameter: FunctionToolParameter
) -> OutputType[Any]:
    try:
        return OutputType(parameter.type)
    except TypeError as error:
        raise _build_parameter_error(function, parameter, error.__cause__ or error) from None


def _find_description(annotation: Any) -> dict[str, str]:
    """Return the description that was a string in `Annotated`; pydantic does not know it."""
    notes = getattr(annotation, "__metadata__", ())
    texts = [each.description for each in notes if isinstance(each, msgspec.Meta) and each.description]
    return {"description": texts[-1]} if texts else {}


def _refuse_unusable_parameter(function: Callable[..., Any], parameter: FunctionToolParameter) -> None:
    """Raise `TypeError` if the type or the default of a parameter cannot be described to a model."""
    if type(parameter.default).__module__.startswith("pydantic."):
        raise TypeError(
            f"@shoal.tool: {function.__qualname__}: the default of {parameter.field} is a pydantic Field. "
            f"Put it into the annotation: `{parameter.field}: Annotated[int, Field(ge=1)] = 1`."
        )
    try:
        msgspec.json.schema(parameter.type, schema_hook=describe_path_type)
    except (TypeError, NotImplementedError) as error:
        raise _build_parameter_error(function, parameter, error) from None


def _build_parameter_error(
    function: Callable[..., Any], parameter: FunctionToolParameter, error: BaseException
) -> TypeError:
    return TypeError(
        f"@shoal.tool: {function.__qualname__}: the parameter {parameter.field} cannot be described to a "
        f"model: {describe_schema_error(error)}. Use a JSON type, Path, Enum, Literal, datetime, UUID or "
        "Decimal, a pydantic model, a dataclass, a TypedDict, a msgspec Struct, or a list of those."
    )


def _describe_input(schema: dict[str, Any], path: str, text: str, tool_name: str) -> None:
    """Set the description of an input; `list.field` is a field of the objects in a list."""
    for key in path.split("."):
        properties = schema.get("items", schema).get("properties", {})
        if key not in properties:
            raise TypeError(f"the tool {tool_name} has no input {path}")
        schema = properties[key]
    schema["description"] = text


class FunctionTool:
    """Tool backed by one function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        description: str,
        reads_only: bool,
        deadline: float | None,
        concurrent: bool = False,
        input_texts: Mapping[str, str] | None = None,
    ) -> None:
        signature = _get_cached_tool_signature(function, name, input_texts or {})
        self.function = function
        self.is_read_only = reads_only
        self.is_concurrent = reads_only or concurrent
        self.deadline = deadline
        self._parameters = signature.parameters
        self._wants_context = signature.wants_context
        self._arguments = signature.arguments
        self._pydantic_types = signature.pydantic_types
        self._defaults = signature.defaults
        self._call = _make_awaitable(function)
        self.schema = ToolSchema(name=name, description=description, input_schema=signature.schema)

    def __repr__(self) -> str:
        return f"<tool {self.schema.name}>"

    def parse_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Return the arguments as the function gets them, or a text that lists everything wrong."""
        try:
            return msgspec.structs.asdict(msgspec.convert(arguments, self._arguments, dec_hook=convert_path))
        except msgspec.ValidationError:
            return parse_tool_arguments_leniently(self.schema, self._parameters, arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        keywords = self.parse_arguments(arguments)
        if isinstance(keywords, str):
            return create_tool_error_output(keywords)
        for field, output_type in self._pydantic_types.items():
            if field in self._defaults and keywords[field] is self._defaults[field]:
                continue
            try:
                keywords[field] = output_type.convert(keywords[field])
            except Exception as error:  # noqa: BLE001 - validators of the program may raise anything
                return create_tool_error_output(f"{field}: {error}")
        if self._wants_context:
            keywords[_CONTEXT_PARAMETER] = context
        try:
            with CONTAIN_EXITS:
                result = await self._call(**keywords)
        except StateFileError:
            raise  # the journal cannot be written, which is not the call's fault
        except ShoalError as refusal:
            # A failure the model can act on.
            return create_tool_error_output(str(refusal))
        return _to_tool_output(result)

    def restrict_inputs(self, inputs: Mapping[str, Any], *, required: Sequence[str] | None = None) -> None:
        """Show the model only these inputs, in this form; the hidden ones are still accepted."""
        input_schema = self.schema.input_schema
        required_names = input_schema["required"] if required is None else list(required)
        self.schema = replace(
            self.schema, input_schema={**input_schema, "properties": dict(inputs), "required": required_names}
        )

    def get_inputs_without(self, *hidden: str) -> dict[str, Any]:
        """Return the schemas of the inputs shown to the model, without the named ones."""
        properties: Mapping[str, Any] = self.schema.input_schema["properties"]
        return {name: each for name, each in properties.items() if name not in hidden}


class PythonTool(FunctionTool, Generic[P, R_co]):
    """Tool made from a decorated function, which remains callable. The tool of a method belongs to an
    instance."""

    def __init__(self, function: Callable[P, R_co], **options: Any) -> None:
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self._options = options
        if _is_unbound_method(function):
            # Complete only when it is taken from an instance.
            self.function = function
        else:
            super().__init__(function, **options)

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> R_co:
        """Call the function itself, without an agent."""
        return self.__wrapped__(*args, **keywords)

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(
        self: PythonTool[Concatenate[Any, MethodP], MethodR], instance: object, owner: type[Any]
    ) -> PythonTool[MethodP, MethodR]: ...
    def __get__(self, instance: Any, owner: type[Any]) -> PythonTool[Any, Any]:
        if instance is None or not _is_unbound_method(self.__wrapped__):
            return self
        return PythonTool(self.__wrapped__.__get__(instance, owner), **self._options)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in {"schema", "is_read_only", "is_concurrent", "deadline"}:
                raise TypeError(
                    f"{self.function.__qualname__} is a method. Take the tool from an instance, such as "
                    f"tools=[service.{self.function.__name__}]."
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _is_unbound_method(function: Callable[..., Any]) -> bool:
    return not inspect.ismethod(function) and next(iter(inspect.signature(function).parameters), "") == "self"


@overload
def tool(function: Callable[P, R_co], /) -> PythonTool[P, R_co]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    reads_only: bool = False,
    deadline: float | None = 120,
    concurrent: bool = False,
) -> ToolDecorator: ...
@check_keywords("shoal.tool()")
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    reads_only: bool = False,
    deadline: float | None = 120,
    concurrent: bool = False,
) -> PythonTool[..., Any] | ToolDecorator:
    """Build a tool from an async function, or from a plain one, which then runs in a thread.

    A parameter named `context` receives the call's `ToolContext` and is hidden from the model. A string in
    `Annotated` describes a parameter to the model. `concurrent` lets calls that change something run in
    parallel. Arguments and results may be JSON values, paths, enums, dates, pydantic models, dataclasses,
    TypedDicts and msgspec Structs. A path is as the model wrote it: a relative one starts at `current_cwd`.
    """

    def make_tool(function: Callable[P, R_co]) -> PythonTool[P, R_co]:
        given: Any = function
        if not callable(given) or isinstance(given, type):
            raise TypeError(f"@shoal.tool makes tools from functions, not from {given!r:.80}.")
        _refuse_unusable_function(given)
        _check_tool_options(given, name, deadline)
        _check_tool_facts(description=description, reads_only=reads_only, concurrent=concurrent)
        return PythonTool(
            function,
            name=function.__name__ if name is None else name,
            description=description or _get_docstring(function),
            reads_only=reads_only,
            deadline=deadline,
            concurrent=concurrent,
        )

    return make_tool if function is None else make_tool(function)


def _refuse_unusable_function(function: Any) -> None:
    """Raise `TypeError` for a class method, which has no class yet, and for a generator."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"@shoal.tool: {function.__qualname__} is a generator, but a tool call has one result. "
            "Return a list instead of using `yield`."
        )
    first = next(iter(inspect.signature(function).parameters.values()), None)
    is_unannotated = first is not None and first.annotation is first.empty
    if first is not None and first.name == "cls" and is_unannotated and not inspect.ismethod(function):
        raise TypeError(
            f"@shoal.tool: {function.__qualname__} is a class method. Make it a method with self and take "
            "the tool from an instance, or make it a static method: @staticmethod above @shoal.tool."
        )


def _check_tool_options(function: Any, name: Any, deadline: Any) -> None:
    """Raise `TypeError` or `ValueError` for a name that providers refuse, or a wrong deadline."""
    given = getattr(function, "__name__", "") if name is None else name
    if not isinstance(given, str) or _TOOL_NAME.fullmatch(given) is None:
        raise ValueError(
            f"@shoal.tool: name: {given!r} cannot name a tool. Use 1 to 64 letters, digits, '_' or '-'."
        )
    is_number = isinstance(deadline, int | float) and not isinstance(deadline, bool)
    if deadline is not None and not (is_number and deadline > 0):
        raise ValueError(
            f"@shoal.tool: deadline: expected a number of seconds greater than 0, or None, got {deadline!r}."
        )


def _check_tool_facts(*, description: Any, **flags: Any) -> None:
    """Raise `TypeError` or `ValueError`: a text that is true would let calls run without a question."""
    for option, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"@shoal.tool: {option}: expected True or False, got {value!r:.80}.")
    if description is None:
        return
    if not isinstance(description, str):
        raise TypeError(f"@shoal.tool: description: expected a string, got {description!r:.80}.")
    if problem := find_encoding_problem(description):
        raise ValueError(f"@shoal.tool: description {problem}")


class ToolDecorator(Protocol):
    """Decorator that makes a tool from a function and keeps its type."""

    def __call__(self, function: Callable[P, R_co], /) -> PythonTool[P, R_co]: ...


def _get_docstring(function: Callable[..., Any]) -> str:
    docstring = inspect.getdoc(function)
    if docstring is None and sys.flags.optimize >= 2:
        raise TypeError(
            f"the tool {function.__qualname__} has no description: python -OO removes docstrings. Pass "
            "description=… to @tool, or run Python without -OO."
        )
    return unwrap_lines(docstring or "")


def _parse_tool_parameters(function: Callable[..., Any]) -> list[FunctionToolParameter]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the tool {function.__qualname__} has an annotation that cannot be looked up: {error}. "
            "Import it at module level, outside `if TYPE_CHECKING`."
        ) from error
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == _CONTEXT_PARAMETER:
            if hints.get(parameter.name, Any) not in (Any, object, ToolContext, ToolContext | None):
                raise TypeError(
                    f"@shoal.tool: {function.__qualname__}: the parameter `{parameter}` would get the call's "
                    "ToolContext, and the model could not pass it. Rename it, or annotate it with "
                    "shoal.ToolContext."
                )
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            kind = "positional-only " if parameter.kind is parameter.POSITIONAL_ONLY else ""
            raise TypeError(
                f"@shoal.tool: {function.__qualname__} cannot take the {kind}parameter `{parameter}`, "
                "because models pass each argument by its name. Name each argument."
            )
        name, annotation = _resolve_parameter_annotation(parameter.name, hints.get(parameter.name, Any))
        default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
        found.append(FunctionToolParameter(name=name, field=parameter.name, type=annotation, default=default))
    return found


def _resolve_parameter_annotation(field: str, annotation: Any) -> tuple[str, Any]:
    """Return the model's name for a parameter and its type with descriptions in msgspec form."""
    if get_origin(annotation) is not Annotated:
        return field, annotation
    base, *notes = get_args(annotation)
    name = field
    for note in notes:
        if isinstance(note, ToolParameterName):
            name = note.name
        elif isinstance(note, str):
            base = Annotated[base, msgspec.Meta(description=note)]
        else:
            base = Annotated[base, note]
    return name, base


def _define_arguments_struct(tool_name: str, parameters: list[FunctionToolParameter]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        f"{tool_name}Arguments",
        [
            (p.field, p.type, msgspec.field(name=p.name, **_build_struct_field_default(p.default)))
            for p in parameters
        ],
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _build_struct_field_default(default: Any) -> dict[str, Any]:
    if isinstance(default, (list, dict, set)):
        return {"default_factory": default.copy}
    if isinstance(default, PurePath) or hasattr(default, "__pydantic_validator__"):
        # The schema has no default: these values have no JSON that msgspec can write.
        return {"default_factory": lambda: default}
    return {"default": default}


def _make_awaitable(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    if inspect.iscoroutinefunction(function):
        return function

    called = contain_stop_iteration(function)

    async def run_in_thread(**keywords: Any) -> Any:
        return await asyncio.to_thread(called, **keywords)

    return run_in_thread


_EMPTY_OUTPUT = ToolOutput(content="")


def _to_tool_output(result: Any) -> ToolOutput:
    if isinstance(result, str):
        # The check of the keywords costs more than the rest of this function.
        return replace(_EMPTY_OUTPUT, content=result)
    if isinstance(result, ToolOutput):
        return result
    if result is None:
        return ToolOutput(content=load_tool_text("function", "no_result"))
    data = msgspec.to_builtins(result, enc_hook=_encode_custom_value)
    text = msgspec.json.encode(data).decode()
    return ToolOutput(content=text, data=data if isinstance(data, Mapping) else {"result": data})


def _encode_custom_value(value: Any) -> Any:
    """Return a pydantic model or a path as JSON values; pydantic is never imported for this."""
    if isinstance(value, PurePath):
        return str(value)
    if (dump := getattr(value, "model_dump", None)) is None:
        raise NotImplementedError(f"a tool cannot return {type(value).__name__}")
    return dump(mode="json")
