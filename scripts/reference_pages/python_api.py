"""docs/reference/python.md: every public name of the package with its signature, fields and methods."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, ForwardRef, Literal, get_args, get_origin, is_typeddict

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields as list_struct_fields

import shoal
from reference_pages.doc_text import (
    MissingDescription,
    format_code,
    read_alias_doc,
    read_attribute_docs,
    read_class_field_docs,
    render_page,
    render_table,
)
from reference_pages.python_examples import EXAMPLES
from reference_pages.python_groups import ATTRIBUTE_TEXTS, GROUPS, INTERNAL, OPTION_TYPES, NameGroup
from shoal.core.extensions.hook_events import (
    AGENT_FIELDS,
    COMMON_FIELDS,
    HOOK_EVENT_DESCRIPTIONS,
    LATER_FIELDS,
)

_OPENING = """
All names below are in the module `shoal`, which imports quickly: each name is loaded on first use. They are
typed for mypy and pyright. A wrong keyword raises a `TypeError`, and a wrong value raises
`shoal.SettingsError`; both suggest the nearest name. [Use Shoal as a Python
library](../how-to/use-as-a-library.md) introduces the API with programs that you can run.
"""
_HOOKS_NOTE = """
Each event has two types: `EVENTInput` for the input of a function, and `EVENTHookOutput` for what the
function may return. [Hooks](hooks.md) explains each event. All inputs have these fields:
"""
_NEW_NAMES = {
    "LibrarySession": "Session",
    "SharedBudget": "Budget",
    "TeammateStatusSnapshot": "Member",
    "PathText": "str | PathLike[str]",
    "QuestionHandler": "Callable[[Question], Answer | Awaitable[Answer | None] | None]",
    "RequestedPermissionMode": "PermissionMode | Literal['auto', 'manual']",
    "EffortLevel": "Literal['low', 'medium', 'high', 'xhigh', 'max']",
    "SessionId": "str",
}
_TYPE_VARIABLE = re.compile(r"\b(?:AnswerT_co|AnswerT|OutputT|AgentT|ReturnT_co|ReturnT|R_co)\b")
_ANY_ANSWER = re.compile(r"\b(Result|Session|AgentHandle|Turn|type)\[Any\]")
_UNPACK = re.compile(r"Unpack\[(\w+)\]")
_HOOK_FIELD_TEXTS: dict[str, Mapping[str, str]] = {
    "Hooks": {event: described.when for event, described in HOOK_EVENT_DESCRIPTIONS.items()},
    "HookInput": {**COMMON_FIELDS, **AGENT_FIELDS, **LATER_FIELDS},
}
_LINE_WIDTH = 100


def build_python_page() -> str:
    parts = [part for group in GROUPS for part in _render_group(group)]
    return render_page("Python API", _OPENING, _render_contents(), *parts)


def _render_contents() -> str:
    return "\n".join(f"- [{group.title}](#{_slug(group.title)}): {group.summary}" for group in GROUPS)


def _slug(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")


def _render_group(group: NameGroup) -> Iterator[str]:
    yield f"## {group.title}"
    if group.text:
        yield group.text
    for name in group.names:
        yield from render_name(name)
    if group.title == "Hooks":
        yield from _render_hook_types()


def render_name(name: str) -> Iterator[str]:
    """Yield the paragraphs about a public name. Raises `MissingDescription`."""
    value = getattr(shoal, name)
    yield f"### `shoal.{name}`"
    if inspect.ismodule(value):
        yield from _render_module(name, value)
    elif isinstance(value, type) and (is_typeddict(value) or hasattr(value, "__mro__")):
        yield from _render_class(name, value)
    elif inspect.isfunction(value):
        yield _format_signature(f"shoal.{name}", value, prefix=_get_prefix(value))
        yield _get_doc(name, value)
    else:
        yield from _render_alias(name, value)
    if name in EXAMPLES:
        yield f"```python\n{EXAMPLES[name].strip()}\n```"


# Classes


def _render_class(name: str, kind: type) -> Iterator[str]:
    own_doc = kind.__dict__.get("__doc__")
    if not own_doc:
        raise MissingDescription(f"shoal.{name} has no docstring.")
    if _is_constructed_by_programs(kind):
        constructor: Any = kind.__init__
        yield _format_signature(f"shoal.{name}", constructor, skips_first=True)
        yield _clean(own_doc)
        yield _clean(constructor.__doc__ or "")
    else:
        yield _clean(own_doc)
    internal = INTERNAL.get(name, ())
    yield _render_fields(OPTION_TYPES.get(name, kind), internal)
    members = dict(iter_members(kind))
    yield _render_attributes(name, kind, members, internal)
    yield _render_methods(name, members, internal)
    listed = sorted({each for each in (*members, *dict(iter_annotations(kind))) if each in internal})
    if listed:
        names = ", ".join(format_code(each) for each in listed)
        yield f"Shoal itself also uses these members, which may change: {names}."


def _is_constructed_by_programs(kind: type) -> bool:
    constructor = kind.__dict__.get("__init__")
    return (inspect.isfunction(inspect.unwrap(constructor)) if constructor else False) and hasattr(
        constructor, "__wrapped__"
    )


def _render_fields(kind: type, internal: tuple[str, ...]) -> str:
    docs = {**_HOOK_FIELD_TEXTS.get(kind.__name__, {}), **read_class_field_docs(kind)}
    if is_typeddict(kind):
        rows = [
            (format_code(name), format_code(_format_annotation(annotation)), docs.get(name, ""))
            for name, annotation in iter_annotations(kind)
        ]
        return render_table(("key", "type", "meaning"), rows)
    if not issubclass(kind, Struct):
        return ""
    annotations = dict(iter_annotations(kind))
    rows = [
        (
            format_code(field.name),
            format_code(_format_annotation(annotations.get(field.name, "Any"))),
            _format_field_default(field),
            docs.get(field.name, ""),
        )
        for field in list_struct_fields(kind)
        if field.name not in internal
    ]
    return render_table(("field", "type", "default", "meaning"), rows) if rows else ""


def iter_annotations(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a class and its bases with their annotations as text."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("shoal."):
            found |= inspect.get_annotations(each)
    yield from found.items()


def _format_field_default(field: Any) -> str:
    if field.required:
        return "required"
    default = field.default_factory() if field.default is NODEFAULT else field.default
    return format_code(_format_default(default))


def iter_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods, properties and attributes of a class, without the fields of a struct."""
    fields = {each.name for each in list_struct_fields(kind)} if issubclass(kind, Struct) else set()
    seen: set[str] = set(fields)
    for each in kind.__mro__:
        if not each.__module__.startswith("shoal."):
            continue
        for name, value in each.__dict__.items():
            is_api = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if not name.startswith("_") and name not in seen and is_api:
                seen.add(name)
                yield name, value
            elif (
                not name.startswith("_")
                and name not in seen
                and isinstance(value, str | bool | int | type(None))
            ):
                seen.add(name)
                yield name, None
        for name in read_attribute_docs(each):
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, None


