"""Describes types and their fields for a table, from annotations, defaults and docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec import inspect as shapes

NOTE = "<!-- Made by `make reference` from the code. Change the words there. -->"


class Field(NamedTuple):
    name: str
    type: shapes.Type
    required: bool
    default: Any
    words: str


class Wordless(Exception):
    """Something that a reader would look up has no description in the code."""


def page(title: str, opening: str, *parts: str) -> str:
    return (
        "\n\n".join((NOTE, f"# {title}", opening.strip(), *(part.strip() for part in parts if part))) + "\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def code(text: str) -> str:
    return f"`{text}`"


def sentence(text: str) -> str:
    """Return a docstring as one line, for readers who know no Python."""
    return re.sub(r"\bNone\b", "`null`", " ".join(text.split()))


@cache
def _field_words(module: str) -> dict[str, dict[str, str]]:
    """Read the string below each field, by class and field."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    found: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = dict(_below(node.body))
    return found


def _below(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, following in pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            yield statement.target.id, sentence(following.value.value)


def own_words(kind: type) -> str:
    """Return the docstring of the class itself, not of a base class."""
    return sentence(kind.__dict__.get("__doc__") or "")


def fields_of(kind: type[Struct]) -> list[Field]:
    words: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("shoal.") and isinstance(each, type):
            words |= _field_words(each.__module__).get(each.__name__, {})
    info = shapes.type_info(kind)
    assert isinstance(info, shapes.StructType)
    return [
        Field(
            name=field.encode_name,
            type=field.type,
            required=field.required,
            default=_default(field),
            words=words.get(field.name, ""),
        )
        for field in info.fields
    ]


def _default(field: shapes.Field) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else msgspec.NODEFAULT


def type_words(kind: shapes.Type, named: Any = None) -> str:  # noqa: C901, PLR0911 - one case for each kind
    """Describe a type for a reader; `link` returns a link for a structure, or nothing."""
    match kind:
        case shapes.Metadata(type=inner):
            return type_words(inner, named)
        case shapes.BoolType():
            return "`true` or `false`"
        case shapes.IntType():
            return f"whole number{_bounds(kind)}"
        case shapes.FloatType():
            return f"number{_bounds(kind)}"
        case shapes.StrType():
            return "text"
        case shapes.NoneType():
            return "`null`"
        case shapes.LiteralType(values=values):
            return _either([code(str(value)) for value in sorted(values, key=str)])
        case shapes.UnionType(types=types):
            return _union(types, named)
        case shapes.VarTupleType(item_type=item) | shapes.ListType(item_type=item):
            return f"list of {_plural(type_words(item, named))}"
        case shapes.DictType(value_type=value):
            return f"object of {_plural(type_words(value, named))}"
        case shapes.StructType(cls=cls):
            return (named(cls) if named else "") or "object"
        case shapes.AnyType():
            return "JSON"
    return type(kind).__name__.removesuffix("Type").lower()


def _union(types: Sequence[shapes.Type], named: Any) -> str:
    # `true or false` needs no `null` beside it, and the null comes last.
    texts = [type_words(each, named) for each in types if not isinstance(each, shapes.NoneType)]
    nullable = any(isinstance(each, shapes.NoneType) for each in types)
    return _either([*dict.fromkeys(texts), *(["`null`"] if nullable else [])])


def _either(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _plural(words: str) -> str:
    plurals = {"text": "texts", "object": "objects", "number": "numbers"}
    return plurals.get(words, words)


def _bounds(kind: shapes.IntType | shapes.FloatType) -> str:
    told = [
        f"{sign} {bound:g}"
        for sign, bound in ((">", kind.gt), ("≥", kind.ge), ("<", kind.lt), ("≤", kind.le))
        if bound is not None
    ]
    return f" {' and '.join(told)}" if told else ""


def default_words(value: Any) -> str:
    if value is msgspec.NODEFAULT:
        return "needed"
    if isinstance(value, Struct):
        return "as below"
    built = msgspec.to_builtins(value)
    if built in ((), [], {}):
        return "none"
    return code(msgspec.json.encode(built).decode())
