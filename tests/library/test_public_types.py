"""Types in the signatures and fields of the public API: programs can name each of them."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef, ParamSpec, TypeVar, get_args

import pytest

import shoal

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from reference_pages.python_api import iter_members
from reference_pages.python_groups import INTERNAL, OPTION_TYPES

PUBLIC_MODULES = [value for value in map(shoal.__getattr__, shoal.__all__) if isinstance(value, ModuleType)]


def iter_annotations(name: str, value: Any) -> Iterator[tuple[str, Any, ModuleType]]:
    """Yield the place, the annotation and the module of everything that a public name shows."""
    if isinstance(value, ModuleType):
        for each, member in vars(value).items():
            if isinstance(member, type) and member.__module__ == value.__name__ and not each.startswith("_"):
                yield from iter_class_annotations(f"{name}.{each}", member)
    elif isinstance(value, type):
        yield from iter_class_annotations(name, OPTION_TYPES.get(name, value))
        yield from iter_class_annotations(name, value)
    elif callable(value) and hasattr(value, "__code__"):
        yield from iter_function_annotations(name, value)
    else:
        for each in get_args(value):
            if isinstance(each, type) and each.__module__.startswith("shoal."):
                yield name, each.__name__, sys.modules[each.__module__]


def iter_class_annotations(name: str, kind: type) -> Iterator[tuple[str, Any, ModuleType]]:
    internal = INTERNAL.get(name, ())
    for each in kind.__mro__:
        if each.__module__.startswith("shoal."):
            for field, annotation in inspect.get_annotations(each).items():
                if not field.startswith("_") and field not in internal:
                    yield f"{name}.{field}", annotation, sys.modules[each.__module__]
    for member, value in iter_members(kind):
        if member in internal or value is None:
            continue
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        yield from iter_function_annotations(f"{name}.{member}", function)


def iter_function_annotations(name: str, function: Any) -> Iterator[tuple[str, Any, ModuleType]]:
    function = inspect.unwrap(function)
    for parameter, annotation in inspect.get_annotations(function).items():
        yield f"{name}({parameter})", annotation, sys.modules[function.__module__]


def iter_names(annotation: Any) -> Iterator[str]:
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    for node in ast.walk(ast.parse(text.rpartition(".")[2] if text.startswith("shoal.") else text)):
        if isinstance(node, ast.Name):
            yield node.id


@cache
def find_imports(module: ModuleType) -> dict[str, tuple[str, str]]:
    tree = ast.parse(inspect.getsource(module))
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def resolve(name: str, module: ModuleType) -> Any:
    if name in vars(module):
        return vars(module)[name]
    imported, original = find_imports(module).get(name, ("", ""))
    if not imported:
        return None
    return getattr(__import__(imported, fromlist=[original]), original)


def is_of_shoal(name: str, value: Any, module: ModuleType) -> bool:
    if isinstance(value, TypeVar | ParamSpec):
        return False
    if getattr(value, "__module__", "").startswith("shoal."):
        return True
    imported = find_imports(module).get(name, (module.__name__, ""))[0]
    return imported.startswith("shoal.") and not isinstance(value, ModuleType)


def test_programs_can_name_every_type_of_the_public_api() -> None:
    public = [getattr(shoal, name) for name in shoal.__all__]
    names = {id(each) for each in public}
    names |= {
        id(value)
        for module in PUBLIC_MODULES
        for name, value in vars(module).items()
        if name not in find_imports(module)
    }
    hidden: dict[str, set[str]] = {}
    for name in shoal.__all__:
        for place, annotation, module in iter_annotations(name, getattr(shoal, name)):
            for each in iter_names(annotation):
                value = resolve(each, module)
                if value is not None and is_of_shoal(each, value, module) and id(value) not in names:
                    hidden.setdefault(each, set()).add(place)
    assert not hidden, "\n".join(f"{name}: {sorted(places)[:4]}" for name, places in sorted(hidden.items()))


@pytest.mark.parametrize("name", ["errors", "events", "messages"])
def test_names_can_be_imported_from_the_modules_of_the_package(name: str) -> None:
    module = import_module(f"shoal.{name}")
    assert module is getattr(shoal, name)
    same = {each: getattr(shoal, each) for each in shoal.__all__ if hasattr(module, each)}
    assert same
    assert same == {each: getattr(module, each) for each in same}
