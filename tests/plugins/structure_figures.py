"""Counts what makes a package hard to follow: slots for functions, large structs and small modules."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from msgspec import Struct

from syntax_trees import list_nodes, parse_module

_MAX_FIELDS = 15
_SMALL_MODULE = 80


class StructureFigures(Struct, frozen=True, kw_only=True):
    """Figures of one package, each with the places that count."""

    callback_slots: tuple[str, ...]
    """Variables that hold a function until another one is stored in them."""
    large_structs: tuple[str, ...]
    """Classes with more than 15 fields."""
    small_modules: tuple[str, ...]
    """Modules of fewer than 80 lines with a single importer."""


def measure_structure(package: Path) -> StructureFigures:
    slots, large, sizes, importers = list[str](), list[str](), dict[str, int](), Counter[str]()
    for path in sorted(package.rglob("*.py")):
        place, text = path.relative_to(package).as_posix(), path.read_text()
        sizes[place] = text.count("\n")
        for node in list_nodes(parse_module(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                importers[node.module] += 1
            elif _is_callback_slot(node):
                slots.append(f"{place}:{node.lineno}")
            elif isinstance(node, ast.ClassDef) and _count_fields(node) > _MAX_FIELDS:
                large.append(f"{place}:{node.lineno} {node.name}")
    return StructureFigures(
        callback_slots=tuple(slots),
        large_structs=tuple(large),
        small_modules=tuple(
            place
            for place, size in sizes.items()
            if size < _SMALL_MODULE
            and not place.endswith("__init__.py")
            and importers[f"{package.name}.{place.removesuffix('.py').replace('/', '.')}"] == 1
        ),
    )


def _is_callback_slot(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.AnnAssign)
        and "Callable[" in ast.unparse(node.annotation)
        and isinstance(node.value, ast.Lambda)
    )


def _count_fields(node: ast.ClassDef) -> int:
    return sum(isinstance(each, ast.AnnAssign) for each in node.body)
