"""Finds names in docstrings that exist nowhere in the code, for example after a rename."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from syntax_trees import list_nodes, parse_module

_REFERENCE = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
# JSON fields in camelCase and patterns of tool names of MCP servers are not names of ours.
_LOOKS_LIKE_CODE = re.compile(r"^(?!mcp__)(?:\w*_\w*|[A-Z]\w*[a-z])$")


def find_dead_references(paths: Iterable[Path]) -> list[str]:
    """Return each place where a docstring names something in backquotes that no module knows.

    Known are identifiers and the words of string constants, such as wire fields and tool names.
    """
    trees = {path: parse_module(path) for path in paths}
    known: set[str] = set()
    for path, tree in trees.items():
        known.update(path.stem.split("."), _iter_known_words(tree))
    return [
        f"{path}:{line}: `{reference}`"
        for path, tree in trees.items()
        for line, text in _iter_docstrings(tree)
        for reference in _REFERENCE.findall(text)
        if any(_LOOKS_LIKE_CODE.search(word) and word not in known for word in reference.split("."))
    ]


def _iter_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in list_nodes(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                yield line, text
            case _:
                pass


def _iter_known_words(tree: ast.Module) -> Iterator[str]:
    docstrings = {node.value for node in list_nodes(tree) if isinstance(node, ast.Expr)}
    for node in list_nodes(tree):
        match node:
            case (
                ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name))
            ):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name) | ast.ImportFrom(module=str(name)):
                yield from name.split(".")
            case ast.Constant(value=str(text)) if node not in docstrings:
                yield from re.findall(r"\w+", text)
            case _:
                pass