def _render_attributes(owner: str, kind: type, members: Mapping[str, Any], internal: tuple[str, ...]) -> str:
    rows = []
    attributes = {name: doc for each in kind.__mro__ for name, doc in read_attribute_docs(each).items()}
    for name, value in members.items():
        if name in internal or not (value is None or isinstance(value, property)):
            continue
        if value is None:
            annotation, doc = attributes.get(name, (type(getattr(kind, name, None)).__name__, ""))
        else:
            annotation = value.fget.__annotations__.get("return", "Any")
            doc = inspect.getdoc(value) or ""
        doc = doc or ATTRIBUTE_TEXTS.get(f"{owner}.{name}", "")
        if not doc:
            raise MissingDescription(f"shoal.{owner}.{name} has no description.")
        rows.append((format_code(name), format_code(_format_annotation(annotation)), _clean(doc)))
    return render_table(("attribute", "type", "meaning"), rows) if rows else ""


def _render_methods(owner: str, members: Mapping[str, Any], internal: tuple[str, ...]) -> str:
    lines = []
    for name, value in members.items():
        if name in internal or value is None or isinstance(value, property):
            continue
        function = getattr(value, "__func__", value)
        is_method = not isinstance(value, staticmethod)
        call = _format_call(name, function, skips_first=is_method) if is_method else f"{name}() -> float"
        doc = _get_doc(f"{owner}.{name}", function)
        lines.append(f"- `{_get_prefix(function)}{call}`  \n  {' '.join(doc.split())}")
    return "\n".join(lines)


# Functions


def _format_signature(name: str, function: Any, *, prefix: str = "", skips_first: bool = False) -> str:
    call = prefix + _format_call(name, function, skips_first=skips_first)
    if len(call) > _LINE_WIDTH:
        head, _, rest = call.partition("(")
        inner, _, returned = rest.rpartition(")")
        lines = "".join(f"\n    {each}," for each in _split_parameters(inner))
        call = f"{head}({lines}\n){returned}"
    return f"```text\n{call}\n```"


