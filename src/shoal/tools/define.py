"""Builds tools from typed functions: the signature becomes the schema, the docstring the description."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints, overload

import msgspec
from msgspec.structs import replace

from shoal.core.errors import ShoalError, StoreError
from shoal.core.requests import ToolSchema
from shoal.core.tools import Outcome, Site, failed
from shoal.tools.arguments import Parameter, read_leniently
from shoal.tools.schemas import plain_schema

_SITE = "site"


class Named(msgspec.Struct, frozen=True):
    """Model-facing name of a parameter that Python cannot spell: `Annotated[int, ParameterName("-A")]`."""

    name: str


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters and schema derived from a function's signature."""

    parameters: dict[str, Parameter]
    wants_site: bool
    arguments: type[msgspec.Struct]
    schema: dict[str, Any]


_shapes: dict[tuple[Any, ...], _Shape] = {}
"""Keyed by code object: each session rebuilds the built-in tools around its own state."""
_MOST_SHAPES = 256


def _shape(function: Callable[..., Any], name: str) -> _Shape:
    try:
        given = function.__defaults__, tuple((function.__kwdefaults__ or {}).items())
        key = (function.__code__, name, given, tuple(function.__annotations__.items()))
        known = _shapes.get(key)
    except (AttributeError, TypeError):  # not a plain function, or a default that cannot be compared
        return _read_shape(function, name)
    if known is None:
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        known = _shapes[key] = _read_shape(function, name)
    return known


def _read_shape(function: Callable[..., Any], name: str) -> _Shape:
    parameters = _parameters(function)
    arguments = _arguments_struct(name, parameters)
    return _Shape(
        parameters={parameter.name: parameter for parameter in parameters},
        wants_site=_SITE in inspect.signature(function).parameters,
        arguments=arguments,
        schema=plain_schema(arguments),
    )


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
        beside: bool = False,
    ) -> None:
        shape = _shape(function, name)
        self.function = function
        self.reads_only = reads_only
        self.side_by_side = reads_only or beside
        self.deadline = deadline
        self._parameters = shape.parameters
        self._wants_site = shape.wants_site
        self._arguments = shape.arguments
        self._call = _awaitable(function)
        self.schema = ToolSchema(name=name, description=description, input_schema=shape.schema)

    def __repr__(self) -> str:
        return f"<tool {self.schema.name}>"

    async def run(self, arguments: Mapping[str, Any], site: Site) -> Outcome:
        try:
            given = msgspec.structs.asdict(msgspec.convert(arguments, self._arguments))
        except msgspec.ValidationError:
            lenient = read_leniently(self.schema, self._parameters, arguments)
            if isinstance(lenient, str):
                return failed(lenient)
            given = lenient
        if self._wants_site:
            given[_SITE] = site
        try:
            result = await self._call(**given)
        except StoreError:
            raise  # the journal cannot be written, which is not the call's fault
        except ShoalError as refusal:
            # A failure the model can act on.
            return failed(str(refusal))
        return _outcome(result)

    def show(self, inputs: Mapping[str, Any], *, required: Sequence[str] | None = None) -> None:
        """Show the model only these inputs, in this form; the hidden ones are still accepted."""
        whole = self.schema.input_schema
        needed = whole["required"] if required is None else list(required)
        self.schema = replace(
            self.schema, input_schema={**whole, "properties": dict(inputs), "required": needed}
        )

    def inputs_but(self, *hidden: str) -> dict[str, Any]:
        """Return the schemas of the inputs shown to the model, without the named ones."""
        shown: Mapping[str, Any] = self.schema.input_schema["properties"]
        return {name: each for name, each in shown.items() if name not in hidden}


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    reads_only: bool = False,
    deadline: float | None = 120,
    beside: bool = False,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    reads_only: bool = False,
    deadline: float | None = 120,
    beside: bool = False,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Build a tool from an async function, or from a plain one, which then runs in a thread.

    A parameter named `context` receives the call's `ToolContext` and is hidden from the model. A string in
    `Annotated` describes a parameter to the model. `concurrent` lets calls that change something run in
    parallel.
    """

    def make(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            function,
            name=name or function.__name__,
            description=description or _unwrapped(inspect.getdoc(function) or ""),
            reads_only=reads_only,
            deadline=deadline,
            beside=beside,
        )

    return make if function is None else make(function)


def _unwrapped(doc: str) -> str:
    """Join lines that were broken only for source width; keep paragraphs and lists."""
    return re.sub(r"(?<!\n)\n(?![\n*-])", " ", doc)


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as missing:
        raise TypeError(
            f"the tool {function.__qualname__} has an annotation that cannot be looked up: {missing}. "
            "Import it at module level, outside `if TYPE_CHECKING`."
        ) from missing
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == _SITE:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"the tool {function.__qualname__} cannot take `{parameter}`: name each argument")
        name, annotation = _named(parameter.name, hints.get(parameter.name, Any))
        default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
        found.append(Parameter(name=name, field=parameter.name, type=annotation, default=default))
    return found


def _named(field: str, annotation: Any) -> tuple[str, Any]:
    """Return the model's name for a parameter and its type with descriptions in msgspec form."""
    if get_origin(annotation) is not Annotated:
        return field, annotation
    base, *notes = get_args(annotation)
    name = field
    for note in notes:
        if isinstance(note, Named):
            name = note.name
        elif isinstance(note, str):
            base = Annotated[base, msgspec.Meta(description=note)]
        else:
            base = Annotated[base, note]
    return name, base


def _arguments_struct(tool_name: str, parameters: list[Parameter]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        f"{tool_name}Arguments",
        [(p.field, p.type, msgspec.field(name=p.name, **_default(p.default))) for p in parameters],
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _default(default: Any) -> dict[str, Any]:
    if isinstance(default, (list, dict, set)):
        return {"default_factory": default.copy}
    return {"default": default}


def _awaitable(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    if inspect.iscoroutinefunction(function):
        return function

    async def in_a_thread(**given: Any) -> Any:
        return await asyncio.to_thread(function, **given)

    return in_a_thread


def _outcome(result: Any) -> Outcome:
    if isinstance(result, Outcome):
        return result
    if isinstance(result, str):
        return Outcome(content=result)
    if result is None:
        return Outcome(content="Done; there is no result to show.")
    data = msgspec.to_builtins(result)
    text = msgspec.json.encode(data).decode()
    return Outcome(content=text, data=data if isinstance(data, Mapping) else {"result": data})
