"""Random values of any struct, by the types of its fields: for formats that we both write and read."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
from hypothesis import reject
from hypothesis import strategies as st
from msgspec import inspect

texts = st.text(max_size=8) | st.sampled_from(["", "half \ud83d", "\0", "</x>", "ann", "lead", "1", "…"])
_numbers = st.integers(0, 2**53) | st.sampled_from([0, 1, 1_770_977_603_516])
_values = st.recursive(
    st.none() | st.booleans() | _numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def values_of(draw: st.DrawFn, kind: Any) -> Any:
    """Generate values of a type, or of several, that msgspec supports."""
    raw = draw(_raw_values(inspect.type_info(kind)))
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:  # a struct that validates its values itself
        reject()


@cache
def _struct_values(cls: type) -> st.SearchStrategy[Any]:
    # Deferred: a struct may contain others of its type.
    return st.deferred(lambda: _field_values(inspect.type_info(cls)))


def _field_values(kind: Any) -> st.SearchStrategy[Any]:
    needed = {field.encode_name: _raw_values(field.type) for field in kind.fields if field.required}
    more = {field.encode_name: _raw_values(field.type) for field in kind.fields if not field.required}
    if kind.tag is not None:
        needed[str(kind.tag_field)] = st.just(kind.tag)
    return st.fixed_dictionaries(needed, optional=more)


def _raw_values(kind: Any) -> st.SearchStrategy[Any]:  # noqa: C901, PLR0911, PLR0912 - one case for each kind
    match kind:
        case inspect.StructType():
            return _struct_values(kind.cls)
        case inspect.UnionType():
            return st.one_of([_raw_values(each) for each in kind.types])
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            return st.lists(_raw_values(kind.item_type), max_size=2)
        case inspect.TupleType():
            return st.tuples(*map(_raw_values, kind.item_types))
        case inspect.DictType():
            return st.dictionaries(_raw_values(kind.key_type), _raw_values(kind.value_type), max_size=2)
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return _numbers
        case inspect.FloatType():
            return st.floats(0, 1e9)
        case inspect.StrType():
            return texts
        case inspect.NoneType():
            return st.none()
        case inspect.RawType():
            return _values.map(lambda value: msgspec.Raw(json.dumps(value).encode()))
        case inspect.AnyType():
            return _values
    raise TypeError(f"{kind!r} is not made here")
