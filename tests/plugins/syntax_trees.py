"""Syntax trees of modules, parsed once for all tests of a test module.

These modules have the mark `one_worker`: the others need not parse the sources again.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest


@cache
def parse_module(path: Path) -> ast.Module:
    """Parse a module. Callers must not change the tree."""
    with _without_garbage_collection():
        return ast.parse(path.read_text(encoding="utf-8"))


@cache
def list_nodes(tree: ast.Module) -> list[ast.AST]:
    """Return all nodes of a module, as `ast.walk` does, but without the contexts of names.

    A list is walked again without looking for children, which takes most of the time of a walk.
    """
    with _without_garbage_collection():
        nodes: list[ast.AST] = [tree]
        for node in nodes:
            nodes += list_children(node)
        return nodes


def list_children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below one, without the contexts of names."""
    children: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if type(value) is list:
            children += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and name != "ctx":
            children.append(value)
    return children


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collect no garbage while a tree grows: every look at it would find that all of it is used."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


@pytest.fixture(scope="module", autouse=True)
def forget_syntax_trees() -> Iterator[None]:
    """Free the trees after the last test of the module: those of the whole package take 150 MB."""
    yield
    parse_module.cache_clear()
    list_nodes.cache_clear()
