"""Finds objects that another object completes after their construction."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from syntax_trees import list_children, list_nodes, parse_module

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_OWN = ("self", "cls")
_CONSTRUCTORS = ("__init__", "__post_init__", "__enter__", "__aenter__")
_MAKERS = ("create_", "build_", "open_", "load_", "make_", "connect", "restore_")


class LateAssignment(Struct, frozen=True):
    """An assignment to an attribute of another object, or of a method that stores a callback."""

    module: str
    line: int
    target: str
    """The assigned expression, or `Class.method` for a method that stores a callback."""

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.target}"


def find_late_assignments(root: Path, packages: tuple[str, ...]) -> list[LateAssignment]:
    """Find assignments with which one object completes another.

    They assign to an attribute of an attribute or to a private one of another object, store a function in
    another object, or add an attribute to an object that the same function has created; `|=` and `+=` add
    to such an object too. A method that is not the constructor and stores a callback, or a service that the
    constructor has not set, counts too: its object is used before they are there. A service is an object of
    a class of the package that is neither frozen nor an exception.
    """
    modules = {path: parse_module(path) for path in sorted(root.rglob("*.py"))}
    aliases = {name for tree in modules.values() for name in _find_callable_aliases(tree)}
    services = {name for tree in modules.values() for name in _find_service_classes(tree)}
    found: list[LateAssignment] = []
    for path, tree in modules.items():
        module = str(path.relative_to(root))
        if not module.startswith(tuple(f"{package}/" for package in packages)):
            continue
        for owner, function in _iter_functions(tree):
            found += [
                LateAssignment(module, line, target) for line, target in _find_in_function(function, owner)
            ]
            if owner is not None and (
                _stores_callback(function, aliases) or _stores_service(function, owner, services)
            ):
                found.append(LateAssignment(module, function.lineno, f"{owner.name}.{function.name}"))
    return found


def _iter_functions(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, _Function]]:
    """Yield each function with its class; None outside classes."""
    methods = {
        method: node
        for node in list_nodes(tree)
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, _Function)
    }
    for node in list_nodes(tree):
        if isinstance(node, _Function):
            yield methods.get(node), node


def _iter_methods(owner: ast.ClassDef | None) -> Iterator[_Function]:
    if owner is not None:
        yield from (each for each in owner.body if isinstance(each, _Function))


def _iter_own_nodes(function: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_Function.__args__, ast.Lambda, ast.ClassDef)):
            waiting += list_children(node)


def _find_in_function(function: _Function, owner: ast.ClassDef | None) -> Iterator[tuple[int, str]]:
    nodes = list(_iter_own_nodes(function))
    functions = {node.name for node in nodes if isinstance(node, _Function)}
    functions |= {f"self.{method.name}" for method in _iter_methods(owner)}
    created = {
        target.id
        for value, target in _iter_bindings(nodes)
        if isinstance(target, ast.Name) and _is_creation(value, "" if owner is None else owner.name)
    }
    for node in nodes:
        is_addition = isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.BitOr, ast.Add))
        if is_addition and isinstance(node.target, ast.Name) and node.target.id in created:
            yield node.lineno, node.target.id
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            for target in _iter_attribute_targets(node):
                text, parent = ast.unparse(target), target.value
                is_deep = isinstance(parent, (ast.Attribute, ast.Subscript, ast.Call))
                name = parent.id if isinstance(parent, ast.Name) and parent.id not in _OWN else ""
                is_private = bool(name) and target.attr.startswith("_")
                is_callback = bool(name) and _is_function(node.value, functions)
                if is_deep or is_private or name in created or is_callback:
                    yield node.lineno, text


def _iter_bindings(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each value that is bound to a name, by an assignment or by a `with` statement."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from ((node.value, target) for target in node.targets)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield node.context_expr, node.optional_vars


def _iter_attribute_targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[ast.Attribute]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for each in ast.walk(target):
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                yield each


def _is_creation(value: ast.expr, owner: str) -> bool:
    """Return True for a call that creates an object, except for one of the same class."""
    if isinstance(value, ast.IfExp):
        return _is_creation(value.body, owner) or _is_creation(value.orelse, owner)
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return False
    called = ast.unparse(value.func).rpartition(".")[2]
    is_own_class = called in (owner, *_OWN)
    return not is_own_class and (called[:1].isupper() or called.lstrip("_").startswith(_MAKERS))


def _is_function(value: ast.expr | None, functions: set[str]) -> bool:
    match value:
        case ast.Lambda():
            return True
        case ast.Name() | ast.Attribute():
            return ast.unparse(value) in functions
        case ast.Call(func=ast.Name(id="partial")):
            return True
        case _:
            return False


def _find_callable_aliases(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and ast.unparse(node.annotation) == "TypeAlias"
            and node.value is not None
            and ast.unparse(node.value).startswith("Callable")
        ):
            yield node.target.id


def _stores_callback(function: _Function, aliases: set[str]) -> bool:
    if function.name == "__init__":
        return False
    callbacks = {
        argument.arg
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.annotation is not None
        and _is_callback(ast.unparse(argument.annotation).removesuffix(" | None"), aliases)
    }
    return any(
        isinstance(node.value, ast.Name) and node.value.id in callbacks
        for node in _iter_own_nodes(function)
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Attribute) for target in node.targets)
    )


def _is_callback(annotation: str, aliases: set[str]) -> bool:
    return annotation.startswith("Callable[") or annotation in aliases


def _find_service_classes(tree: ast.Module) -> Iterator[str]:
    for node in list_nodes(tree):
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            is_frozen = any(ast.unparse(each) == "frozen=True" for each in node.keywords)
            is_error = any(base.endswith(("Error", "Exception", "Refused")) for base in bases)
            if not is_frozen and not is_error and "NamedTuple" not in bases:
                yield node.name


def _stores_service(function: _Function, owner: ast.ClassDef, services: set[str]) -> bool:
    """Return True for a public method that is the first to set an attribute, to a service or with one."""
    if function.name.startswith("_"):
        return False
    given = {
        argument.arg
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.annotation is not None
        and ast.unparse(argument.annotation).removesuffix(" | None") in services
    }
    initial = _find_initial_attributes(owner)
    return any(
        target.attr not in initial and not given.isdisjoint(_iter_names(node.value))
        for node in _iter_own_nodes(function)
        if isinstance(node, ast.Assign)
        for target in _iter_attribute_targets(node)
        if ast.unparse(target.value) == "self"
    )


def _iter_names(value: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(value) if isinstance(node, ast.Name))


def _find_initial_attributes(owner: ast.ClassDef) -> set[str]:
    """Return the attributes that an object of the class has from the start: fields, and what it is given."""
    found = {
        node.target.id
        for node in owner.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and owner.keywords
    }
    for method in _iter_methods(owner):
        if method.name in _CONSTRUCTORS:
            for node in _iter_own_nodes(method):
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and not _is_none(node.value):
                    found |= {target.attr for target in _iter_attribute_targets(node)}
    return found


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