def _split_parameters(text: str) -> list[str]:
    """Split parameters at commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _format_call(name: str, function: Any, *, skips_first: bool) -> str:
    signature = inspect.signature(inspect.unwrap(function))
    parameters = list(signature.parameters.values())[1 if skips_first else 0 :]
    texts: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in texts):
            texts.append("*")
        texts.append(_format_parameter(parameter))
        if parameter.kind is parameter.POSITIONAL_ONLY:
            texts.append("/")
    returned = _format_annotation(signature.return_annotation)
    ending = "" if skips_first and function.__name__ == "__init__" else f" -> {returned}"
    return f"{name}({', '.join(texts)}){ending}"


def _format_parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = _format_annotation(parameter.annotation)
    default = "" if parameter.default is parameter.empty else f" = {_format_default(parameter.default)}"
    return f"{stars}{parameter.name}: {annotation}{default}"


def _format_annotation(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = _UNPACK.sub(r"\1", " ".join(text.split()))
    for old, new in _NEW_NAMES.items():
        text = re.sub(rf"\b{old}\b", new, text)
    return _ANY_ANSWER.sub(r"\1[T]", _TYPE_VARIABLE.sub("T", text))


def _format_default(value: Any) -> str:
    if isinstance(value, str | int | float | bool | tuple | list | dict | type(None)):
        return repr(value)
    return f"{type(value).__name__}()" if isinstance(value, Struct) else "…"


def _get_prefix(function: Any) -> str:
    function = inspect.unwrap(function)
    if inspect.isasyncgenfunction(function):
        return "async for … in "
    return "await " if inspect.iscoroutinefunction(function) else ""


def _get_doc(name: str, value: Any) -> str:
    doc = inspect.getdoc(value) or ATTRIBUTE_TEXTS.get(name)
    if not doc:
        raise MissingDescription(f"shoal.{name} has no docstring.")
    return _clean(doc)


def _clean(doc: str) -> str:
    """Return a docstring without its example and with one line for each paragraph."""
    doc = inspect.cleandoc(re.sub(r"```python.*?```", "", doc, flags=re.DOTALL))
    return "\n\n".join(" ".join(part.split()) for part in doc.split("\n\n") if part.strip())


# Aliases, modules and hooks


def _render_alias(name: str, value: Any) -> Iterator[str]:
    doc = read_alias_doc(shoal._EXPORT_MODULES[name], name)
    if not doc:
        raise MissingDescription(f"shoal.{name} has no description below its definition.")
    yield _clean(doc)
    if get_origin(value) is Literal:
        values = ", ".join(format_code(str(each)) for each in get_args(value))
        yield f"One of {values}."
    elif (members := get_args(value)) and all(isinstance(each, type) for each in members):
        yield f"One of {', '.join(format_code(each.__name__) for each in members)}."


def _render_module(name: str, module: Any) -> Iterator[str]:
    if name == "errors":
        yield "All exceptions. Their facts are attributes, and their texts are for people."
        tree = (module.__doc__ or "").partition("\n\n")[2]
        yield f"```text\n{tree.strip()}\n```"
    elif name == "events":
        yield "The classes of all events. [Events](events.md) lists them with their fields."
    else:
        yield "The content of messages."
        rows = [
            (format_code(each.__name__), _clean(each.__doc__ or ""))
            for each in vars(module).values()
            if isinstance(each, type) and issubclass(each, Struct) and each.__module__ == module.__name__
            if not each.__name__.startswith(("_", "Base"))
        ]
        yield render_table(("class", "meaning"), [*rows, _describe_function(module.user_message)])


def _describe_function(function: Any) -> tuple[str, str]:
    call = _format_call(function.__name__, function, skips_first=False)
    return format_code(call), _get_doc(f"messages.{function.__name__}", function)


def _render_hook_types() -> Iterator[str]:
    yield "### Inputs and outputs of hooks"
    yield _HOOKS_NOTE.strip()
    common = {**COMMON_FIELDS, **AGENT_FIELDS, **LATER_FIELDS}
    yield render_table(("field", "meaning"), [(format_code(name), text) for name, text in common.items()])
    rows = []
    for event, described in HOOK_EVENT_DESCRIPTIONS.items():
        fields = {**described.fields, **described.optional_fields}
        listing = " ".join(f"`{name}`: {text}" for name, text in fields.items()) or "None."
        names = format_code(f"{event}Input"), format_code(f"{event}HookOutput")
        rows.append((*names, described.when, listing))
    yield render_table(("input", "output", "when", "fields in addition"), rows)
    outputs = sorted(
        {key for name in shoal.__all__ if name.endswith("HookOutput") for key in _list_keys(name)}
    )
    yield f"Outputs may have these keys, as their types say: {', '.join(map(format_code, outputs))}."


def _list_keys(name: str) -> list[str]:
    return list(getattr(shoal, name).__annotations__)
