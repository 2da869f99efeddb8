"""Describes types and their fields for a table, from annotations, defaults and docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, is_typeddict

import msgspec
from msgspec import Struct
from msgspec import inspect as msgspec_inspect

NOTE = "<!-- Generated from the code by `make reference`. Edit the text in the code. -->"


class DocumentedField(NamedTuple):
    name: str
    type: msgspec_inspect.Type
    required: bool
    default: Any
    description: str


class MissingDescription(Exception):
    """Something that a reader would look up has no description in the code."""


def render_page(title: str, opening: str, *parts: str) -> str:
    return (
        "\n\n".join((NOTE, f"# {title}", opening.strip(), *(part.strip() for part in parts if part))) + "\n"
    )


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_escape_cell(cell) for cell in line)} |" for line in lines)


def _escape_cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def format_code(text: str) -> str:
    return f"`{text}`"


def format_sentence(text: str) -> str:
    """Return a docstring as one line, for readers who know no Python."""
    return re.sub(r"\bNone\b", "`null`", " ".join(text.split()))


@cache
def _read_field_docs(module: str) -> dict[str, dict[str, str]]:
    """Read the string below each field, by class and field."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    found: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = dict(_find_field_docs(node.body))
    return found


def _find_field_docs(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, following in pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            yield statement.target.id, format_sentence(following.value.value)


def read_docstring(kind: type) -> str:
    """Return the docstring of the class itself, not of a base class."""
    return format_sentence(kind.__dict__.get("__doc__") or "")


def list_fields(kind: type[Struct]) -> list[DocumentedField]:
    descriptions: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("shoal.") and isinstance(each, type):
            descriptions |= _read_field_docs(each.__module__).get(each.__name__, {})
    info = msgspec_inspect.type_info(kind)
    assert isinstance(info, msgspec_inspect.StructType)
    return [
        DocumentedField(
            name=field.encode_name,
            type=field.type,
            required=field.required,
            default=_get_default(field),
            description=descriptions.get(field.name, ""),
        )
        for field in info.fields
    ]


def _get_default(field: msgspec_inspect.Field) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else msgspec.NODEFAULT


def describe_type(kind: msgspec_inspect.Type, link: Any = None) -> str:  # noqa: C901, PLR0911 - one case for each kind
    """Describe a type for a reader; `link` returns a link for a structure, or nothing."""
    match kind:
        case msgspec_inspect.Metadata(type=inner):
            return describe_type(inner, link)
        case msgspec_inspect.BoolType():
            return "`true` or `false`"
        case msgspec_inspect.IntType():
            return f"integer{_describe_bounds(kind)}"
        case msgspec_inspect.FloatType():
            return f"number{_describe_bounds(kind)}"
        case msgspec_inspect.StrType():
            return "string"
        case msgspec_inspect.NoneType():
            return "`null`"
        case msgspec_inspect.LiteralType(values=values):
            return _join_alternatives([format_code(str(value)) for value in sorted(values, key=str)])
        case msgspec_inspect.UnionType(types=types):
            return _describe_union(types, link)
        case msgspec_inspect.VarTupleType(item_type=item) | msgspec_inspect.ListType(item_type=item):
            return f"list of {_make_plural(describe_type(item, link))}"
        case msgspec_inspect.DictType(value_type=value):
            value_text = describe_type(value, link)
            return "object" if value_text == "JSON" else f"object (string → {value_text})"
        case msgspec_inspect.StructType(cls=cls):
            return (link(cls) if link else "") or "object"
        case msgspec_inspect.AnyType():
            return "JSON"
    return type(kind).__name__.removesuffix("Type").lower()


def _describe_union(types: Sequence[msgspec_inspect.Type], link: Any) -> str:
    # `true or false` needs no `null` beside it, and the null comes last.
    texts = [describe_type(each, link) for each in types if not isinstance(each, msgspec_inspect.NoneType)]
    nullable = any(isinstance(each, msgspec_inspect.NoneType) for each in types)
    return _join_alternatives([*dict.fromkeys(texts), *(["`null`"] if nullable else [])])


def _join_alternatives(texts: Sequence[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} or {last}" if first else last


def _make_plural(text: str) -> str:
    plurals = {kind: f"{kind}s" for kind in ("string", "object", "number", "integer")}
    return plurals.get(text, text)


def _describe_bounds(kind: msgspec_inspect.IntType | msgspec_inspect.FloatType) -> str:
    bounds = [
        f"{sign} {bound:g}"
        for sign, bound in ((">", kind.gt), ("≥", kind.ge), ("<", kind.lt), ("≤", kind.le))
        if bound is not None
    ]
    return f" {' and '.join(bounds)}" if bounds else ""


def describe_default(value: Any) -> str:
    if value is msgspec.NODEFAULT:
        return "required"
    if isinstance(value, Struct):
        return "see below"
    built = msgspec.to_builtins(value)
    if built in ((), [], {}):
        return "none"
    return format_code(msgspec.json.encode(built).decode())


def read_class_field_docs(kind: type) -> dict[str, str]:
    """Return the string below each field of a class and its bases, also of a TypedDict."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("shoal."):
            names = _list_bases(each.__module__, each.__name__) if is_typeddict(each) else [each.__name__]
            for name in names:
                found |= _read_field_docs(each.__module__).get(name, {})
    return {name: text.replace("`null`", "None") for name, text in found.items()}


def _list_bases(module: str, name: str) -> list[str]:
    """Return a class and its bases in the same module, which a TypedDict does not know at run time."""
    for node in _parse_module(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            return [*(each for base in bases for each in _list_bases(module, base)), name]
    return []


@cache
def _parse_module(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def read_attribute_docs(kind: type) -> dict[str, tuple[str, str]]:
    """Return the type and the string below each attribute that the constructor of a class sets."""
    if not kind.__module__.startswith("shoal."):
        return {}
    for node in _parse_module(kind.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            constructors = [each for each in methods if each.name == "__init__"]  # overloads come first
            return dict(_find_attribute_docs(constructors[-1])) if constructors else {}
    return {}


def _find_attribute_docs(method: ast.FunctionDef) -> Iterator[tuple[str, tuple[str, str]]]:
    parameters = {each.arg: each.annotation for each in (*method.args.args, *method.args.kwonlyargs)}
    for statement, following in pairwise([*method.body, ast.Pass()]):
        if isinstance(statement, ast.AnnAssign):
            target, annotation = statement.target, statement.annotation
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
            annotation = parameters.get(value.id) if isinstance(value, ast.Name) else None  # type: ignore[assignment]
        else:
            continue
        if (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        ):
            has_doc = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            doc = str(following.value.value) if has_doc else ""  # type: ignore[attr-defined]
            yield target.attr, ("Any" if annotation is None else ast.unparse(annotation), doc)


def read_alias_doc(location: str, name: str) -> str:
    """Return the string below the definition of a type alias; `location` is its module."""
    module, _, original = location.partition(":")
    for statement, following in pairwise([*_parse_module(module).body, ast.Pass()]):
        target = getattr(statement, "target", None) or next(iter(getattr(statement, "targets", ())), None)
        if (
            isinstance(target, ast.Name)
            and target.id == (original or name)
            and isinstance(following, ast.Expr)
        ):
            return str(getattr(following.value, "value", ""))
    return ""
