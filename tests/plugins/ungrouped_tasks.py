"""Finds tasks that no task group waits for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from syntax_trees import list_children, list_nodes, parse_module

_STARTERS = ("create_task", "ensure_future")
_WAITERS = ("shield", "gather", "wait_for", "as_completed")
_NAMES = re.compile("|".join([*_STARTERS, *_WAITERS]))


def find_ungrouped_tasks(root: Path) -> list[str]:
    """Find calls that start a task without a group, as `module Class.function`.

    These are `create_task` and `ensure_future` of asyncio or of a loop, and functions of asyncio that wrap a
    coroutine in a task: `shield(f())`, for example. A `gather` that
    returns exceptions waits for all its tasks.
    """
    found: list[str] = []
    for path in sorted(root.rglob("*.py")):
        if not _NAMES.search(path.read_text(encoding="utf-8")):
            continue
        tree = parse_module(path)
        imported = {
            alias.asname or alias.name
            for node in list_nodes(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "asyncio"
            for alias in node.names
        }
        found += [
            f"{path.relative_to(root)} {name}"
            for name, call in _iter_calls(tree, ())
            if _starts_task(call, imported)
        ]
    return found


def _iter_calls(node: ast.AST, names: tuple[str, ...]) -> list[tuple[str, ast.Call]]:
    calls = [(".".join(names), node)] if isinstance(node, ast.Call) else []
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        names = (*names, node.name)
    return calls + [call for child in list_children(node) for call in _iter_calls(child, names)]


def _starts_task(call: ast.Call, imported: set[str]) -> bool:
    match call.func:
        case ast.Name(id=name):
            receiver, is_asyncio = "", name in imported
        case ast.Attribute(value=value, attr=name):
            receiver = ast.unparse(value)
            is_asyncio = receiver == "asyncio"
        case _:
            return False
    if name in _STARTERS:
        return is_asyncio or receiver.endswith(("loop", "loop()"))
    if any(keyword.arg == "return_exceptions" for keyword in call.keywords):
        return False
    return is_asyncio and name in _WAITERS and any(_makes_coroutine(argument) for argument in call.args)


def _makes_coroutine(argument: ast.expr) -> bool:
    match argument:
        case ast.Starred(value=value):
            return _makes_coroutine(value)
        case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element):
            return _makes_coroutine(element)
        case ast.Call():
            return True
        case _:
            return False
